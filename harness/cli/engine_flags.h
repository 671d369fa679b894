#pragma once

#include <CLI/CLI.hpp>
#include <map>
#include <string>
#include <vector>

#include "engine/base/result.h"
#include "engine/run/options.h"
#include "engine/run/settings.h"

namespace pinion::harness {

// The flags that every command with an engine shares. They are kept as strings until Resolve, which
// applies defaults < profile < environment < flags in this one place.
class EngineFlags {
 public:
  // Adds MODEL (positional, required) and the flags to `command`. The object must outlive parsing.
  void AddTo(CLI::App& command);
  // Adds the flags of a server's own settings as well (SettingRow::is_of_server).
  void AddServersTo(CLI::App& command);
  // Same without MODEL, for commands that vary it themselves.
  void AddFlagsTo(CLI::App& command);
  // The flags of these settings (keys of the registry) alone, for commands that start no engine.
  void AddSomeTo(CLI::App& command, const std::vector<std::string>& keys);

  bool has_model() const { return !model_.empty(); }  // on the command line

  // `base`: defaults, or a profile's options. Errors are kUsage.
  Result<EngineOptions> Resolve(EngineOptions base = {}) const;
  // The same with a server's own settings.
  Result<Configuration> ResolveAll(EngineOptions base = {}) const;

 private:
  void AddSetting(CLI::App& command, const SettingRow& row);

  std::string model_;
  bool needs_model_ = false;
  bool needs_valid_ =
      true;  // checks needs of an engine beyond the values of flags: a model, an ISA path
  std::map<std::string, std::string> texts_;  // by the setting's key, as typed
};

}  // namespace pinion::harness
