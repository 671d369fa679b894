#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "engine/base/result.h"

namespace pinion::harness {

// Turns the parser's complaint into one sentence: the value, the allowed ones and the way out.
// `app` has parsed argc and argv and thrown `error`.
Error DescribeUsage(const CLI::App& app, const CLI::ParseError& error, int argc, char** argv);

// For options that hold an unsigned number: CLI11 itself reads -3 as 2^64 - 3, and a number that is
// too large as the largest.
CLI::Validator Unsigned(uint64_t least = 0, uint64_t most = UINT64_MAX);

// For options of text that must not be "", as a script passes it if its variable is not set.
CLI::Validator NotEmpty();

// The words of this process's command line as they were given, the program's name first.
std::vector<std::string> OwnWords();

}  // namespace pinion::harness
