#pragma once

#include "engine/base/result.h"
#include "engine/run/options.h"
#include "harness/cli/sweep_flags.h"
#include "harness/space/definition.h"
#include "harness/space/expand.h"

namespace pinion::harness {

// What is to be swept before flags say more: the built-in definition, and over it the file of
// --def. A file that names a space replaces the built-in one.
Result<Definition> DefinitionFrom(const SweepFlags& flags, const EngineOptions& base,
                                  const Host& host);

// What was given on the command line beats what `definition` holds, which is checked then.
Status ApplyFlags(const SweepFlags& flags, const EngineOptions& base, Definition& definition);

}  // namespace pinion::harness
