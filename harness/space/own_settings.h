#pragma once

#include <string_view>
#include <vector>

#include "engine/base/json.h"
#include "engine/base/result.h"
#include "harness/space/engine_choice.h"
#include "harness/space/settings.h"

// An engine's own settings, of which Pinion's registry knows nothing: "env.NAME" is a variable of
// its environment, a key that begins with "-" is a flag of its command.

namespace pinion::harness {

bool IsOwnKey(std::string_view key);

// One value of an axis. A text may have the placeholders of harness/engines/command.h. Of a flag,
// true stands for the flag alone; null and false leave the setting out, and so give nullopt.
// Errors (kUsage) name the key.
Result<std::optional<Setting>> ReadOwnSetting(const std::string& key, const Json& value);

// The engine with its own ones of `settings` behind its arguments and environment.
EngineChoice WithOwnSettings(EngineChoice engine, const std::vector<Setting>& settings);

}  // namespace pinion::harness
