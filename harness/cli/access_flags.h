#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>
#include <vector>

#include "harness/load/http_client.h"

namespace pinion::harness {

// The flags of commands that ask a server: its key, and whose certificates they trust.
class AccessFlags {
 public:
  // The object must outlive parsing.
  void AddTo(CLI::App& command);
  // Long names of the flags.
  static std::vector<std::string> Names() { return {"--api-key", "--ca-file", "--insecure"}; }

  // --api-key, else OPENAI_API_KEY of the environment.
  HttpAccess Resolve() const;

 private:
  std::optional<std::string> api_key_;
  std::string ca_file_;
  bool insecure_ = false;
};

}  // namespace pinion::harness
