#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "engine/base/result.h"
#include "engine/serve/options.h"

namespace pinion::harness {

// The flags of `serve` for turning conversations into prompts and answers into messages, and for
// defaults of requests.
class ChatFlags {
 public:
  // Both objects must outlive parsing: flags write into `options`, or are kept until Resolve.
  void AddTo(CLI::App& command, ServeOptions& options);
  // Checks the parsed flags, and adds the rest. Errors are kUsage.
  Status Resolve(ServeOptions& options) const;

 private:
  std::string chat_template_, template_kwargs_, generation_config_, generation_overrides_;
};

}  // namespace pinion::harness
