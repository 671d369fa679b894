#include "harness/counters/listeners.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <set>
#include <sstream>
#include <string>

#include "engine/base/file.h"
#include "engine/base/strings.h"
#include "harness/counters/process_tree.h"

namespace pinion::harness {
namespace {

int LocalPort(const std::string& address) {  // "0100007F:1F90"
  constexpr int kHexadecimal = 16;
  return static_cast<int>(
      std::strtol(address.c_str() + address.rfind(':') + 1, nullptr, kHexadecimal));
}

// "  0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000 0 12345 1 ...":
// the second word is the address with the port, the fourth is the state, the tenth the socket's
// inode.
void AddSockets(const std::string& table, int port, std::set<std::string>& links) {
  constexpr const char* kListens = "0A";
  std::istringstream lines(ReadFile(table, 1 << 24).value_or(""));
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string number, local, remote, state, skipped, inode;
    words >> number >> local >> remote >> state;
    for (int word = 5; word < 10; ++word) words >> skipped;
    if (words >> inode && state == kListens && LocalPort(local) == port)
      links.insert(StrCat("socket:[", inode, "]"));
  }
}

bool HasOneOf(const std::filesystem::path& process, const std::set<std::string>& links) {
  std::error_code error;  // of another user's process, or of one that has ended
  for (std::filesystem::directory_iterator file(process / "fd", error), end; !error && file != end;
       file.increment(error)) {
    std::error_code closed;
    if (links.count(std::filesystem::read_symlink(file->path(), closed).string())) return true;
  }
  return false;
}

}  // namespace

std::vector<pid_t> ListeningProcesses(int port) {
  std::set<std::string> links;
  for (const char* table : {"/proc/net/tcp", "/proc/net/tcp6"}) AddSockets(table, port, links);
  std::vector<pid_t> found;
  if (links.empty()) return found;
  std::error_code error;
  for (const auto& process : std::filesystem::directory_iterator("/proc", error))
    if (const auto id = ParseInt(process.path().filename().string(), "process");
        id && HasOneOf(process.path(), links))
      found.push_back(static_cast<pid_t>(*id));
  return found;
}

bool ListensAStranger(int port, pid_t root) {
  const std::vector<pid_t> listening = ListeningProcesses(port);
  if (listening.empty()) return false;
  const std::vector<TreeProcess> tree = ProcessTree(root);
  const uint64_t root_start = StartTicks(root);
  return std::all_of(listening.begin(), listening.end(), [&](pid_t process) {
    for (const TreeProcess& own : tree)
      if (own.id == process) return false;
    const uint64_t start = StartTicks(process);
    return start > 0 && start < root_start;
  });
}

}  // namespace pinion::harness
