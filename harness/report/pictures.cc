#include "harness/report/pictures.h"

#include "engine/base/memory_file.h"
#include "engine/base/process.h"
#include "engine/base/strings.h"
#include "harness/report/page.h"

namespace pinion::harness {
namespace {

constexpr double kNodeSeconds = 60;
constexpr uint64_t kMaxBytes = uint64_t{1} << 30;  // of all pictures

// The first line of node's standard error that is not empty.
std::string FirstErrorLine(const std::string& text) {
  for (const std::string& line : Split(text, '\n'))
    if (line.find("Error") != std::string::npos) return line;
  return text.empty() ? "no message" : Split(text, '\n').front();
}

Result<std::string> RunNode(const std::string& script, const std::string& input) {
  PINION_ASSIGN(MemoryFile in, MemoryFile::Make("the charts"));
  PINION_ASSIGN(const MemoryFile out, MemoryFile::Make("the pictures"));
  PINION_ASSIGN(const MemoryFile errors, MemoryFile::Make("node's errors"));
  PINION_TRY(in.Write(input));
  Process::Options options;
  options.arguments = {"node", script};
  options.stdin_fd = in.fd();
  options.stdout_fd = out.fd();
  options.stderr_fd = errors.fd();
  auto node = Process::Start(options);
  if (!node) return Fail(ErrorCode::kNotFound, "node is not installed (apt-get install nodejs)");
  const auto end = node->Wait(kNodeSeconds);
  if (!end) return Fail(ErrorCode::kFailed, StrCat("node took more than ", kNodeSeconds, " s"));
  if (end->code != 0 || end->signal != 0)
    return Fail(ErrorCode::kFailed,
                "node failed: " + FirstErrorLine(errors.Text(kMaxBytes).value_or("")));
  return out.Text(kMaxBytes);
}

}  // namespace

Result<std::map<std::string, std::string>> RenderPictures(const Results& results,
                                                          const PageParts& parts) {
  if (parts.libraries.empty())
    return Fail(ErrorCode::kNotFound, "this Pinion was built without npm");
  PINION_ASSIGN(const std::string text,
                RunNode(parts.folder + "/svg.js", PageCharts(results, parts).Dump()));
  PINION_ASSIGN(const Json json, Json::Parse(text));
  std::map<std::string, std::string> pictures;
  if (json.is_object())
    for (const auto& [name, svg] : json.object())
      if (svg.is_string()) pictures[name] = svg.string();
  return pictures;
}

}  // namespace pinion::harness
