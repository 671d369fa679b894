#pragma once

#include <string>

#include "engine/base/json.h"
#include "engine/base/result.h"
#include "engine/run/settings.h"

namespace pinion::harness {

// A launchable configuration with the evidence for it: `sweep` writes it, `launch` starts it.
// Its file is JSON by profiles/profile.schema.json.
struct Profile {
  static constexpr int kFormat = 2;  // raised when an older reader would misread the file

  std::string objective;        // "throughput", "latency", "balanced"
  Configuration configuration;  // the model included

  // The expected performance and the evidence for it. Data for people and for comparing: launch
  // decides nothing from `expected` and `evidence`.
  Json machine;   // MachineFingerprint of the measured machine
  Json cpus;      // the logical CPUs that the sweep was allowed to use: [0,1,...]
  Json expected;  // [{"metric","unit","concurrency","n","median","interval"}]
  Json
      evidence;  // {"plan":{"ranks","frontend_cpus"},"outcome","sentence","ratio_to_default","floor","confirmed","rounds",...}
};

Json ToJson(const Profile& profile);

// Errors (kCorrupt) name the key and the value; whether this machine can run it is
// PlanLaunch's question. The file may come from anywhere: nothing in it is run, and no path in it
// is opened.
Result<Profile> ParseProfile(const Json& object);
Result<Profile> ReadProfile(const std::string& path);

}  // namespace pinion::harness
