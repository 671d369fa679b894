#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/descriptor.h"
#include "engine/base/process.h"
#include "engine/base/result.h"

namespace pinion {

// Python with Jinja2 takes 50 ms to start on an idle machine, with a large tokenizer a second; a
// busy one may need very much more.
inline constexpr int64_t kHelperStartLimitNs = 30'000'000'000;

// The one that runs helpers, whatever PATH, the environment or a virtual environment name.
inline constexpr const char* kSystemPython = "/usr/bin/python3";

// The number that a descriptor passed to a helper has there.
inline constexpr int kHelperPassed = 5;

// The program of a helper.
struct HelperProgram {
  const char* name;  // by which `ps` shows it
  // Names and sources, each behind those that it imports. The last one's `handle` makes an answer,
  // as text, of a request.
  std::vector<std::pair<const char*, const char*>> modules;
  // The folder of the packages that it imports besides Python's own; empty: the system's.
  std::string packages;
  uint64_t max_data_bytes;  // of private writable memory
};

// A running helper and our end of its socket.
struct HelperProcess {
  Process process;
  Descriptor socket;
};

// Limits the private writable memory of a process, if no lower limit stands already, and forbids it
// to dump a core. Error: the kernel refuses.
Status LimitMemory(pid_t pid, uint64_t max_data_bytes);

// Starts kSystemPython and sends it the program. A first answer {"error": TEXT} says that a module
// cannot run. `passed` becomes its descriptor kHelperPassed. `cpus`: where it may run; empty: where
// the calling thread may. It ends at the end of its input, or with the thread that started it.
// Error: it cannot be started, or its memory cannot be limited.
Result<HelperProcess> StartHelper(const HelperProgram& program, std::optional<int> passed = {},
                                  const std::vector<int>& cpus = {});

}  // namespace pinion
