#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "engine/base/result.h"
#include "engine/serve/options.h"

namespace pinion::harness {

// The flags of `serve` for access control: keys, hosts, and the pages of other origins.
class GateFlags {
 public:
  // Those without a form of their own write to `rules`. Both must outlive parsing.
  void AddTo(CLI::App& command, HttpRules& rules);
  // Adds the others, and a key of the environment. Errors are kUsage.
  Status Resolve(HttpRules& rules) const;

 private:
  std::string api_key_file_;
  std::vector<std::string> allowed_origins_, allowed_methods_, allowed_headers_, allowed_hosts_;
};

}  // namespace pinion::harness
