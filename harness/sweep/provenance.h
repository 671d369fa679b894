#pragma once

#include <string>

#include "engine/base/json.h"

namespace pinion::harness {

// Where numbers come from, as far as it can be read here; what cannot is null. Taken once, when a
// sweep starts:
// {"engine":{"version","commit"},"compiler":{"version","openmp","standard","flags","libc"},
//  "model":{"name","files":[{"name","bytes","hash"}],"hash","tokenizer_hash","hashed"},
//  "kernel":{"release","version","command_line"},"microcode":"0x...",
//  "mitigations":{"spectre_v2":"Mitigation: ..."},"cgroup":{"path","cpu.max",...},
//  "environment":{"OMP_NUM_THREADS":...},"topology_xml":"<?xml ...",
//  "hygiene":what `pinion doctor --json` says}
Json Provenance(const std::string& model, const std::string& model_path, int allowed_cpus);

// What the doctor says in it of a machine that computes for others already, as one sentence; empty
// where it does not.
std::string LoadWarning(const Json& provenance);

// Of a model's files: their names, sizes, and content. Files up to 64 MiB (tokenizer,
// configuration) count whole, larger ones by 64 pieces of 1 MiB spread over them: any other
// checkpoint differs there, and 100 GB of weights are known in seconds. Null for a preset, whose
// name says it all. `path`: the folder, or the one file (GGUF), whose tokenizer is inside it.
Json ModelFilesJson(const std::string& path);

}  // namespace pinion::harness
