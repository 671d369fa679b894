#pragma once

#include <CLI/CLI.hpp>

#include "engine/base/result.h"

namespace pinion::harness {

// What the parser complains of as one of our sentences: the value, what is allowed and the way out.
// `app` has parsed argc and argv and thrown `error`.
Error DescribeUsage(const CLI::App& app, const CLI::ParseError& error, int argc, char** argv);

// For options that hold an unsigned number: the parser itself takes -3 for 2^64 - 3, and what is
// too large for the largest.
CLI::Validator Unsigned();

}  // namespace pinion::harness
