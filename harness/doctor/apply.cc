#include "harness/doctor/apply.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "engine/base/strings.h"

namespace pinion::harness {
namespace {

// In place: files of /proc and /sys cannot be replaced.
Status WriteSetting(const std::string& path, const std::string& value) {
  const int fd = open(path.c_str(), O_WRONLY | O_TRUNC | O_CLOEXEC);
  const bool written =
      fd >= 0 && write(fd, value.data(), value.size()) == static_cast<ssize_t>(value.size());
  const int code = errno;
  if (fd >= 0) close(fd);
  if (written) return {};
  return Fail(ErrorCode::kIo, StrCat("cannot write '", value, "' to ", path, ": ",
                                     std::strerror(code), "; run as root, outside of a container"));
}

const Check* Find(const std::vector<Check>& checks, const std::string& name) {
  const auto found = std::find_if(checks.begin(), checks.end(),
                                  [&](const Check& check) { return check.name == name; });
  return found == checks.end() ? nullptr : &*found;
}

}  // namespace

Result<AppliedChanges> AppliedChanges::Apply(const Patient& patient,
                                             const std::vector<Check>& checks,
                                             const std::vector<std::string>& names) {
  std::vector<std::string> can;
  for (const Check& check : checks)
    if (!check.changes.empty()) can.push_back(check.name);
  for (const std::string& name : names) {
    const Check* check = Find(checks, name);
    if (!check || check->changes.empty())
      return Fail(ErrorCode::kUsage,
                  StrCat("--apply '", name, "' ",
                         check ? "has nothing here that could be changed" : "is no check",
                         can.empty() ? "; nothing can be applied now"
                                     : "; what can be applied now: " + Join(can, ", ")));
  }
  AppliedChanges applied(patient.root);
  for (const std::string& name : names) {
    for (const Change& change : Find(checks, name)->changes) {
      const Status written = WriteSetting(patient.root + change.path, change.after);
      if (!written) {
        (void)applied.Restore();
        return Unexpected(written.error());
      }
      applied.changes_.push_back(change);
    }
  }
  return applied;
}

Status AppliedChanges::Restore() {
  Status status;
  for (; !changes_.empty(); changes_.pop_back()) {
    const Change& change = changes_.back();
    const Status written = WriteSetting(root_ + change.path, change.before);
    if (!written && status) status = written;
  }
  return status;
}

std::string AppliedChanges::RestoreCommands() const {
  std::string text;
  for (auto change = changes_.rbegin(); change != changes_.rend(); ++change)
    text += StrCat("echo ", change->before, " > /", change->path, "\n");
  return text;
}

}  // namespace pinion::harness
