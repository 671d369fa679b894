#include "harness/cli/serve_flags.h"

#include <algorithm>
#include <cctype>
#include <climits>
#include <cstring>
#include <limits>
#include <utility>

#include "engine/base/strings.h"
#include "engine/transfer/address.h"
#include "harness/cli/trace_flag.h"
#include "harness/cli/usage_error.h"
#include "harness/cli/vllm_flags.h"
#include "harness/profile/profile.h"

namespace pinion::harness {
namespace {

constexpr const char* kHttp = "HTTP";
constexpr const char* kLimits = "Limits";
constexpr const char* kFaults = "Faults";
constexpr const char* kPrefill = "Prompts computed by other engines";

// Leaves the default in place if the flag was not given.
template <typename T>
Status ReadBytes(const std::string& text, const char* flag, size_t least, T& field) {
  if (text.empty()) return {};
  PINION_ASSIGN(const uint64_t bytes, ParseBytes(text, 1, flag));
  if (bytes < least)
    return Fail(ErrorCode::kUsage,
                StrCat(flag, " is ", text, ", want at least ", FormatBytes(least)));
  field = static_cast<T>(bytes);
  return {};
}

// `or_never`: whether 0 has a meaning of its own.
Status ReadSeconds(const std::string& text, const char* flag, bool or_never, double& field) {
  constexpr double kLeast = 0.001;  // below, everything would be over time, or without a pause
  if (text.empty()) return {};
  PINION_ASSIGN(const double seconds, ParseDuration(text, flag));
  if (seconds < kLeast && !(or_never && seconds == 0))
    return Fail(ErrorCode::kUsage,
                StrCat(flag, " is ", text, ", want at least 1ms", or_never ? ", or 0" : ""));
  field = seconds;
  return {};
}

}  // namespace

void ServeFlags::AddTo(CLI::App& command) {
  engine_.AddTo(command);
  engine_.AddServersTo(command);
  AddHttp(command);
  gate_.AddTo(command, options_.http);
  AddLimits(command);
  AddFaults(command);
  AddPrefill(command);
  chat_.AddTo(command, options_);
  command.add_option("--served-model-name", options_.served_model_names,
                     "names that clients use, one or more; the first is in answers and metrics "
                     "(default: MODEL)");
  AddTraceFlag(command, options_.trace);
  command
      .add_option("--stand-in", options_.stand_in_rate,
                  "instead of the model, an engine that gives every request this many tokens a "
                  "second: for measurements of the front end")
      ->group("");
  // A variable that a script forgot to set must not open the server: no key file would mean no
  // keys, no certificate no TLS, and no host all of this machine's addresses.
  for (CLI::Option* option : command.get_options())
    if (!option->get_positional() && option->get_items_expected_max() > 0)
      option->check(NotEmpty());
  AddVllmFlags(command);
}

void ServeFlags::AddHttp(CLI::App& command) {
  command.add_option("--host", options_.host, "address to listen on")
      ->group(kHttp)
      ->capture_default_str();
  command.add_option("--port", options_.port, "port to listen on, 0 for any free one")
      ->group(kHttp)
      ->check(CLI::Range(0, 65535))
      ->capture_default_str();
  command
      .add_option("--ssl-certfile", options_.http.ssl_certfile,
                  "certificate chain (PEM): serve HTTPS instead of HTTP")
      ->group(kHttp);
  command
      .add_option("--ssl-keyfile", options_.http.ssl_keyfile,
                  "its private key (PEM; default: in the certificate's file)")
      ->group(kHttp);
  command
      .add_option("--root-path", options_.http.root_path,
                  "prefix such as /llm with which a proxy leaves the paths of requests: it may "
                  "stand before every path")
      ->group(kHttp);
  command
      .add_option("--access-log", options_.http.access_log,
                  "file to append a line of JSON to for every request, '-' for standard output")
      ->group(kHttp);
  command
      .add_option("--sse-keep-alive-interval", sse_keep_alive_interval_,
                  "silence after which a stream gets a comment, such as 15s (default: never)")
      ->group(kHttp);
  command
      .add_option("--header-timeout", header_timeout_,
                  "time for a client to send a request's header (default 20s)")
      ->group(kHttp);
  command
      .add_flag("!--no-ui", options_.http.page,
                "do not serve the web page at / (chat, load, machine, profile): answer 404")
      ->group(kHttp);
  command
      .add_option("--from-profile", from_profile_,
                  "profile to show on the page and in /server_info; changes no setting "
                  "(`pinion launch` gives it)")
      ->group(kHttp);
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
      "most choices waiting or running (a request with n has n of them); above: 503")
      ->check(Unsigned(1))
      ->capture_default_str();
  add("--max-num-queued-tokens", limits.max_num_queued_tokens,
      "prompt tokens of choices that wait for their first token; above: 503")
      ->check(Unsigned(1))
      ->capture_default_str();
  add("--max-choice-tokens", limits.max_choice_tokens,
      "n times the prompt tokens of one request; above: 400")
      ->check(Unsigned(1))
      ->capture_default_str();
  add("--max-logit-bias", limits.max_logit_bias, "entries of a request's logit_bias; above: 400")
      ->check(Unsigned())
      ->capture_default_str();
  add("--max-stop", limits.max_stop, "stop strings of a request; above: 400")
      ->check(Unsigned())
      ->capture_default_str();
  add("--max-stop-token-ids", limits.max_stop_token_ids,
      "entries of a request's stop_token_ids; above: 400")
      ->check(Unsigned())
      ->capture_default_str();
  add("--max-allowed-token-ids", limits.max_allowed_token_ids,
      "entries of a request's allowed_token_ids; above: 400")
      ->check(Unsigned())
      ->capture_default_str();
  add("--max-logprobs", limits.max_logprobs,
      "alternatives of a token that a request's logprobs may ask for (-1: the vocabulary); above: "
      "400")
      ->check(CLI::Range(-1, std::numeric_limits<int>::max()))
      ->capture_default_str();
  add("--max-bad-words", limits.max_bad_words, "entries of a request's bad_words; above: 400")
      ->check(Unsigned())
      ->capture_default_str();
  command
      .add_flag("--ignore-unknown-fields", limits.ignore_unknown_fields,
                "answer requests with fields that are unknown and might change the answer; else: "
                "400")
      ->group(kLimits);
  add("--min-priority", limits.min_priority,
      "lowest 'priority' that a request may ask for; lower values run first (default: any; 0 "
      "keeps clients from overtaking others); below: 400");
  add("--request-timeout", request_timeout_,
      "time for a whole answer, such as 90s (default 3600s); 'timeout' in a request, in seconds, "
      "may shorten it; over it: 504, in a stream an error event");
  add("--frontend-workers", limits.workers, "threads that parse, render and tokenize requests")
      ->check(CLI::Range(2, 256))
      ->capture_default_str();
  add("--max-connections", options_.http.max_connections,
      "connections at a time; at the limit a newcomer takes the place of the one idle longest")
      ->check(CLI::Range(size_t{1}, size_t{1} << 20))
      ->capture_default_str();
}

