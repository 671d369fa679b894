#include "harness/report/pictures.h"

#include <sys/mman.h>
#include <unistd.h>

#include "engine/base/process.h"
#include "engine/base/strings.h"
#include "harness/report/page.h"

namespace pinion::harness {
namespace {

constexpr double kNodeSeconds = 60;

// A file without a name: what a child reads, or writes, at whatever pace.
class Buffer {
 public:
  Buffer() : fd_(memfd_create("pictures", MFD_CLOEXEC)) {}
  ~Buffer() {
    if (fd_ >= 0) close(fd_);
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  int fd() const { return fd_; }

  bool Fill(std::string_view text) const {
    while (!text.empty()) {
      const ssize_t written = write(fd_, text.data(), text.size());
      if (written <= 0) return false;
      text.remove_prefix(static_cast<size_t>(written));
    }
    return lseek(fd_, 0, SEEK_SET) == 0;
  }
  std::string Text() const {
    std::string text(static_cast<size_t>(std::max<off_t>(0, lseek(fd_, 0, SEEK_END))), '\0');
    const ssize_t got = pread(fd_, text.data(), text.size(), 0);
    text.resize(static_cast<size_t>(std::max<ssize_t>(0, got)));
    return text;
  }

 private:
  int fd_;
};

// The first line of node's complaint that says something.
std::string Complaint(const std::string& text) {
  for (const std::string& line : Split(text, '\n'))
    if (line.find("Error") != std::string::npos) return line;
  return text.empty() ? "it said nothing" : Split(text, '\n').front();
}

Result<std::string> RunNode(const std::string& script, const std::string& input) {
  const Buffer in, out, complaints;
  if (in.fd() < 0 || out.fd() < 0 || complaints.fd() < 0 || !in.Fill(input))
    return Fail(ErrorCode::kIo, "no memory to hand the charts to node");
  Process::Options options;
  options.arguments = {"node", script};
  options.stdin_fd = in.fd();
  options.stdout_fd = out.fd();
  options.stderr_fd = complaints.fd();
  auto node = Process::Start(options);
  if (!node) return Fail(ErrorCode::kNotFound, "node is not installed (apt-get install nodejs)");
  const auto end = node->Wait(kNodeSeconds);
  if (!end) return Fail(ErrorCode::kFailed, StrCat("node took more than ", kNodeSeconds, " s"));
  if (end->code != 0 || end->signal != 0)
    return Fail(ErrorCode::kFailed, "node failed: " + Complaint(complaints.Text()));
  return out.Text();
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
