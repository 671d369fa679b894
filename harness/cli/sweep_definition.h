#pragma once

#include "engine/base/result.h"
#include "engine/run/options.h"
#include "harness/cli/sweep_flags.h"
#include "harness/space/definition.h"
#include "harness/space/expand.h"

namespace pinion::harness {

// The definition before flags are applied: the built-in one, overridden by the file of
// --def. A file that names a space replaces the built-in one.
Result<Definition> DefinitionFrom(const SweepFlags& flags, const EngineOptions& base,
                                  const Host& host);

// Applies the command line's flags over `definition`, and checks the result.
Status ApplyFlags(const SweepFlags& flags, const EngineOptions& base, Definition& definition);

}  // namespace pinion::harness
