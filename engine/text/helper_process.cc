#include "engine/text/helper_process.h"

#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "engine/base/clock.h"
#include "engine/base/json.h"
#include "engine/base/memory_file.h"
#include "engine/base/strings.h"
#include "engine/text/frames.h"

namespace pinion {

extern const char* const kHelperMainSource;

namespace {

constexpr int kRequests = 3, kAnswers = 4;  // its descriptors

std::vector<std::string> Command(const HelperProgram& program) {
  std::vector<std::string> command = {kSystemPython, "-I", "-B", "-Xutf8"};
  // Looking for the system's packages takes a third of the time that Python needs to start.
  if (!program.packages.empty()) command.emplace_back("-S");
  command.emplace_back("-");  // its source is its standard input
  command.emplace_back(program.name);
  return command;
}

Json FirstFrame(const HelperProgram& program) {
  Json modules = Json::MakeArray(), packages = Json::MakeArray();
  for (const auto& [name, source] : program.modules)
    modules.Append(Json(Json::Array{name, source}));
  if (!program.packages.empty()) packages.Append(program.packages);
  Json first = Json::MakeObject();
  first.Set("modules", std::move(modules));
  first.Set("packages", std::move(packages));
  return first;
}

}  // namespace

// Private writable memory only: read-only mappings of libraries do not depend on what the helper is
// asked. A core would have what it was asked.
Status LimitMemory(pid_t pid, uint64_t max_data_bytes) {
  const rlimit no_core{0, 0};
  rlimit data{};
  bool done = prlimit(pid, RLIMIT_DATA, nullptr, &data) == 0;
  for (rlim_t* limit : {&data.rlim_cur, &data.rlim_max})
    *limit = std::min<rlim_t>(*limit, max_data_bytes);
  done = done && prlimit(pid, RLIMIT_DATA, &data, nullptr) == 0 &&
         prlimit(pid, RLIMIT_CORE, &no_core, nullptr) == 0;
  if (done) return {};
  return Fail(ErrorCode::kIo,
              StrCat("cannot limit the memory of a helper process: ", std::strerror(errno)));
}

Result<HelperProcess> StartHelper(const HelperProgram& program, std::optional<int> passed,
                                  const std::vector<int>& cpus) {
  std::array<int, 2> ends;
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0)
    return Fail(ErrorCode::kIo, StrCat("cannot make a socket: ", std::strerror(errno)));
  Descriptor ours(ends[0]), theirs(ends[1]);
  PINION_ASSIGN(MemoryFile source, MemoryFile::Make("helper_main.py"));
  PINION_TRY(source.Write(kHelperMainSource));
  Process::Options options;
  options.arguments = Command(program);
  options.stdin_fd = source.fd();
  options.stdout_fd = STDERR_FILENO;  // results belong to our standard output alone
  options.pass_fds = {{theirs.get(), kRequests}, {theirs.get(), kAnswers}};
  if (!cpus.empty()) options.cpus = cpus;
  if (passed) options.pass_fds.emplace_back(*passed, kHelperPassed);
  PINION_ASSIGN(Process process, Process::Start(options));
  theirs = Descriptor();  // otherwise the end of the helper would not read as end of file
  PINION_TRY(LimitMemory(process.pid(), program.max_data_bytes));
  PINION_TRY(WriteFrame(ours.get(), FirstFrame(program).Dump(), NowNs() + kHelperStartLimitNs));
  return HelperProcess{std::move(process), std::move(ours)};
}

}  // namespace pinion
