#pragma once

#include "engine/base/json.h"
#include "harness/space/definition.h"

namespace pinion::harness {

// Hashes of the files of each engine, {NAME: {"binary","model","program"}}: another build's
// program, another format of the model, and of vLLM, llama.cpp or a command the program that is
// started, as PATH finds it, with the files that the command's other words name (a script that an
// interpreter runs). Null for one that cannot be read.
Json EngineFiles(const Definition& definition);

}  // namespace pinion::harness
