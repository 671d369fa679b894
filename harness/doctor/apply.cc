#include "harness/doctor/apply.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "engine/base/descriptor.h"
#include "engine/base/file.h"
#include "engine/base/strings.h"

namespace pinion::harness {
namespace {

// In place: files of /proc and /sys cannot be replaced.
Status WriteSetting(const std::string& path, const std::string& value) {
  const Descriptor file(open(path.c_str(), O_WRONLY | O_TRUNC | O_CLOEXEC));
  if (file.is_open() && WriteAll(file.get(), value)) return {};
  return Fail(ErrorCode::kIo,
              StrCat("cannot write '", value, "' to ", path, ": ", std::strerror(errno),
                     "; run as root, outside of a container"));
}

Status Restore(const std::string& root, const Change& change) {
  const std::string now =
      ChosenSetting(std::string(Trim(ReadFile(root + change.path, 4096).value_or(""))));
  if (now == change.before) return {};
  if (now != change.after)
    return Fail(ErrorCode::kFailed,
                StrCat("/", change.path, " is '", now, "' now and was set to '", change.after,
                       "': it was changed again since, so it stays as it is; it was '",
                       change.before, "' before"));
  return WriteSetting(root + change.path, change.before);
}

const Check* Find(const std::vector<Check>& checks, const std::string& name) {
  const auto found = std::find_if(checks.begin(), checks.end(),
                                  [&](const Check& check) { return check.name == name; });
  return found == checks.end() ? nullptr : &*found;
}

bool IsSetting(const std::string& path) {
  return (path.starts_with("sys/") || path.starts_with("proc/sys/")) &&
         path.find("..") == std::string::npos;
}

}  // namespace

Result<std::vector<Change>> ChangesOf(const std::vector<Check>& checks,
                                      const std::vector<std::string>& names) {
  std::vector<std::string> can;
  for (const Check& check : checks)
    if (!check.changes.empty()) can.push_back(check.name);
  std::vector<Change> changes;
  for (const std::string& name : names) {
    const Check* check = Find(checks, name);
    if (!check || check->changes.empty())
      return Fail(ErrorCode::kUsage,
                  StrCat("--apply '", name, "' ",
                         check ? "has no setting here that could be changed" : "is not a check",
                         can.empty() ? "; nothing can be applied now"
                                     : "; these can be applied now: " + Join(can, ", ")));
    changes.insert(changes.end(), check->changes.begin(), check->changes.end());
  }
  return changes;
}

Status ApplyChanges(const std::string& root, const std::vector<Change>& changes) {
  for (size_t i = 0; i < changes.size(); ++i) {
    const Status written = WriteSetting(root + changes[i].path, changes[i].after);
    if (written) continue;
    for (size_t done = i; done-- > 0;)
      (void)WriteSetting(root + changes[done].path, changes[done].before);
    return written;
  }
  return {};
}

Status RestoreChanges(const std::string& root, const std::vector<Change>& changes) {
  Status status;
  for (auto change = changes.rbegin(); change != changes.rend(); ++change) {
    const Status restored = Restore(root, *change);
    if (!restored && status) status = restored;
  }
  return status;
}

std::string RestoreCommands(const std::vector<Change>& changes) {
  std::string text;
  for (auto change = changes.rbegin(); change != changes.rend(); ++change)
    text += StrCat("echo ", change->before, " > /", change->path, "\n");
  return text;
}

Json ToJson(const std::vector<Change>& changes) {
  Json list = Json::MakeArray();
  for (const Change& change : changes) {
    list.Append(Json::Object{
        {"path", "/" + change.path}, {"before", change.before}, {"after", change.after}});
  }
  return Json::Object{{"changes", std::move(list)}};
}

Result<std::vector<Change>> ReadChanges(const Json& json) {
  const Json* list = json.Find("changes");
  if (!list || !list->is_array())
    return Fail(ErrorCode::kUsage, "it has no list of 'changes', as --apply writes it");
  std::vector<Change> changes;
  for (const Json& item : list->array()) {
    Change change;
    PINION_ASSIGN(change.path, Require<std::string>(item, "path"));
    PINION_ASSIGN(change.before, Require<std::string>(item, "before"));
    PINION_ASSIGN(change.after, Require<std::string>(item, "after"));
    if (change.path.starts_with("/")) change.path.erase(0, 1);
    if (!IsSetting(change.path))
      return Fail(ErrorCode::kUsage,
                  StrCat("/", change.path, " is not a setting below /sys or /proc/sys"));
    changes.push_back(std::move(change));
  }
  return changes;
}

}  // namespace pinion::harness
