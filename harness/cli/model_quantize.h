#pragma once

#include <CLI/CLI.hpp>

namespace pinion::harness {

// `pinion model quantize`.
void AddQuantize(CLI::App& model, int& exit_code);

}  // namespace pinion::harness
