#pragma once

#include <string>

#include "engine/base/json.h"

namespace pinion::harness {

// The origin of a sweep's numbers; unreadable parts are null. Taken once, when the sweep starts:
// {"engine":{"version","commit","binary_hash"},"compiler":{"version","openmp","standard","flags","libc"},
//  "model":{"name","files":[{"name","bytes","hash"}],"hash","tokenizer_hash","hashed"},
//  "kernel":{"release","version","command_line"},"microcode":"0x...",
//  "mitigations":{"spectre_v2":"Mitigation: ..."},"cgroup":{"path","cpu.max",...},
//  "node":name of the machine,"environment":{"OMP_NUM_THREADS":...},"topology_xml":"<?xml ...",
//  "hygiene":output of `pinion doctor --json`}
// A sweep adds "engines" (engine_files.h), hashes of the files that each has of its own.
Json Provenance(const std::string& model, const std::string& model_path, int allowed_cpus);

// This machine's name: Kubernetes's (NODE_NAME, which our Jobs set), else Slurm's, else its own.
std::string NodeName();

// One sentence on the doctor's finding that other work already loads the machine; empty
// without such a finding.
std::string LoadWarning(const Json& provenance);

// Names, sizes and hashes of a model's files. Files up to 64 MiB (tokenizer,
// configuration) count whole, larger ones by 64 pieces of 1 MiB spread over them: any other
// checkpoint differs there, and 100 GB of weights take seconds. Null for a preset, whose
// name identifies it. `path`: the folder, or a single file (GGUF), which contains its tokenizer.
Json ModelFilesJson(const std::string& path);

}  // namespace pinion::harness
