#include "harness/cli/sweep_flags.h"

#include "engine/base/strings.h"
#include "engine/run/replicas.h"
#include "harness/space/engine_choice.h"

namespace pinion::harness {

void SweepFlags::AddTo(CLI::App& command) {
  command.footer(
      "Runs in rounds: each measures every configuration once, in random order, and the defaults\n"
      "twice. Fresh rounds then compare the best, at most three, with the defaults.\n"
      "  pinion sweep preset:qwen2.5-0.5b --quick            # 10 minutes, random weights\n"
      "  pinion sweep org/name --budget 1h --watch           # with the report in a browser\n"
      "  pinion sweep DIR --slo ttft=500ms,tpot=50ms --objectives goodput\n"
      "Every trial starts the server that `pinion launch` would start. Concurrency and rate vary "
      "inside a trial; everything else makes a configuration of its own, even the step budget "
      "(max_num_batched_tokens), which sizes workspace and KV at start.");
  engine.AddTo(command);
  command.get_option("MODEL")->required(false);  // a replay needs none
  AddJob(command);
  const struct {
    const char* name;
    void (SweepFlags::*add)(CLI::App&);
    bool of_replays;  // or of engines alone
  } kGroups[] = {{"Load", &SweepFlags::AddLoad, false},
                 {"Search", &SweepFlags::AddSearch, true},
                 {"Prediction", &SweepFlags::AddPrediction, false},
                 {"Several nodes", &SweepFlags::AddFleet, false}};
  for (const auto& group : kGroups) {
    command.option_defaults()->group(group.name);
    (this->*group.add)(command);
  }
  replay.AddTo(command);
  CLI::Option* replayed = command.get_option("--replay");
  for (const char* of_engines :
       {"--def", "--quick", "--engine", "--out", "--resume", "--watch", "--slo", "--price-per-hour",
        "--price-per-kwh", "--max-memory", "--max-cores"})
    replayed->excludes(command.get_option(of_engines));
  for (const auto& group : kGroups)
    for (CLI::Option* option : command.get_options([&](const CLI::Option* option) {
           return !group.of_replays && option->get_group() == group.name;
         }))
      replayed->excludes(option);
  // No engine runs; the seed is that of the first replay.
  replayed->excludes(command.get_option("MODEL"));
  for (CLI::Option* option : command.get_options([](const CLI::Option* option) {
         return option->get_group() == "Engine" && !option->check_name("--seed");
       }))
    replayed->excludes(option);
}

void SweepFlags::AddJob(CLI::App& command) {
  std::vector<std::string> known = EngineNames();
  std::erase(known, Name(EngineChoice::Kind::kCommand));
  command
      .add_option(
          "--engine", engines,
          StrCat(
              "an engine of the race: ", Join(known, ", "),
              ", or, as JSON, any command that serves OpenAI's API, "
              "{\"command\":[\"./server\",\"--port\",\"{port}\"]}; give it again for each further "
              "engine, all are compared with the first one's defaults (default pinion)"))
      ->allow_extra_args(false);
  command
      .add_option(
          "--def", definition_file,
          "sweep definition (profiles/sweep.schema.json); default: one that suits this machine")
      ->check(CLI::ExistingFile);
  command.add_flag("--quick", quick,
                   "a first look: at most 6 configurations, 6 rounds, 10 minutes and a light load");
  command.add_option("--budget", budget,
                     "time for the whole sweep, such as 10m or 2h (default 30m)");
  command.add_option("--out", out,
                     "folder for report, profiles and results.db (default out/MODEL)");
  command.add_flag("--resume", resume, "continue the sweep in the folder, which was stopped");
  watch_ = command
               .add_option("--watch", watch_port,
                           "show the growing report in a browser, on this port of "
                           "127.0.0.1 (default: any free one)")
               ->expected(0, 1)
               ->type_name("[PORT]");
  command.add_flag("--json", json, "print results.json instead of text");
}

void SweepFlags::AddLoad(CLI::App& command) {
  command.add_option("--workload", workload,
                     "chat, rag (a long shared prefix), code, summarise or batch: lengths spread "
                     "as in practice (default: all of the same length)");
  command.add_option("--prompt-len", prompt_len,
                     "tokens per prompt; with --workload the median (default 256; --quick 128)");
  command.add_option(
      "--output-len", output_len,
      "tokens per answer; the end-of-text token does not end it (default 64; --quick 32)");
  command
      .add_option(
          "--concurrency", concurrency,
          "numbers of concurrent clients, each number a load of its own: a client sends its "
          "next request when the last is answered (default 1,8; --quick 1,4)")
      ->delimiter(',');
  command
      .add_option("--request-rate", request_rate,
                  "requests/s, each rate a load of its own: requests come at random times, whether "
                  "or not earlier ones are answered (default: none)")
      ->delimiter(',');
  command
      .add_option("--replicas", replicas,
                  "engines behind one front end (serve --data-parallel-size), such as 1,2: each "
                  "with its own CPUs (--threads-bind lists: one per rank of every engine), weights "
                  "and --kv-cache-space")
      ->delimiter(',')
      ->check(CLI::Range(1, kMaxReplicas));
  command.add_option(
      "--num-prompts", num_prompts,
      "prompts of the batch (default 16; --quick 4); reduced if the defaults cannot "
      "finish that many in one trial, unless --trial-limit or --quick sets its limit");
  command.add_flag_function(
      "--batch,!--no-batch", [this](int64_t given) { batch = given > 0; },
      "with or without an offline batch, all prompts at once (default: with one if an objective "
      "needs it, or there is no other load)");
}

void SweepFlags::AddSearch(CLI::App& command) {
  command
      .add_option(
          "--objectives", objectives,
          "throughput, latency, balanced (default: these three), "
          "goodput, cores (fewest, within cores_within of the throughput), energy, cost; or a "
          "latency at one of the loads, such as itl_p95@8 (clients) or itl_p95@2.5rps (requests): "
          "ttft, ttft_p95, tpot, itl, itl_p95, e2el, e2el_p95")
      ->delimiter(',');
  command.add_option("--price-per-hour", price_per_hour,
                     "price of the machine per hour, in any currency, for objective cost");
  command.add_option("--price-per-kwh", price_per_kwh,
                     "price of a kWh; the energy that the counters measure is added to the cost");
  command
      .add_option(
          "--slo", slo,
          "limits on ttft, tpot or e2el, such as ttft=500ms,tpot=50ms: every trial searches "
          "for goodput, the most requests/s (load=concurrency: clients) at which a share of "
          "attain=0.9 meets them; a search takes minutes with a real model: set "
          "--trial-limit to match")
      ->delimiter(',');
  command.add_option(
      "--max-memory", max_memory,
      "most peak memory, such as 8GiB; configurations that need more are disqualified");
  command
      .add_option("--max-cores", max_cores,
                  "most threads; configurations that use more are disqualified")
      ->check(CLI::Range(1, 1 << 16));
  command.add_option("--rounds", rounds,
                     "most rounds (default 20; --quick 6); a race ends earlier if no remaining "
                     "configuration can be "
                     "better");
  command.add_option("--trial-limit", trial_limit,
                     "time for one trial, such as 20s: its load is cut to end by then, but may "
                     "last as long as the "
                     "start took (default: a limit that lets the rounds fit the budget)");
  command.add_option("--search,--strategy", strategy,
                     "racing: drop configurations that cannot win; grid: drop none; random: race a "
                     "random subset; coordinate: vary one setting at a time; halving: measure the "
                     "better half twice as long, again and again; tpe: measure the proposals of "
                     "Optuna's model, for spaces too large to measure; pair: two configurations "
                     "and one objective, "
                     "judged as `pinion compare` does (default racing)");
  command.add_option("--epsilon", epsilon,
                     "smallest difference worth having, a fraction (default 0.02)");
}

void SweepFlags::AddPrediction(CLI::App& command) {
  command
      .add_option(
          "--probe", probe,
          "output of `pinion probe --out FILE`: predict every configuration, measure the most "
          "promising first, and skip those that cannot win")
      ->check(CLI::ExistingFile);
  auto* only_plan = command.add_flag(
      "--plan", plan, "print the configurations to try, in which order and why, and run nothing");
  for (const char* run : {"--resume", "--watch", "--out"})
    only_plan->excludes(command.get_option(run));
  command.add_option(
      "--machine", machine,
      "plan for another machine: an .xml file that lstopo wrote, or hwloc's form, such as "
      "\"pack:2 numa:3 core:19 pu:2\"; predicts from stated limits, or from --probe, scaled "
      "by cores");
  command.add_option("--node-bandwidth", node_bandwidth,
                     "with --plan or --machine: memory bandwidth of a NUMA node, such as 300GB/s");
  command
      .add_option("--memory-channels", memory_channels,
                  "instead of --node-bandwidth: memory channels of a socket x their speed in MT/s, "
                  "such as 12x6400")
      ->excludes("--node-bandwidth");
  command.add_option("--core-peak", core_peak,
                     "with --plan or --machine: bfloat16 arithmetic of one core on the fastest ISA "
                     "path, such as 200GFLOP/s (default: its vector width at 2 GHz)");
}

void SweepFlags::AddFleet(CLI::App& command) {
  auto* fleet = command
                    .add_option("--launcher", launcher,
                                "run the same sweep on several nodes of one kind, each by itself, "
                                "and join their trials: slurm (job steps of an allocation, "
                                "which is requested if there is none yet) or k8s (a Job for each)")
                    ->check(CLI::IsMember({"slurm", "k8s"}));
  command.add_option("--nodes", nodes, "with --launcher: how many nodes")
      ->check(CLI::Range(1, 10'000))
      ->needs(fleet);
  fleet->needs(command.get_option("--nodes"));
  command
      .add_flag("--manifest", manifest,
                "with --launcher k8s: print the Jobs as YAML for kubectl apply")
      ->needs(fleet);
  command
      .add_option("--image", image,
                  "with --manifest: the container image, see Containerfile (default: pinion)")
      ->needs(fleet);
  command.add_option("--node-cpus", node_cpus, "with --manifest: whole CPUs of each pod")
      ->needs(fleet);
  command.add_option("--node-memory", node_memory, "with --manifest: memory of each pod: 64Gi")
      ->needs(fleet);
  command.add_flag(
      "--continue", continued,
      "continue the sweep in the folder if there is one that this machine can continue, "
      "else begin it, in FOLDER-2 if the folder holds one of another machine of the kind");
  for (const char* run : {"--plan", "--watch", "--json"}) fleet->excludes(command.get_option(run));
}

}  // namespace pinion::harness
