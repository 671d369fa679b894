#include "harness/counters/perf_counter.h"

#include <linux/perf_event.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "engine/base/strings.h"

namespace pinion::harness {
namespace {

Descriptor TryOpen(perf_event_attr& attributes, pid_t thread, int cpu) {
  return Descriptor(static_cast<int>(
      syscall(SYS_perf_event_open, &attributes, thread, cpu, -1, PERF_FLAG_FD_CLOEXEC)));
}

CounterGap GapFor(int code) {
  switch (code) {
    case ENOENT:
    case ENODEV:
    case EOPNOTSUPP:
      return {"the CPU has no such counter (a virtual machine without a PMU)"};
    case EACCES:
    case EPERM:
      return {"the kernel refuses it", "sysctl -w kernel.perf_event_paranoid=0, or run as root"};
    case ENOSYS:
      return {"this kernel has no perf_event_open"};
    case EMFILE:
      return {"the process has too many open files", "ulimit -n 65536"};
    default:
      return {StrCat("perf_event_open: ", std::strerror(code))};
  }
}

}  // namespace

tl::expected<PerfCounter, CounterGap> PerfCounter::Open(const Event& event, pid_t thread, int cpu) {
  perf_event_attr attributes = {};
  attributes.size = sizeof attributes;
  attributes.type = event.type;
  attributes.config = event.config;
  attributes.config1 = event.config1;
  attributes.read_format = PERF_FORMAT_TOTAL_TIME_ENABLED | PERF_FORMAT_TOTAL_TIME_RUNNING;
  attributes.inherit = cpu < 0 ? 1 : 0;
  Descriptor fd = TryOpen(attributes, thread, cpu);
  const bool core = event.type == PERF_TYPE_HARDWARE || event.type == PERF_TYPE_RAW;
  if (!fd.is_open() && (errno == EACCES || errno == EPERM) && core) {
    attributes.exclude_kernel = attributes.exclude_hv = 1;
    fd = TryOpen(attributes, thread, cpu);
  }
  if (!fd.is_open()) return tl::unexpected(GapFor(errno));
  return PerfCounter(std::move(fd), attributes.exclude_kernel != 0);
}

tl::expected<double, CounterGap> PerfCounter::Read() const {
  struct {
    uint64_t count, enabled_ns, running_ns;
  } now = {};
  if (read(fd_.get(), &now, sizeof now) != sizeof now)
    return tl::unexpected(CounterGap(StrCat("a counter cannot be read: ", std::strerror(errno))));
  if (now.running_ns == 0) return 0.0;
  return static_cast<double>(now.count) * static_cast<double>(now.enabled_ns) /
         static_cast<double>(now.running_ns);
}

}  // namespace pinion::harness