void ServeFlags::AddFaults(CLI::App& command) {
  FaultOptions& faults = options_.faults;
  command
      .add_option(
          "--engine-timeout", engine_timeout_,
          "the engine process is replaced if it neither answers nor makes progress for this long "
          "(while loading: at least 30s; default 60s)")
      ->group(kFaults);
  command
      .add_option(
          "--max-engine-restarts", faults.max_engine_restarts,
          "starts of a new engine process within 10 minutes, >= 0; if it ends once more, so "
          "does the server")
      ->group(kFaults)
      ->check(Unsigned(0, INT_MAX))
      ->capture_default_str();
  command
      .add_option("--shutdown-timeout", shutdown_timeout_,
                  "time for live requests to finish after SIGTERM, such as 10s (default 30s); a "
                  "second signal ends at once")
      ->group(kFaults);
  command
      .add_flag(
          "--enable-sleep-mode", faults.enable_sleep_mode,
          "offer POST /sleep (ends the engine process, which frees its memory), POST /wake_up "
          "and GET /is_sleeping")
      ->group(kFaults);
  command
      .add_flag("--enable-cache-reset", faults.enable_cache_reset,
                "offer POST /reset_prefix_cache (drops cached prefixes, for measurements)")
      ->group(kFaults);
  command
      .add_option("--profile-dir", faults.profile_dir,
                  "folder for timelines: offer POST /start_profile and POST /stop_profile")
      ->group(kFaults)
      ->check(CLI::ExistingDirectory);
}

void ServeFlags::AddPrefill(CLI::App& command) {
  command
      .add_option("--role", role_,
                  "prefill: compute prompts for servers on other hosts; decode: have them computed")
      ->check(CLI::IsMember({"prefill", "decode"}))
      ->group(kPrefill);
  command
      .add_option(
          "--prefill-listen", options_.engine.prefill.listen,
          "with --role prefill: HOST:PORT or unix:PATH at which other servers ask; it has no "
          "authentication: never expose it to the Internet")
      ->group(kPrefill);
  command
      .add_option("--prefill-from", options_.engine.prefill.from,
                  "with --role decode: the addresses of one or more such servers")
      ->delimiter(',')
      ->group(kPrefill);
}

