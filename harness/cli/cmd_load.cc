// `pinion load`: a load generator for any server that speaks OpenAI's API. Exit 0 done, 1 if a
// request failed or nothing was measured, 2 bad usage.

#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <iostream>
#include <memory>

#include "engine/base/file.h"
#include "engine/base/strings.h"
#include "harness/cli/access_flags.h"
#include "harness/cli/commands.h"
#include "harness/cli/stop_request.h"
#include "harness/cli/usage_error.h"
#include "harness/stats/text.h"
#include "harness/trial/server_load.h"

namespace pinion::harness {
namespace {

struct LoadFlags {
  std::string url, workload = "chat", endpoint = "completions", ramp = "linear", save;
  std::optional<std::string> prompt_len, output_len, duration, timeout, cpus, extra_body;
  std::optional<std::string> slo_ttft, slo_tpot, slo_e2el;
  std::vector<std::string> goodput;
  std::optional<double> ramp_from, ramp_to;
  std::optional<int> shared_prefix, prefixes, turns, max_concurrency;
  bool obey_eos = false, json = false, detailed = false;
  LoadedServer server;
  LoadPlan plan = {.num_prompts = 100};
  AccessFlags access;
  std::string find;  // "rate" or "concurrency"
  std::optional<double> find_start, find_low, find_high;
  SloSearchOptions search;
};

template <typename T>
Status ReadDuration(const std::optional<std::string>& text, const char* flag, T& seconds) {
  if (!text) return {};
  PINION_ASSIGN(seconds, ParseDuration(*text, flag));
  return {};
}

// vLLM's "--goodput ttft:500 tpot:50", in milliseconds.
Status ReadGoodput(const std::vector<std::string>& texts, Slo& slo) {
  for (const std::string& text : texts) {
    const std::vector<std::string> parts = Split(text, ':');
    std::optional<double>* limit = parts[0] == "ttft"   ? &slo.ttft_s
                                   : parts[0] == "tpot" ? &slo.tpot_s
                                   : parts[0] == "e2el" ? &slo.e2el_s
                                                        : nullptr;
    const auto ms = parts.size() == 2 ? ParseDouble(parts[1], "--goodput")
                                      : Result<double>(Unexpected(Error{}));
    if (!limit || !ms || !(*ms > 0))
      return Fail(ErrorCode::kUsage, StrCat("--goodput '", text, "' is not a limit: give ttft:MS, ",
                                            "tpot:MS or e2el:MS, such as ttft:500 tpot:50"));
    *limit = *ms / 1e3;
  }
  return {};
}

Status ReadShape(const LoadFlags& flags, LoadPlan& plan) {
  WorkloadShape& shape = plan.shape;
  PINION_ASSIGN(shape, FindWorkload(flags.workload));
  if (flags.prompt_len) {
    PINION_ASSIGN(shape.prompt, ParseLengths(*flags.prompt_len, "--prompt-len"));
  }
  if (flags.output_len) {
    PINION_ASSIGN(shape.output, ParseLengths(*flags.output_len, "--output-len"));
    plan.answers = shape.output;
  }
  shape.shared_prefix = flags.shared_prefix.value_or(shape.shared_prefix);
  shape.prefixes = flags.prefixes.value_or(shape.prefixes);
  shape.turns = flags.turns.value_or(plan.dataset.empty() ? shape.turns : 1);
  return {};
}

Status ReadRamp(const LoadFlags& flags, std::optional<Ramp>& ramp) {
  if (!flags.ramp_from && !flags.ramp_to) return {};
  if (!flags.ramp_from || !flags.ramp_to)
    return Fail(ErrorCode::kUsage, "a ramp needs both --ramp-up-start-rps and --ramp-up-end-rps");
  ramp = Ramp{flags.ramp == "exponential", *flags.ramp_from, *flags.ramp_to};
  return {};
}

Result<LoadPlan> PlanFrom(const LoadFlags& flags) {
  LoadPlan plan = flags.plan;
  PINION_TRY(ReadShape(flags, plan));
  PINION_TRY(ReadRamp(flags, plan.arrivals.ramp));
  const int clients = flags.workload == "batch" ? plan.num_prompts : 8;
  plan.concurrency = flags.max_concurrency.value_or(plan.open_loop() ? 0 : clients);
  PINION_TRY(ReadDuration(flags.duration, "--duration", plan.stop_sending_s));
  return plan;
}

Result<LoadedServer> ServerFrom(const LoadFlags& flags) {
  LoadedServer server = flags.server;
  PINION_ASSIGN(server.url, ParseServerUrl(flags.url));
  PINION_ASSIGN(server.style.endpoint, ParseEndpoint(flags.endpoint));
  PINION_TRY(ReadDuration(flags.timeout, "--timeout", server.timeout_s));
  server.style.ignore_eos = !flags.obey_eos;
  server.access = flags.access.Resolve();
  if (!flags.extra_body) return server;
  PINION_ASSIGN(server.style.extra_body, Json::Parse(*flags.extra_body));
  if (!server.style.extra_body.is_object())
    return Fail(ErrorCode::kUsage, "--extra-body must be a JSON object, such as {\"top_k\":1}");
  return server;
}

Result<Slo> SloFrom(const LoadFlags& flags) {
  Slo slo;
  PINION_TRY(ReadDuration(flags.slo_ttft, "--slo-ttft", slo.ttft_s));
  PINION_TRY(ReadDuration(flags.slo_tpot, "--slo-tpot", slo.tpot_s));
  PINION_TRY(ReadDuration(flags.slo_e2el, "--slo-e2el", slo.e2el_s));
  PINION_TRY(ReadGoodput(flags.goodput, slo));
  return slo;
}

Result<LoadHooks> HooksFrom(const LoadFlags& flags) {
  LoadHooks hooks;
  hooks.interrupted = StopRequested;
  if (flags.cpus) {
    PINION_ASSIGN(hooks.cpus, ParseCpuList(*flags.cpus));
  }
  if (isatty(STDERR_FILENO))
    hooks.progress = [total = flags.plan.num_prompts](size_t completed, size_t failed,
                                                      double elapsed_s) {
      std::fprintf(stderr, "\r%zu of %d complete, %zu failed, %.0f s\033[K", completed, total,
                   failed, elapsed_s);
    };
  return hooks;
}

SloSearchOptions SearchOf(const LoadFlags& flags) {
  SloSearchOptions search = flags.search;
  search.whole = flags.find == "concurrency";
  search.low = flags.find_low.value_or(search.whole ? 1 : 0.01);
  search.high = flags.find_high.value_or(search.whole ? 4096 : 1000);
  search.start = flags.find_start.value_or(search.whole ? 4 : 1);
  return search;
}

Result<bool> RunSearch(const LoadFlags& flags, const LoadedServer& server, const LoadPlan& plan,
                       const Slo& slo, LoadHooks hooks) {
  const SloSearchOptions search = SearchOf(flags);
  PINION_TRY(Validate(search));
  hooks.progress = nullptr;
  int runs = 0;
  const auto told = [&](double load, const LevelRun& run) {
    std::fprintf(stderr, "run %d: %.4g %s: %zu of %zu good\n", ++runs, load,
                 search.whole ? "clients" : "requests/s", run.good, run.total);
  };
  PINION_ASSIGN(const SloReport report, FindLoadBoundary(server, plan, slo, search, hooks, told));
  const std::string json = ToJson(report).Dump(2) + "\n";
  if (!flags.save.empty()) PINION_TRY(WriteFile(flags.save, json));
  std::cout << (flags.json ? json : Render(report)) << std::flush;
  if (!std::cout) return Fail(ErrorCode::kIo, "cannot write the result to standard output");
  return report.boundary.pass.has_value();
}

Result<bool> RunLoadCommand(const LoadFlags& flags) {
  PINION_ASSIGN(LoadedServer server, ServerFrom(flags));
  PINION_ASSIGN(LoadPlan plan, PlanFrom(flags));
  PINION_ASSIGN(const Slo slo, SloFrom(flags));
  PINION_ASSIGN(const LoadHooks hooks, HooksFrom(flags));
  if (!flags.save.empty()) PINION_TRY(CheckWritable(flags.save));
  if (!flags.find.empty()) PINION_TRY(Validate(SearchOf(flags)));
  // The first Ctrl-C ends the load and reports the results so far; a second one ends it at once.
  CatchStopRequests({SIGINT, SIGTERM});
  PINION_TRY(PrepareLoad(server, plan, hooks));
  if (!flags.find.empty()) return RunSearch(flags, server, plan, slo, hooks);
  PINION_ASSIGN(const LoadReport report, SendLoad(server, plan, slo, hooks));
  if (hooks.progress) std::fprintf(stderr, "\r\033[K");
  const std::string json = ToJson(report, flags.detailed).Dump(2) + "\n";
  if (!flags.save.empty()) PINION_TRY(WriteFile(flags.save, json));
  std::cout << (flags.json ? json : Render(report)) << std::flush;
  if (!std::cout) return Fail(ErrorCode::kIo, "cannot write the result to standard output");
  const auto& requests = report.result.requests;
  return !requests.empty() && std::all_of(requests.begin(), requests.end(),
                                          [](const auto& request) { return request.complete(); });
}

void AddWhat(CLI::App& command, LoadFlags& flags) {
  LoadPlan& plan = flags.plan;
  command
      .add_option("--workload", flags.workload,
                  "kind of requests: chat, rag (a long shared prefix), code, summarise or batch")
      ->capture_default_str();
  command.add_option("--prompt-len", flags.prompt_len,
                     "tokens per prompt: 256, lognormal:MEDIAN,SIGMA or uniform:LOW,HIGH "
                     "(default: the workload's)");
  command.add_option("--output-len", flags.output_len,
                     "tokens per answer, in the same forms "
                     "(default: the workload's)");
  command.add_option("--shared-prefix", flags.shared_prefix,
                     "tokens that all prompts begin with (default: the workload's)");
  command.add_option("--prefixes", flags.prefixes,
                     "number of different shared prefixes (default: the workload's)");
  command.add_option("--turns", flags.turns,
                     "questions of a conversation, one after the other (default: the workload's)");
  command
      .add_option("--dataset", plan.dataset, "take conversations from this ShareGPT file instead")
      ->check(CLI::ExistingFile);
  command
      .add_option("--trace", plan.trace,
                  "take times and lengths from this trace (JSON lines or CSV) instead")
      ->check(CLI::ExistingFile);
  command
      .add_option("--num-prompts", plan.num_prompts,
                  "conversations to send, one request for each turn")
      ->capture_default_str();
  command.add_option("--seed", plan.seed, "seed of texts, lengths and times")
      ->check(Unsigned())
      ->capture_default_str();
}

void AddWhen(CLI::App& command, LoadFlags& flags) {
  LoadPlan& plan = flags.plan;
  command.add_option("--request-rate", plan.arrivals.rate,
                     "open loop: conversations per second, any real number, such as 0.05 "
                     "(default: a closed loop)");
  command
      .add_option(
          "--burstiness", plan.arrivals.burstiness,
          "open loop: burstiness of arrivals; 1 is Poisson, below 1 burstier, inf all gaps equal")
      ->capture_default_str();
  command
      .add_option("--ramp-up-strategy", flags.ramp,
                  "open loop: how the rate changes from start to end, linear or exponential")
      ->check(CLI::IsMember({"linear", "exponential"}))
      ->capture_default_str();
  command.add_option("--ramp-up-start-rps", flags.ramp_from,
                     "open loop: rate of the first request [1/s]");
  command.add_option("--ramp-up-end-rps", flags.ramp_to,
                     "open loop: rate of the last request [1/s]");
  command.add_option("--max-concurrency", flags.max_concurrency,
                     "closed loop: clients (default 8; workload batch: all at once); open loop: "
                     "most conversations at a time");
  command.add_option("--duration", flags.duration,
                     "send no requests after this time, such as 60s (default: no limit)");
}

void AddHow(CLI::App& command, LoadFlags& flags) {
  RequestStyle& style = flags.server.style;
  command.add_option("--endpoint", flags.endpoint, "the server's endpoint: completions or chat")
      ->capture_default_str();
  command.add_option("--model", style.model,
                     "model name in the requests (default: the server's first model)");
  command
      .add_option("--temperature", style.temperature,
                  "the server's sampling temperature; 0 is greedy")
      ->capture_default_str();
  command.add_flag("--obey-eos", flags.obey_eos,
                   "let answers end early (default: ignore_eos, answers of the requested length)");
  command.add_option("--extra-body", flags.extra_body, "further fields of every request, as JSON");
  command.add_option("--timeout", flags.timeout, "time for one request (default 600s)");
  command.add_option("--cpus", flags.cpus,
                     "CPUs for the generator, such as 0-3, ideally not the server's "
                     "(default: any)");
  command.add_option("--slo-ttft", flags.slo_ttft,
                     "SLO: longest time to the first token, such as 500ms (default: none)");
  command.add_option("--slo-tpot", flags.slo_tpot,
                     "SLO: longest mean time per later token, such as 50ms (default: none)");
  command.add_option("--slo-e2el", flags.slo_e2el,
                     "SLO: longest time to the last token, such as 5s (default: none)");
  command.add_option("--goodput", flags.goodput,
                     "the same limits in ms, in vLLM's form: ttft:500 tpot:50");
  command.add_option("--save", flags.save, "also write the JSON to this file");
  command.add_flag("--detailed", flags.detailed,
                   "with --json or --save: every request with all its times");
  command.add_flag("--json", flags.json,
                   "print JSON instead of text, with the keys of `vllm bench serve`");
}

void AddSearch(CLI::App& command, LoadFlags& flags) {
  const std::string group = "Search for the highest load that meets the SLO";
  const auto add = [&](const char* name, auto& value, const char* help) {
    return command.add_option(name, value, help)->group(group);
  };
  add("--find", flags.find, "quantity to raise: rate (open loop) or concurrency (closed loop)")
      ->check(CLI::IsMember({"rate", "concurrency"}));
  add("--attain", flags.search.attain, "share of the requests that must meet the SLO, above 0 to 1")
      ->capture_default_str();
  add("--find-start", flags.find_start, "first load to try (default 1 request/s, 4 clients)");
  add("--find-low", flags.find_low, "lowest load to try (default 0.01 requests/s, 1 client)");
  add("--find-high", flags.find_high,
      "highest load to try (default 1000 requests/s, 4096 clients)");
  add("--resolution", flags.search.resolution,
      "stop when the failing load is at most this fraction above the passing one")
      ->capture_default_str();
  add("--repeats", flags.search.repeats, "runs needed at the passing and the failing load")
      ->capture_default_str();
  add("--max-runs", flags.search.max_runs, "runs in all, each of --num-prompts requests")
      ->capture_default_str();
}

std::string Footer() {
  std::string text = "The metrics:\n";
  for (const auto& [name, formula] : LoadFormulas()) text += Left("  " + name, 28) + formula + "\n";
  return text +
         "Percentiles are given if the sample supports them: p90 from 44 samples on, p95 from "
         "90, p99 from 459.\nProxies are those of http_proxy, https_proxy, all_proxy and no_proxy; "
         "servers "
         "of this machine are asked directly.\n";
}

}  // namespace

void AddLoad(CLI::App& app, int& exit_code) {
  auto flags = std::make_shared<LoadFlags>();
  auto* command = app.add_subcommand("load", "Load any OpenAI-compatible server and measure it");
  command->add_option("URL", flags->url, "base URL, such as http://127.0.0.1:8000 or https://host")
      ->required();
  AddWhat(*command, *flags);
  AddWhen(*command, *flags);
  AddHow(*command, *flags);
  flags->access.AddTo(*command);
  AddSearch(*command, *flags);
  command->footer(Footer());
  command->callback([flags, &exit_code] { exit_code = ExitCodeOf(RunLoadCommand(*flags)); });
}

}  // namespace pinion::harness
