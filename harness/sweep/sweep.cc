#include "harness/sweep/sweep.h"

#include <algorithm>
#include <iterator>

#include "engine/base/strings.h"
#include "engine/base/version.h"
#include "engine/checkpoint/model.h"
#include "engine/run/start.h"
#include "engine/spec/attention_spec.h"
#include "harness/engines/command.h"
#include "harness/space/own_settings.h"
#include "harness/sweep/divergence.h"
#include "harness/sweep/engine_files.h"
#include "harness/sweep/folder.h"
#include "harness/sweep/live.h"
#include "harness/sweep/proposer.h"
#include "harness/sweep/provenance.h"
#include "harness/sweep/schedule.h"

namespace pinion::harness {
namespace {

Json BudgetJson(const Budget& budget) {
  return Json::Object{{"cpus", Json(budget.cpus)},
                      {"cpu_quota", budget.cpu_quota ? Json(*budget.cpu_quota) : Json()},
                      {"max_threads", budget.max_threads},
                      {"memory_total_bytes", budget.memory_total_bytes},
                      {"reasons", Json(budget.reasons)}};
}

// Another engine's model may be one that Pinion cannot read, and then there is no spec.
Result<DecoderSpec> SpecOf(const std::string& model, const EngineChoice& engine) {
  auto files = FindModel(model);
  if (files) return files->spec;
  if (engine.is_pinion()) return Unexpected(std::move(files).error());
  return DecoderSpec();
}

// The engines' own settings that candidates have.
std::vector<Setting> OwnSettings(const Definition& definition) {
  std::vector<Setting> own;
  for (const Axis& axis : definition.axes)
    for (const Json& value : axis.values)
      if (IsOwnKey(axis.key))
        if (const auto one = ReadOwnSetting(axis.key, value); one && *one) own.push_back(**one);
  for (const Json& listed : definition.candidates)
    if (const auto settings = SettingsOf(listed))
      std::copy_if(settings->begin(), settings->end(), std::back_inserter(own),
                   [](const Setting& setting) { return IsOwnKey(setting.key); });
  return own;
}

// Fails early on problems that would keep every candidate of an engine from starting, and on
// unknown placeholders in any candidate.
Status CheckStartable(const Definition& definition, const EngineChoice& engine, EngineOptions base,
                      const Host& host) {
  if (!engine.model.empty()) base.model = engine.model;
  if (!engine.binary.empty() && access(engine.binary.c_str(), X_OK) != 0)
    return Fail(ErrorCode::kUsage, StrCat("the engine ", engine.name, " has the binary ",
                                          engine.binary, ", which is not an executable program"));
  PINION_ASSIGN(const Plan plan, PlanFor(base, host.machine, host.budget));
  const EngineChoice with_all = WithOwnSettings(engine, OwnSettings(definition));
  PINION_TRY(CommandFor(with_all, {base}, plan, host.machine, 0));
  return {};
}

// Those that compute a token: of a layer's experts, as many as a token chooses.
uint64_t ActiveParameters(const DecoderSpec& spec) {
  const bool is_gated = !spec.names.expert_gate.empty() || !spec.names.experts_gate_up.empty();
  const auto sparse_layers =
      std::count_if(spec.layer_specs.begin(), spec.layer_specs.end(),
                    [](const LayerSpec& layer) { return layer.mlp == MlpKind::kExperts; });
  const auto idle = static_cast<uint64_t>(spec.moe.router.experts - spec.moe.router.top_k);
  return ParameterCount(spec) - static_cast<uint64_t>(sparse_layers) * idle * (is_gated ? 3 : 2) *
                                    static_cast<uint64_t>(spec.hidden) *
                                    static_cast<uint64_t>(spec.moe.intermediate);
}

// Bytes as Pinion's engine holds them under the baseline's options.
Result<Json> ModelFacts(const EngineOptions& base) {
  PINION_ASSIGN(const PlannedModel model, PlanModel(base));
  PINION_ASSIGN(const DecoderOptions decoder, DecoderOptionsFor(base, model.formats));
  PINION_ASSIGN(const std::vector<RankNeeds> needs, NeedsFor(base, model));
  uint64_t weight_bytes = 0;
  for (const RankNeeds& rank : needs) weight_bytes += rank.weights;
  return Json::Object{{"architecture", model.spec.architecture},
                      {"parameters", ParameterCount(model.spec)},
                      {"active_parameters", ActiveParameters(model.spec)},
                      {"context_length", model.spec.max_positions},
                      {"weight_bytes", weight_bytes},
                      {"kv_bytes_per_token", KvBytesPerToken(model.spec, decoder.cached())}};
}

Result<double> TrialLimit(Store& store, const SweepMeta& meta, size_t contestants) {
  PINION_ASSIGN(const std::optional<double> stored, ReadTrialLimit(store));
  const double limit_s = stored.value_or(TrialLimitSeconds(meta.definition, contestants));
  PINION_TRY(WriteTrialLimit(store, limit_s));
  return limit_s;
}

// [{"candidate","label","reason"}]: the candidates that predictions ruled out.
Json PrunedJson(const ProtocolState& state, const std::vector<CandidateRow>& candidates) {
  Json list = Json::MakeArray();
  for (const auto* reasons : {&state.pruned, &state.passed_over})
    for (const auto& [id, reason] : *reasons)
      list.Append(Json::Object{
          {"candidate", id}, {"label", RowOf(candidates, id).label}, {"reason", reason}});
  return list;
}

// After a sweep that ended because the baseline failed, --resume must not end at once: those trials
// are measured again.
void ForgetLastFailuresOfBaseline(std::vector<TrialRow>& trials) {
  if (!HasFailed(trials, 0)) return;
  size_t last_run = 0;  // the number of trials up to the baseline's last success
  for (size_t i = 0; i < trials.size(); ++i)
    if (trials[i].candidate == 0 && trials[i].ok) last_run = i + 1;
  const auto is_failure = [](const TrialRow& trial) { return trial.candidate == 0 && !trial.ok; };
  trials.erase(
      std::remove_if(trials.begin() + static_cast<ptrdiff_t>(last_run), trials.end(), is_failure),
      trials.end());
}

// The model of a strategy that has one.
Result<std::unique_ptr<Proposer>> ProposerFor(const Definition& definition,
                                              const std::vector<CandidateRow>& candidates,
                                              const std::function<bool()>& interrupted) {
  if (definition.strategy != Strategy::kTpe) return nullptr;
  return StartTpe(candidates,
                  [interrupted] { return std::string(interrupted() ? "interrupted" : ""); });
}

// The experiment on the engine. The caller has opened the store and holds the folder.
Result<SweepEnd> RunLive(const SweepRequest& request, const SweepMeta& meta, Store& store,
                         Proposer* proposer, Progress& progress) {
  PINION_ASSIGN(const std::vector<CandidateRow> candidates, store.Candidates());
  PINION_ASSIGN(std::vector<TrialRow> trials, store.Trials());
  ForgetLastFailuresOfBaseline(trials);
  for (const CandidateRow& row : candidates)
    if (!row.infeasible.empty())
      progress.Note(StrCat("left out: ", row.label, ": ", row.infeasible));
  if (Feasible(candidates).size() == 1)
    progress.Note(
        "only the defaults are measured, with which nothing is compared: for a search, "
        "give other configurations in 'axes' or 'candidates'");
  LiveOptions options;
  options.folder = request.folder;
  options.binary = request.binary;
  options.interrupted = request.interrupted;
  options.clock = request.clock;
  options.proposer = proposer;
  options.batch_prompts = meta.definition.workload.load.num_prompts;
  const size_t contestants = Feasible(candidates).size() + 1;
  PINION_ASSIGN(options.trial_limit_s, TrialLimit(store, meta, contestants));
  options.most_search_s = MostSearchSeconds(meta.definition, contestants);
  PINION_TRY(WriteProgress(store, {NowIso8601(), meta.definition.rounds, false}));
  LiveSource source(options, meta, candidates, trials, store, progress);
  const Forecasts forecasts =
      ForecastsFrom(meta.predictions, candidates, meta.definition.objectives, meta.definition);
  Protocol protocol(meta.definition, candidates, forecasts, source, progress);
  PINION_ASSIGN(const SweepEnd end, protocol.Run());
  PINION_TRY(store.SetMeta("pruned", PrunedJson(protocol.state(), candidates)));
  PINION_TRY(
      WriteProgress(store, {NowIso8601(), protocol.state().rounds_planned, IsFinished(end)}));
  return end;
}

Result<std::vector<CandidateRow>> NewCandidates(const SweepMeta& meta) {
  PINION_ASSIGN(const Host host, Host::This());
  PINION_ASSIGN(const DecoderSpec spec, SpecOf(meta.model, meta.definition.engines.front()));
  PINION_ASSIGN(const std::vector<Point> points, Expand(meta.definition, meta.base, host, spec));
  std::vector<CandidateRow> rows;
  for (const Point& point : points) rows.push_back(RowOf(point, static_cast<int>(rows.size())));
  return rows;
}

Json ProvenanceOf(const SweepMeta& meta) {
  const auto model = FindModel(meta.model);  // may fail for another engine's model
  const bool in_folder = model && !model->folder.empty();
  const Json* cpus = meta.budget.Find("cpus");
  const size_t allowed = cpus && cpus->is_array() ? cpus->array().size() : 1;
  Json provenance =
      Provenance(meta.model, in_folder ? model->folder : meta.model, static_cast<int>(allowed));
  provenance.Set("engines", EngineFiles(meta.definition));
  return provenance;
}

// One of two cannot be compared with nothing, however long it is measured.
Status CheckPair(const Definition& definition, const std::vector<CandidateRow>& rows) {
  if (definition.strategy != Strategy::kPair) return {};
  for (const CandidateRow& row : rows)
    if (!row.infeasible.empty())
      return Fail(ErrorCode::kFailed,
                  StrCat("there is nothing to compare: ", row.label, ": ", row.infeasible));
  return {};
}

Result<SweepEnd> StartSweep(const SweepRequest& request, Progress& progress) {
  if (HoldsSweep(request.folder))
    return Fail(ErrorCode::kUsage, StrCat(request.folder,
                                          " already holds a sweep: continue it with "
                                          "--resume, or choose another --out"));
  // Before anything is written, so that a sweep that cannot run leaves no folder behind.
  PINION_ASSIGN(std::vector<CandidateRow> rows, NewCandidates(request.meta));
  const Definition& definition = request.meta.definition;
  DivergenceCheck check{request.binary, request.interrupted};
  check.limit_s = std::max(check.limit_s, definition.budget_s);
  check.clock = request.clock;
  PINION_TRY(CheckDivergence(check, definition, request.meta.base, progress, rows));
  PINION_TRY(CheckPair(definition, rows));
  PINION_ASSIGN(const auto proposer, ProposerFor(definition, rows, request.interrupted));
  PINION_ASSIGN(const auto folder, SweepFolder::Hold(request.folder));
  SweepMeta meta = request.meta;
  meta.provenance = ProvenanceOf(meta);
  // Warn before the budget is spent, not after.
  if (const std::string busy = LoadWarning(meta.provenance); !busy.empty()) progress.Note(busy);
  PINION_ASSIGN(const auto store, Store::Create(folder.Database(), [&](Store& made) -> Status {
                  PINION_TRY(WriteMeta(made, meta));
                  return made.PutCandidates(rows);
                }));
  return RunLive(request, meta, *store, proposer.get(), progress);
}

Result<SweepEnd> ResumeSweep(const SweepRequest& request, Progress& progress) {
  PINION_ASSIGN(const auto folder, SweepFolder::Hold(request.folder));
  PINION_ASSIGN(const auto store, Store::Open(folder.Database()));
  PINION_ASSIGN(SweepMeta meta, ReadMeta(*store));
  PINION_TRY(CheckSame(meta, WithProvenance(request.meta)));
  // Nothing is stored of a trial that ended with the budget, but that budget is spent.
  const Definition &stored = meta.definition, &asked = request.meta.definition;
  const bool has_grown = asked.budget_s > stored.budget_s || asked.rounds > stored.rounds;
  if (const auto state = ReadProgress(*store); state && state->finished && !has_grown) {
    progress.Note("this sweep is finished; a larger --budget or more --rounds let it go on");
    return SweepEnd::kDone;
  }
  meta.definition = request.meta.definition;  // budget and rounds may be new
  PINION_ASSIGN(const std::vector<CandidateRow> candidates, store->Candidates());
  PINION_ASSIGN(const auto proposer, ProposerFor(meta.definition, candidates, request.interrupted));
  PINION_TRY(WriteMeta(*store, meta));
  return RunLive(request, meta, *store, proposer.get(), progress);
}

}  // namespace

Result<SweepMeta> DescribeSweep(const Definition& definition, const EngineOptions& base,
                                const Host& host, const std::string& command_line) {
  const auto facts = ModelFacts(base);
  if (!facts && definition.engines.front().is_pinion()) return Unexpected(Error(facts.error()));
  for (const EngineChoice& engine : definition.engines)
    PINION_TRY(CheckStartable(definition, engine, base, host));
  SweepMeta meta;
  meta.model = base.model;
  meta.definition = definition;
  meta.base = base;
  meta.machine = MachineFingerprint(host.machine);
  meta.budget = BudgetJson(host.budget);
  meta.model_facts = facts.value_or(Json::MakeObject());
  meta.command_line = command_line;
  meta.version = Version();
  meta.commit = Commit();
  meta.started_at = NowIso8601();
  return meta;
}

SweepMeta WithProvenance(SweepMeta asked) {
  asked.provenance = ProvenanceOf(asked);
  return asked;
}

Result<SweepMeta> StoredSweep(const std::string& folder) {
  PINION_ASSIGN(const auto store, Store::Open(folder + "/results.db"));
  return ReadMeta(*store);
}

Result<SweepEnd> RunSweep(const SweepRequest& request, Progress& progress) {
  return request.resume ? ResumeSweep(request, progress) : StartSweep(request, progress);
}

}  // namespace pinion::harness
