// `pinion sweep`: finds the best settings. Exit 0 done (or all that fits the budget), 1 failed or
// interrupted, 2 bad usage.

#include <signal.h>

#include <iostream>
#include <memory>

#include "engine/base/process.h"
#include "engine/base/strings.h"
#include "harness/cli/commands.h"
#include "harness/cli/stop_request.h"
#include "harness/cli/sweep_definition.h"
#include "harness/cli/sweep_flags.h"
#include "harness/cli/sweep_fleet.h"
#include "harness/cli/sweep_prediction.h"
#include "harness/cli/usage_error.h"
#include "harness/counters/counters.h"
#include "harness/profile/command.h"
#include "harness/report/export.h"
#include "harness/report/live_table.h"
#include "harness/report/page.h"
#include "harness/report/summary.h"
#include "harness/report/write.h"
#include "harness/sweep/folder.h"
#include "harness/sweep/gather.h"
#include "harness/sweep/load.h"
#include "harness/sweep/provenance.h"
#include "harness/sweep/state.h"
#include "harness/sweep/sweep.h"
#include "harness/watch/server.h"
#include "harness/watch/watched.h"

namespace pinion::harness {
namespace {

// Removes objectives that cannot be measured here and says why; an error if none is left.
Result<std::vector<std::string>> TakeUnavailable(Definition& definition) {
  std::string why;
  for (const CounterReading& reading : ExamineCounters({}))
    if (std::string_view(reading.quantity) == "energy") why = reading.unavailable;
  std::vector<std::string> unavailable;
  if (why.empty()) return unavailable;
  for (const Objective objective : {Objective::kEnergy, Objective::kCost})
    if ((objective == Objective::kEnergy || definition.price_per_kwh) &&
        std::erase(definition.objectives, objective) > 0)
      unavailable.push_back(StrCat(Name(objective), ": not available, because ", why));
  if (definition.objectives.empty()) return Fail(ErrorCode::kUnsupported, unavailable.front());
  return unavailable;
}

struct RequestedSweep {
  std::string folder;
  bool resumes = false;
  SweepMeta meta;
};

// The sweep that the flags ask for, in `folder`, which holds one already if it `resumes`.
Result<RequestedSweep> AskIn(const SweepFlags& flags, const std::string& folder, bool resumes) {
  std::optional<SweepMeta> stored;
  EngineOptions base;
  base.has_frontend = true;  // plan as `launch` does, which starts a front end beside the engine
  if (resumes) {
    PINION_ASSIGN(stored, StoredSweep(folder));
    base = stored->base;
  } else if (HoldsSweep(folder)) {
    return Fail(
        ErrorCode::kUsage,
        StrCat(folder,
               " already holds a sweep: continue it with --resume, or choose another --out"));
  }
  PINION_ASSIGN(base, flags.engine.Resolve(base));
  PINION_ASSIGN(const Host host, Host::This());
  Definition definition;
  if (stored && flags.definition_file.empty() && !flags.quick) {
    definition = stored->definition;
  } else {
    PINION_ASSIGN(definition, DefinitionFrom(flags, base, host));
  }
  PINION_TRY(ApplyFlags(flags, base, definition));
  PINION_ASSIGN(std::vector<std::string> unavailable, TakeUnavailable(definition));
  for (const std::string& sentence : unavailable) std::cerr << sentence << std::endl;
  // As it can be typed again: a word may be JSON, or have blanks.
  const std::string command_line = ShellText(Command{{}, OwnWords()});
  PINION_ASSIGN(SweepMeta meta, DescribeSweep(definition, base, host, command_line));
  meta.unavailable = stored ? stored->unavailable : std::move(unavailable);
  if (stored && flags.probe.empty()) {
    meta.predictions = stored->predictions;
  } else if (!flags.probe.empty()) {
    PINION_ASSIGN(meta.predictions, PredictionsFor(flags, definition, base, host));
  }
  return RequestedSweep{folder, resumes, std::move(meta)};
}

// Why this machine cannot continue the sweep in the folder; empty if it can. An error if the two
// could not be gathered either.
Result<std::string> Obstacle(const std::string& folder, const SweepMeta& stored, SweepMeta asked) {
  asked = WithProvenance(std::move(asked));
  const std::string here = NodeName();
  const Json* name = stored.provenance.is_object() ? stored.provenance.Find("node") : nullptr;
  const std::string there = name && name->is_string() ? name->string() : here;
  const Status same = CheckSame(stored, asked);
  if (same && there == here) return std::string();
  PINION_TRY(CheckOneKind(folder, stored, asked));
  return same ? StrCat("it was measured on ", there, ", and this is ", here) : same.error().message;
}

// With --continue: the sweep in the folder, or the next one beside it, that this machine began
// under the same circumstances; a new one if there is none. A pod that starts again may have other
// CPUs, or be on another machine, and then it is another block of the experiment.
Result<RequestedSweep> Continue(const SweepFlags& flags, const std::string& folder) {
  for (int number = 1;; ++number) {
    const std::string own = BlockFolder(folder, number);
    if (!HoldsSweep(own)) return AskIn(flags, own, false);
    PINION_ASSIGN(RequestedSweep asked, AskIn(flags, own, true));
    PINION_ASSIGN(const SweepMeta stored, StoredSweep(own));
    PINION_ASSIGN(const std::string obstacle, Obstacle(own, stored, asked.meta));
    if (obstacle.empty()) return asked;
    std::cerr << own << " is left as it is: " << obstacle << std::endl;
  }
}

Result<RequestedSweep> Ask(const SweepFlags& flags) {
  PINION_ASSIGN(const EngineOptions named, flags.engine.Resolve({}));
  const std::string folder = flags.out.empty() ? DefaultFolder(named.model) : flags.out;
  return flags.continued ? Continue(flags, folder) : AskIn(flags, folder, flags.resume);
}

Status RunReplay(const SweepFlags& flags) {
  Definition definition;
  EngineOptions base;
  base.model = "recording";  // no model runs, but the check of the flags wants a name
  PINION_ASSIGN(base, flags.engine.Resolve(base));
  PINION_TRY(ApplyFlags(flags, base, definition));
  return RunReplayCommand(flags.replay, definition, flags.budget ? definition.budget_s : 0,
                          flags.json);
}

// The report's page and results.json, as they are so far.
Result<PageViews> ReportViews(const std::string& folder) {
  PINION_ASSIGN(const std::string place, FindPageParts());
  PINION_ASSIGN(PageParts read, ReadPageParts(place));
  const auto parts = std::make_shared<const PageParts>(std::move(read));
  PageViews views;
  views.page = [folder, parts](const Results& results) {
    return ReportPage(results, folder, *parts, true);
  };
  views.json = [folder](const Results& results) { return ReportText(results, folder, "json"); };
  views.update = [folder, parts](const Results& results) {
    Json update = PageCharts(results, *parts), sections = Json::MakeObject();
    for (const auto& [name, markup] : PageSections(results, folder, true))
      sections.Set(name, markup);
    update.Set("sections", std::move(sections));
    return update;
  };
  return views;
}

Status RunSweepCommand(const SweepFlags& flags) {
  if (flags.replay.given()) return RunReplay(flags);
  if (flags.plan || !flags.machine.empty()) return PrintPlan(flags);
  PINION_TRY(CheckStated(flags));
  if (!flags.launcher.empty()) return RunFleet(flags);
  PINION_ASSIGN(RequestedSweep asked, Ask(flags));
  // The first Ctrl-C or SIGTERM ends the sweep in order; a second one ends it at once.
  CatchStopRequests({SIGINT, SIGTERM});
  SweepRequest request;
  request.folder = asked.folder;
  request.resume = asked.resumes;
  request.meta = std::move(asked.meta);
  request.binary = SelfPath();
  request.interrupted = StopRequested;
  SweepEnd end = SweepEnd::kInterrupted;
  std::unique_ptr<WatchServer> server;
  if (flags.watched()) {
    PINION_ASSIGN(PageViews views, ReportViews(asked.folder));
    PINION_ASSIGN(server,
                  WatchServer::Start(asked.folder, std::move(views),
                                     flags.watch_port.empty() ? 0 : flags.watch_port.front()));
    std::cerr << "watch it at http://127.0.0.1:" << server->port() << "/" << std::endl;
  }
  {
    WatchedProgress progress(asked.folder, LiveTable, server.get());
    PINION_ASSIGN(end, RunSweep(request, progress));
  }
  if (server) server->Tell(IsFinished(end) ? "finished" : "interrupted", true);
  PINION_ASSIGN(const Results results, LoadResults(asked.folder));
  const Status written = WriteOutputs(results, asked.folder);
  std::cout << (flags.json ? ResultsJson(results, asked.folder).Dump(2) + "\n"
                           : SummaryText(results, asked.folder))
            << std::flush;
  PINION_TRY(written);
  if (IsFinished(end)) return {};
  const char* why = end == SweepEnd::kInterrupted ? "interrupted" : "the defaults fail";
  return Fail(ErrorCode::kFailed, StrCat(why, "; all finished trials are in ", asked.folder,
                                         "/results.db, and --resume continues"));
}

}  // namespace

void AddSweep(CLI::App& app, int& exit_code) {
  auto flags = std::make_shared<SweepFlags>();
  auto* command =
      app.add_subcommand("sweep", "Find the fastest settings for a model on this machine");
  flags->AddTo(*command);
  command->callback([flags, &exit_code] { exit_code = ExitCodeOf(RunSweepCommand(*flags)); });
}

}  // namespace pinion::harness
