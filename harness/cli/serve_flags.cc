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
  FrontLimits& limits = options_.limits;
  const auto add = [&](const char* flag, auto& value, const char* help) {
    return command.add_option(flag, value, help)->group(kLimits);
  };
  add("--max-body-size", max_body_size_,
      "largest request body, such as 8MiB (default 32MiB); above: 413");
  add("--request-memory", request_memory_,
      "memory that all requests together may take in the front end (default: 512MiB or a sixteenth "
      "of the memory, whichever is less); above: 503, or 413 if one request alone exceeds it");
  add("--max-num-queued-reqs", limits.max_num_queued_reqs,
      "choices that may wait or run, each of n on its own; above: 503")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  add("--max-num-queued-tokens", limits.max_num_queued_tokens,
      "prompt tokens of choices that wait for their first token; above: 503")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  add("--max-choice-tokens", limits.max_choice_tokens,
      "n times the prompt tokens of one request; above: 400")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  add("--max-logit-bias", limits.max_logit_bias, "entries of a request's logit_bias; above: 400")
      ->capture_default_str();
  add("--max-stop", limits.max_stop, "stop strings of a request; above: 400")
      ->capture_default_str();
  add("--max-stop-token-ids", limits.max_stop_token_ids,
      "entries of a request's stop_token_ids; above: 400")
      ->capture_default_str();
  add("--request-timeout", request_timeout_,
      "time for a whole answer, such as 90s (default 3600s); 'timeout' in a request, in seconds, "
      "may shorten it; over it: 504, in a stream an error event");
  add("--frontend-workers", limits.workers, "threads that parse, render and tokenize requests")
      ->check(CLI::Range(2, 256))
      ->capture_default_str();
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
  PINION_TRY(ReadBytes(request_memory_, "--request-memory", options.limits.request_memory_bytes));
  PINION_TRY(ReadSeconds(request_timeout_, "--request-timeout", options.limits.request_timeout_s));
  PINION_TRY(
      ReadSeconds(shutdown_timeout_, "--shutdown-timeout", options.faults.shutdown_timeout_s));
  return options;
}

}  // namespace pinion::harness
