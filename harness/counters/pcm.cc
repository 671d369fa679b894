// Intel's pcm-memory, which Debian bookworm has only as a program: a child process that writes a
// line of CSV per second. SIGINT ends it, so that it writes the rest and restores its counters.

#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <optional>

#include "engine/base/file.h"
#include "engine/base/process.h"
#include "engine/base/strings.h"
#include "harness/counters/sources.h"

namespace pinion::harness {
namespace {

constexpr double kMegabyte = 1e6, kPatienceSeconds = 5;

tl::unexpected<Error> NotHere(std::string reason) {
  return Fail(ErrorCode::kUnsupported, std::move(reason));
}

// The index of the column of this group and name.
std::optional<size_t> FindColumn(const std::vector<std::string>& groups,
                                 const std::vector<std::string>& names, const char* group,
                                 const char* name) {
  for (size_t i = 0; i < std::min(groups.size(), names.size()); ++i)
    if (Trim(groups[i]) == group && Trim(names[i]) == name) return i;
  return std::nullopt;
}

class PcmMemory final : public CounterSource {
 public:
  explicit PcmMemory(std::string root) : root_(std::move(root)) {}
  ~PcmMemory() override {
    if (output_) std::fclose(output_);
  }
  const char* name() const override { return "pcm"; }

  Status Start() override {
    const std::string program = root_ + "usr/sbin/pcm-memory", msr = "dev/cpu/0/msr";
    std::error_code ignored;
    const std::string cpu = ReadFile(root_ + "proc/cpuinfo", 1 << 20).value_or("");
    if (cpu.find("GenuineIntel") == std::string::npos)
      return NotHere("Intel's tools support only Intel processors");
    if (!std::filesystem::exists(program, ignored))
      return NotHere("/usr/sbin/pcm-memory is not installed: apt install pcm");
    if (!std::filesystem::exists(root_ + msr, ignored))
      return NotHere(StrCat("/", msr, " is missing: modprobe msr"));
    output_ = std::tmpfile();
    if (!output_) return NotHere("no temporary file can be made for its output");
    Process::Options options;
    options.arguments = {program, "1", "-nc", "-csv"};
    options.stdout_fd = fileno(output_);
    auto child = Process::Start(options);
    if (!child) return Unexpected(std::move(child).error());
    child_.emplace(std::move(*child));
    return {};
  }

  Result<std::vector<CounterValue>> Stop() override {
    if (child_->running()) child_->Signal(SIGINT);
    if (!child_->Wait(kPatienceSeconds)) child_->Stop(1);
    PINION_ASSIGN(const PcmBandwidth bandwidth, ParsePcmMemory(Output()));
    return std::vector<CounterValue>{{"memory_read_bytes_per_s", bandwidth.read_bytes_per_s},
                                     {"memory_written_bytes_per_s", bandwidth.write_bytes_per_s},
                                     {"memory_bytes_per_s", bandwidth.bytes_per_s}};
  }

 private:
  std::string Output() const {
    std::string text;
    std::rewind(output_);
    char piece[4096];
    while (const size_t read = std::fread(piece, 1, sizeof piece, output_))
      text.append(piece, read);
    return text;
  }

  const std::string root_;
  std::FILE* output_ = nullptr;
  std::optional<Process> child_;
};

}  // namespace

Result<PcmBandwidth> ParsePcmMemory(const std::string& csv) {
  std::vector<std::string> last;
  std::optional<size_t> read, write, all;
  PcmBandwidth mean;
  for (const std::string& line : Split(csv, '\n')) {
    std::vector<std::string> cells = Split(line, ',');
    if (!all) {  // until the second heading line, whose groups stand in the line before
      read = FindColumn(last, cells, "System", "Read");
      write = FindColumn(last, cells, "System", "Write");
      all = FindColumn(last, cells, "System", "Memory");
      last = std::move(cells);
      continue;
    }
    if (!read || !write || cells.size() <= std::max({*read, *write, *all})) continue;
    const auto number = [&](size_t column) { return ParseDouble(Trim(cells[column]), "MB/s"); };
    const auto reads = number(*read), writes = number(*write), both = number(*all);
    if (!reads || !writes || !both) continue;  // the last line may be cut short
    mean.read_bytes_per_s += *reads * kMegabyte;
    mean.write_bytes_per_s += *writes * kMegabyte;
    mean.bytes_per_s += *both * kMegabyte;
    ++mean.samples;
  }
  if (!all || !read || !write)
    return Fail(ErrorCode::kCorrupt,
                "pcm-memory wrote no columns System Read, Write and Memory; run it by hand to see "
                "its messages");
  if (mean.samples == 0)
    return Fail(ErrorCode::kCorrupt, "pcm-memory wrote no sample: it takes one per second");
  const auto samples = static_cast<double>(mean.samples);
  mean.read_bytes_per_s /= samples;
  mean.write_bytes_per_s /= samples;
  mean.bytes_per_s /= samples;
  return mean;
}

std::unique_ptr<CounterSource> PcmSource(const CounterTarget& target) {
  return std::make_unique<PcmMemory>(target.root);
}

}  // namespace pinion::harness
