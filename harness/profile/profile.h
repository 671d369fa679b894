#pragma once

#include <string>
#include <vector>

#include "engine/base/json.h"
#include "engine/base/result.h"
#include "engine/host/runtime_choice.h"
#include "engine/run/options.h"

namespace pinion::harness {

// A launchable configuration with the evidence for it: `sweep` writes it, `launch` starts it.
// Its file is JSON as profiles/profile.schema.json says.
struct Profile {
  static constexpr int kFormat = 1;  // raised when an older reader would misread the file

  std::string objective;  // "throughput", "latency", "balanced"
  EngineOptions options;  // the model included
  RuntimeChoice runtime;  // what the server's process is started with
  int replicas = 1;       // servers, each with these options

  // What launching it should give and why to believe so. Data for people and for comparing:
  // nothing is decided from `expected` and `evidence`.
  Json machine;   // MachineFingerprint where it was measured
  Json cpus;      // the logical CPUs that were allowed there: [0,1,...]
  Json expected;  // [{"metric","unit","concurrency","n","median","interval"}]
  Json evidence;  // {"outcome","sentence","ratio_to_default","floor","confirmed","rounds",...}
};

Json ToJson(const Profile& profile);

// Errors (kCorrupt) name the key and what was found; whether this machine can run it is
// PlanLaunch's question. The file may come from anywhere: nothing in it is run, and no path in it
// is opened.
Result<Profile> ParseProfile(const Json& object);
Result<Profile> ReadProfile(const std::string& path);

}  // namespace pinion::harness
