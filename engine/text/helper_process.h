#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/base/descriptor.h"
#include "engine/base/process.h"
#include "engine/base/result.h"

namespace pinion {

// The binary that has the hidden commands of helpers: the one that the environment's PINION_BINARY
// names, else the running one.
std::string HelperPath();

// Python with Jinja2 takes 50 ms to start on an idle machine, with a large tokenizer a second; a
// busy one may need very much more.
inline constexpr int64_t kHelperStartLimitNs = 30'000'000'000;

// A running helper and our end of its socket.
struct HelperProcess {
  Process process;
  Descriptor socket;
};

// Starts a hidden command of HelperPath, whose requests and answers are one stream socket, its
// descriptors 3 and 4; `passed` becomes its descriptor 5. `cpus`: where it may run; empty: where
// the calling thread may. It ends at the end of its input, or with the thread that started it.
Result<HelperProcess> StartHelper(const char* command, std::optional<int> passed = {},
                                  const std::vector<int>& cpus = {});

}  // namespace pinion
