#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "engine/base/result.h"
#include "engine/serve/options.h"

namespace pinion::harness {

// The flags of `serve` that say how conversations become prompts, and answers messages; and what
// requests leave unsaid.
class ChatFlags {
 public:
  // Both objects must outlive parsing: flags write into `options`, or are kept until Resolve.
  void AddTo(CLI::App& command, ServeOptions& options);
  // Checks what parsing has written, and adds the rest. Errors are kUsage.
  Status Resolve(ServeOptions& options) const;

 private:
  std::string chat_template_, template_kwargs_, generation_config_, generation_overrides_;
};

}  // namespace pinion::harness
