#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "engine/base/json.h"
#include "engine/run/options.h"

namespace pinion {

// Limits of one client, and of all of them together. "choices" counts `n` and every prompt of a
// request on its own, as vLLM's queue limits do.
struct FrontLimits {
  size_t max_body_bytes = 32 << 20;  // of one request; above: 413
  // Of all bodies, parsed requests and unsent answers together; 0: the lesser of 512 MiB and a
  // sixteenth of the memory. A request beyond all of it gets 413, one that does not fit now 503.
  size_t request_memory_bytes = 0;
  size_t max_num_queued_reqs = 4096;       // choices that wait or run; above: 503
  size_t max_num_queued_tokens = 1 << 20;  // prompt tokens of requests without a token yet; 503
  size_t max_choice_tokens = 1 << 20;      // n x prompt tokens of one request; above: 400
  size_t max_logit_bias = 1024;            // entries; above: 400, as for the next two
  size_t max_stop = 16, max_stop_token_ids = 1024, max_allowed_token_ids = 1024;
  size_t max_bad_words = 128;
  // Alternatives of a token that `logprobs`, `top_logprobs` and `prompt_logprobs` may ask for;
  // above: 400. OpenAI's and vLLM's limit; -1: the whole vocabulary.
  int max_logprobs = 20;
  bool ignore_unknown_fields = false;        // else 400, as they might change the answer
  bool trust_request_chat_template = false;  // a body may have a template of its own; else 400
  // Of a request's `priority`, of which lower goes first; below: 400. The default allows any.
  int min_priority = std::numeric_limits<int>::min();
  double request_timeout_s = 3600;  // "timeout" in a request may only shorten it; 504
  int workers = 4;                  // threads that parse, render and tokenize
};

// Access to the server, and its transport.
struct HttpRules {
  std::vector<std::string> allowed_origins, allowed_methods{"*"}, allowed_headers{"*"};
  bool allow_credentials = false;
  std::vector<std::string> allowed_hosts;  // besides the names of this machine; "*": any
  std::vector<std::string> api_keys;       // empty: none is asked for
  std::string ssl_certfile, ssl_keyfile;   // PEM; empty: no TLS
  std::string root_path;                   // "/a/b", with which paths may begin; empty: none
  std::string access_log;                  // path, "-": standard output; empty: none
  double sse_keep_alive_s = 0;             // silence after which a stream gets a comment; 0: never
  double header_seconds = 20;              // from a request's first byte to the end of its header
  size_t max_connections = 4096;
  bool page =
      true;  // `/` answers with a page for people, which needs no key and may use the server
};

// How the server treats an engine process that dies, hangs or sleeps, and how it ends.
struct FaultOptions {
  double engine_timeout_s = 60;     // without an answer or progress from the engine: it is killed
  double shutdown_timeout_s = 30;   // for live requests to finish after SIGTERM
  int max_engine_restarts = 5;      // within 10 minutes; one more ends the server
  bool enable_sleep_mode = false;   // offers /sleep, /wake_up and /is_sleeping
  bool enable_cache_reset = false;  // offers /reset_prefix_cache
  std::string profile_dir;          // for /start_profile; empty: no profiling endpoints
};

struct ServeOptions {
  EngineOptions engine;
  // Engines of these options behind the one front end, each with CPUs and a KV cache of its own.
  int data_parallel = 1;
  int prefill_replicas = 0;  // of them: those that compute the others' prompts; fewer than all
  std::string host = "127.0.0.1";
  uint16_t port = 8000;  // 0: any free port
  // Names that clients use, the first one in answers and metrics; none: engine.model.
  std::vector<std::string> served_model_names;
  // Formats of calls and reasoning in answers: "auto" (by the chat template), "none", or a name.
  std::string tool_call_parser = "auto", reasoning_parser = "auto";
  // Jinja, in place of the model's own chat template; unset: that one.
  std::optional<std::string> chat_template;
  Json::Object template_kwargs;  // what every template is given unless a request says otherwise
  // Defaults for requests: in place of the model's generation_config.json (unset: that one), and
  // beside it, which counts more.
  std::optional<Json> generation_config;
  Json::Object generation_overrides;
  Json profile;       // that the settings come from: shown, never obeyed; null: none
  std::string trace;  // file that both processes write their spans to; empty: none
  FrontLimits limits;
  HttpRules http;
  FaultOptions faults;
  // Tests and measurements: instead of a model, an engine that gives every request this many tokens
  // per second.
  std::optional<double> stand_in_rate;
};

}  // namespace pinion
