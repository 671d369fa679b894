#pragma once

#include <CLI/CLI.hpp>

#include "engine/sample/params.h"

namespace pinion::harness {

// Adds the sampling settings by their API names, bound to `params`; Validate them after parsing.
void AddSamplingFlags(CLI::App& command, SamplingParams& params);

}  // namespace pinion::harness