// A role has its address, and an address its role.
Status ServeFlags::ResolvePrefill(ServeOptions& options) const {
  using Role = PrefillOptions::Role;
  PrefillOptions prefill = options_.engine.prefill;
  if (!role_.empty()) prefill.role = role_ == "prefill" ? Role::kPrefill : Role::kDecode;
  const auto fail = [](std::string message) { return Fail(ErrorCode::kUsage, std::move(message)); };
  const bool listens = !prefill.listen.empty(), asks = !prefill.from.empty();
  if (listens != (prefill.role == Role::kPrefill))
    return fail(listens ? "--prefill-listen is for --role prefill"
                        : "--role prefill wants --prefill-listen HOST:PORT");
  if (asks != (prefill.role == Role::kDecode))
    return fail(asks ? "--prefill-from is for --role decode"
                     : "--role decode wants --prefill-from HOST:PORT, the --prefill-listen of a "
                       "server with --role prefill");
  if (options.prefill_replicas > 0 && !role_.empty())
    return fail(StrCat("--role ", role_,
                       " is for work that is shared between servers, and "
                       "--prefill-replicas shares it within one; use one of them"));
  if (prefill.role == Role::kPrefill && options.data_parallel > 1)
    return fail(
        "--role prefill is for one engine, which has the address; leave out "
        "--data-parallel-size");
  if (listens) PINION_TRY(ParseAddress(prefill.listen, "--prefill-listen"));
  for (const std::string& from : prefill.from) PINION_TRY(ParseAddress(from, "--prefill-from"));
  options.engine.prefill = std::move(prefill);
  return {};
}

Result<ServeOptions> ServeFlags::Resolve() const {
  ServeOptions options = options_;
  EngineOptions base;
  // `--served-model-name NAME MODEL`: a list of names takes the MODEL that follows it.
  if (auto& names = options.served_model_names; !engine_.has_model() && names.size() > 1) {
    base.model = names.back();
    names.pop_back();
  }
  PINION_ASSIGN(Configuration all, engine_.ResolveAll(std::move(base)));
  options.engine = std::move(all.options);
  options.data_parallel = all.replicas;
  options.prefill_replicas = all.prefill_replicas;
  options.engine.has_frontend = true;
  PINION_TRY(ResolvePrefill(options));
  PINION_TRY(chat_.Resolve(options));
  PINION_TRY(ReadBytes(max_body_size_, "--max-body-size", 1 << 10, options.limits.max_body_bytes));
  PINION_TRY(
      ReadBytes(request_memory_, "--request-memory", 1 << 20, options.limits.request_memory_bytes));
  PINION_TRY(
      ReadSeconds(request_timeout_, "--request-timeout", false, options.limits.request_timeout_s));
  PINION_TRY(ResolveHttp(options.http));
  PINION_TRY(gate_.Resolve(options.http));
  if (!from_profile_.empty()) {
    auto profile = ReadProfile(from_profile_);
    if (!profile)
      return Fail(ErrorCode::kUsage, StrCat("--from-profile: ", profile.error().message));
    options.profile = ToJson(*profile);
  }
  PINION_TRY(
      ReadSeconds(engine_timeout_, "--engine-timeout", false, options.faults.engine_timeout_s));
  if (options.faults.engine_timeout_s < 1)
    return Fail(ErrorCode::kUsage,
                StrCat("--engine-timeout is ", engine_timeout_, ", want at least 1s"));
  PINION_TRY(ReadSeconds(shutdown_timeout_, "--shutdown-timeout", true,
                         options.faults.shutdown_timeout_s));
  // Below, a step would last longer than an engine that answers no ping may live.
  if (options.stand_in_rate && !(*options.stand_in_rate >= 0.5 && *options.stand_in_rate <= 10000))
    return Fail(ErrorCode::kUsage, StrCat("--stand-in ", *options.stand_in_rate,
                                          ", want 0.5 to 10000 tokens a second"));
  return options;
}

Status ServeFlags::ResolveHttp(HttpRules& rules) const {
  PINION_TRY(ReadSeconds(header_timeout_, "--header-timeout", false, rules.header_seconds));
  PINION_TRY(ReadSeconds(sse_keep_alive_interval_, "--sse-keep-alive-interval", true,
                         rules.sse_keep_alive_s));
  while (rules.root_path.ends_with('/')) rules.root_path.pop_back();
  const bool is_plain = std::all_of(rules.root_path.begin(), rules.root_path.end(), [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || std::strchr("/._~-", c);
  });
  if (!rules.root_path.empty() && (!rules.root_path.starts_with('/') || !is_plain))
    return Fail(ErrorCode::kUsage, StrCat("--root-path is ", rules.root_path,
                                          ", want a path that begins with '/' and has letters, "
                                          "digits, '.', '_', '~' and '-', such as /llm"));
  if (rules.ssl_certfile.empty() && !rules.ssl_keyfile.empty())
    return Fail(ErrorCode::kUsage, "--ssl-keyfile without --ssl-certfile: give both, or neither");
  return {};
}

}  // namespace pinion::harness
