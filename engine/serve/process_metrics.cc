#include "engine/serve/process_metrics.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <vector>

#include "engine/base/strings.h"

namespace pinion {
namespace {

// Fields of /proc/self/stat (proc(5)) from the third on, behind the name, which may hold anything.
std::vector<std::string> StatFields() {
  std::ifstream file("/proc/self/stat");
  std::string line;
  std::getline(file, line);
  std::istringstream rest(line.substr(std::min(line.size(), line.rfind(')') + 1)));
  std::vector<std::string> fields;
  for (std::string field; rest >> field;) fields.push_back(field);
  return fields;
}

// When the system was started, in seconds since 1970.
double BootTime() {
  std::ifstream file("/proc/stat");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("btime ")) return std::strtod(line.c_str() + 6, nullptr);
  return 0;
}

void Append(std::string& text, const char* name, const char* type, const char* help, double value) {
  std::ostringstream number;
  number.precision(15);
  number << value;
  text += StrCat("# HELP ", name, " ", help, "\n# TYPE ", name, " ", type, "\n", name, " ",
                 number.str(), "\n");
}

}  // namespace

std::string ProcessMetrics() {
  std::string text;
  const std::vector<std::string> fields = StatFields();
  constexpr size_t kUserTime = 11, kSystemTime = 12, kStart = 19, kVirtual = 20, kResident = 21;
  if (fields.size() > kResident) {
    const auto number = [&](size_t i) { return std::strtod(fields[i].c_str(), nullptr); };
    const auto ticks = static_cast<double>(sysconf(_SC_CLK_TCK));
    const auto page = static_cast<double>(sysconf(_SC_PAGESIZE));
    Append(text, "process_virtual_memory_bytes", "gauge", "Virtual memory size in bytes.",
           number(kVirtual));
    Append(text, "process_resident_memory_bytes", "gauge", "Resident memory size in bytes.",
           number(kResident) * page);
    Append(text, "process_start_time_seconds", "gauge", "Start time in seconds since 1970.",
           BootTime() + number(kStart) / ticks);
    Append(text, "process_cpu_seconds_total", "counter", "User and system CPU time in seconds.",
           (number(kUserTime) + number(kSystemTime)) / ticks);
  }
  std::error_code failed;
  const std::filesystem::directory_iterator open("/proc/self/fd", failed);
  if (!failed)
    Append(text, "process_open_fds", "gauge", "Open file descriptors.",
           static_cast<double>(std::distance(begin(open), end(open))));
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0)
    Append(text, "process_max_fds", "gauge", "Most file descriptors that may be open.",
           static_cast<double>(limit.rlim_cur));
  return text;
}

}  // namespace pinion
