#pragma once

#include <string>

#include "engine/base/json.h"

namespace pinion::harness {

// Where numbers come from, as far as it can be read here; what cannot is null. Taken once, when a
// sweep starts:
// {"engine":{"version","commit"},"compiler":{"version","openmp","standard"},
//  "model":{"name","files":[{"name","bytes","hash"}],"hash","hashed"},
//  "kernel":{"release","version","command_line"},"cgroup":{"path","cpu.max",...},
//  "environment":{"OMP_NUM_THREADS":...},"topology_xml":"<?xml ...",
//  "hygiene":what `pinion doctor --json` says}
Json Provenance(const std::string& model, const std::string& model_folder, int allowed_cpus);

// Of a model's files: their names, sizes, and content. Files up to 64 MiB (tokenizer,
// configuration) count whole, larger ones by 64 pieces of 1 MiB spread over them: any other
// checkpoint differs there, and 100 GB of weights are known in seconds. Null for a preset, whose
// name says it all.
Json ModelFilesJson(const std::string& folder);

}  // namespace pinion::harness
