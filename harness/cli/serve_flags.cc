#include "harness/cli/serve_flags.h"

#include <utility>

#include "engine/base/strings.h"
#include "harness/cli/trace_flag.h"

namespace pinion::harness {
namespace {

constexpr const char* kHttp = "HTTP";
constexpr const char* kLimits = "Limits";
constexpr const char* kFaults = "Faults";

// Leaves the default in place if the flag was not given.
template <typename T>
Status ReadBytes(const std::string& text, const char* flag, T& field) {
  if (text.empty()) return {};
  PINION_ASSIGN(const uint64_t bytes, ParseBytes(text, 1, flag));
  field = static_cast<T>(bytes);
  return {};
}

Status ReadSeconds(const std::string& text, const char* flag, double& field) {
  if (text.empty()) return {};
  PINION_ASSIGN(field, ParseDuration(text, flag));
  return {};
}

}  // namespace

void ServeFlags::AddTo(CLI::App& command) {
  engine_.AddTo(command);
  AddHttp(command);
  AddLimits(command);
  AddFaults(command);
  command.add_option("--served-model-name", options_.served_model_name,
                     "name that clients use (default: MODEL)");
  AddTraceFlag(command, options_.trace);
}

void ServeFlags::AddHttp(CLI::App& command) {
  command.add_option("--host", options_.host, "address to listen on")
      ->group(kHttp)
      ->capture_default_str();
  command.add_option("--port", options_.port, "port to listen on, 0 for any free one")
      ->group(kHttp)
      ->check(CLI::Range(0, 65535))
      ->capture_default_str();
}

void ServeFlags::AddLimits(CLI::App& command) {
  command
      .add_option("--max-body-size", max_body_size_,
                  "largest request body, such as 8MiB (default 32MiB); above: 413")
      ->group(kLimits);
}

void ServeFlags::AddFaults(CLI::App& command) {
  command
      .add_option("--shutdown-timeout", shutdown_timeout_,
                  "time for live requests to finish after SIGTERM, such as 10s (default 30s); a "
                  "second signal ends at once")
      ->group(kFaults);
}

Result<ServeOptions> ServeFlags::Resolve() const {
  ServeOptions options = options_;
  PINION_ASSIGN(options.engine, engine_.Resolve());
  options.engine.has_frontend = true;
  PINION_TRY(ReadBytes(max_body_size_, "--max-body-size", options.limits.max_body_bytes));
  PINION_TRY(
      ReadSeconds(shutdown_timeout_, "--shutdown-timeout", options.faults.shutdown_timeout_s));
  return options;
}

}  // namespace pinion::harness
