#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace pinion::harness {

// --trace FILE, for every command that computes; `path` stays empty without it. The command
// begins the trace, `main` ends it.
void AddTraceFlag(CLI::App& command, std::string& path);

}  // namespace pinion::harness
