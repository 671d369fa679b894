#include "engine/serve/engine_group.h"

#include <algorithm>
#include <utility>

#include "engine/base/log.h"
#include "engine/base/strings.h"

namespace pinion {
namespace {

// Everything that a process has done so far; its current work is not a total, nor are the waits of
// its ranks, which are numbered in each process anew.
void AddTotals(const EngineStats& stats, EngineStats& sum) {
  sum.scheduler.preemptions += stats.scheduler.preemptions;
  sum.scheduler.finished += stats.scheduler.finished;
  sum.scheduler.steps_over_bound += stats.scheduler.steps_over_bound;
  sum.scheduler.bounded_steps += stats.scheduler.bounded_steps;
  sum.kv.prefix_query_tokens += stats.kv.prefix_query_tokens;
  sum.kv.prefix_hit_tokens += stats.kv.prefix_hit_tokens;
  sum.kv.evictions += stats.kv.evictions;
  sum.steps += stats.steps;
  sum.prompt_tokens += stats.prompt_tokens;
  sum.output_tokens += stats.output_tokens;
  sum.shared_kv_bytes += stats.shared_kv_bytes;
  sum.prefill += stats.prefill;
  sum.decode += stats.decode;
  sum.traffic += stats.traffic;
  sum.transfer += stats.transfer;
}

}  // namespace

EngineGroup::EngineGroup(HttpServer& server, std::vector<EngineSupervisor::Options> replicas,
                         size_t prefill, Callbacks callbacks)
    : replicas_(replicas.size()),
      prefill_(prefill),
      callbacks_(std::move(callbacks)),
      router_(replicas.size(), prefill) {
  for (size_t i = 0; i < replicas.size(); ++i)
    replicas_[i].supervisor =
        std::make_unique<EngineSupervisor>(server, std::move(replicas[i]), CallbacksOf(i));
}

EngineSupervisor::Callbacks EngineGroup::CallbacksOf(size_t index) {
  return {[this, index](LinkMessage message) { OnMessage(index, std::move(message)); },
          [this, index](EngineState state, const std::string& reason) {
            OnState(index, state, reason);
          },
          [this, index](Error error) {
            if (size() > 1) error = std::move(error).In(StrCat("replica ", index));
            callbacks_.cannot_start(std::move(error));
          }};
}

Status EngineGroup::Start() {
  for (Replica& replica : replicas_) PINION_TRY(replica.supervisor->Start());
  return {};
}

void EngineGroup::SetCommand(std::vector<std::string> command) {
  replicas_.front().supervisor->SetCommand(std::move(command));
}

size_t EngineGroup::Send(const LinkMessage& message) {
  const bool is_prompt = std::holds_alternative<SubmitMessage>(message) ||
                         std::holds_alternative<AbortMessage>(message);
  if (size() == 1 && is_prompt) {
    replicas_.front().supervisor->Send(message);
  } else if (const auto* prompt = std::get_if<SubmitMessage>(&message)) {
    const auto replica = router_.Place(*prompt);
    if (replica) replicas_[*replica].supervisor->Send(message);
    return replica.value_or(0);
  } else if (const auto* abort = std::get_if<AbortMessage>(&message)) {
    for (const auto& part : router_.PlacementsOf(abort->id, abort->count)) {
      const uint64_t first = std::max(part.first, abort->id);
      const uint64_t end = std::min(part.first + part.count, abort->id + abort->count);
      replicas_[part.replica].supervisor->Send(
          AbortMessage{first, static_cast<uint32_t>(end - first)});
    }
  } else if (std::holds_alternative<InfoRequestMessage>(message)) {
    AskAll(message, info_);
  } else if (std::holds_alternative<ResetCacheMessage>(message)) {
    AskAll(message, reset_);
  } else if (const auto* profile = std::get_if<ProfileMessage>(&message)) {
    if (profile->path.empty())
      StopNextProfile();
    else
      StartProfile(message);
  }
  return 0;
}

void EngineGroup::StartProfile(const LinkMessage& message) {
  Question recorded;
  AskAll(message, recorded);
  profiling_ = std::move(recorded.waiting);
  profile_error_.clear();
}

void EngineGroup::AskAll(const LinkMessage& question, Question& asked) {
  asked = {};
  for (size_t i = 0; i < size(); ++i) {
    if (!router_.is_up(i)) continue;
    asked.waiting.insert(i);
    replicas_[i].supervisor->Send(question);
  }
}

// They write into one file, so not at once.
void EngineGroup::StopNextProfile() {
  if (!profiling_.empty())
    replicas_[*profiling_.begin()].supervisor->Send(ProfileMessage{});
  else
    callbacks_.message(ProfiledMessage{std::move(profile_error_)});
}

bool EngineGroup::Answered(size_t index, std::optional<LinkMessage> answer, Question& asked) {
  if (asked.waiting.erase(index) == 0) return false;
  if (answer) asked.answers.insert_or_assign(index, std::move(*answer));
  return asked.waiting.empty() && !asked.answers.empty();
}

void EngineGroup::OnMessage(size_t index, LinkMessage message) {
  Replica& replica = replicas_[index];
  if (auto* batch = std::get_if<EventsMessage>(&message)) {
    replica.stats = batch->stats;
    callbacks_.stats(index, batch->stats);
    if (size() > 1) {
      for (const TokenEvent& event : batch->events) router_.OnEvent(event);
      batch->stats = StatsOfAll();
    }
    callbacks_.message(std::move(message));
  } else if (auto* ready = std::get_if<ReadyMessage>(&message)) {
    replica.ready = std::move(*ready);  // its state follows
  } else if (const auto* refused = std::get_if<RefusedMessage>(&message)) {
    router_.Remove(refused->id);
    callbacks_.message(std::move(message));
  } else if (std::holds_alternative<InfoMessage>(message)) {
    if (Answered(index, std::move(message), info_)) AnswerInfo();
  } else if (std::holds_alternative<CacheResetMessage>(message)) {
    if (Answered(index, std::move(message), reset_)) AnswerReset();
  } else if (const auto* profiled = std::get_if<ProfiledMessage>(&message)) {
    if (profile_error_.empty()) profile_error_ = profiled->error;
    profiling_.erase(index);
    StopNextProfile();
  }
}

void EngineGroup::AnswerInfo() {
  std::vector<std::string> infos;
  for (const auto& [replica, answer] : info_.answers)
    infos.push_back(std::get<InfoMessage>(answer).server_info);
  callbacks_.message(InfoMessage{InfoOf(infos)});
}

void EngineGroup::AnswerReset() {
  CacheResetMessage all{true};
  for (const auto& [replica, answer] : reset_.answers)
    all.whole &= std::get<CacheResetMessage>(answer).whole;
  callbacks_.message(all);
}

std::string EngineGroup::InfoOf(const std::vector<std::string>& infos) const {
  if (size() == 1) return infos.front();
  Json all = Json::Parse(infos.front()).value_or(Json::MakeObject());
  Json each = Json::MakeArray();
  for (const std::string& info : infos) each.Append(Json::Parse(info).value_or(Json::MakeObject()));
  all.Set("replicas", std::move(each));
  return all.Dump();
}

EngineStats EngineGroup::StatsOfAll() const {
  EngineStats all = ended_;
  for (const Replica& replica : replicas_) {
    const EngineStats& stats = replica.stats;
    AddTotals(stats, all);
    all.scheduler.waiting += stats.scheduler.waiting;
    all.scheduler.running += stats.scheduler.running;
    all.scheduler.bound_s = std::max(all.scheduler.bound_s, stats.scheduler.bound_s);
    all.blocks_used += stats.blocks_used;
    all.blocks_total += stats.blocks_total;
  }
  return all;
}

// Any prompt must fit into any replica; together they run as many sequences as all of them.
ReadyMessage EngineGroup::ReadyOfAll() const {
  std::vector<std::string> infos;
  std::optional<ReadyMessage> all;
  for (size_t i = 0; i < size(); ++i) {
    const Replica& replica = replicas_[i];
    if (!replica.ready) continue;
    infos.push_back(replica.ready->server_info);
    if (i < prefill_) continue;
    if (!all) {
      all = replica.ready;
      continue;
    }
    all->max_model_len = std::min(all->max_model_len, replica.ready->max_model_len);
    all->kv_tokens = std::min(all->kv_tokens, replica.ready->kv_tokens);
    all->max_num_seqs += replica.ready->max_num_seqs;
  }
  all->server_info = InfoOf(infos);
  return *all;
}

void EngineGroup::OnState(size_t index, EngineState state, const std::string& public_reason) {
  if (state == EngineState::kReady)
    OnReady(index);
  else
    OnDown(index, state, public_reason);
}

void EngineGroup::OnReady(size_t index) {
  router_.SetUp(index, replicas_[index].ready->kv_tokens);
  if (!router_.any_up()) return;  // one that computes prompts for others alone
  if (state_ == EngineState::kReady) return LogInfo(StrCat("replica ", index, " is ready again"));
  // At first all of them: one that cannot start ends the server.
  const bool all = std::all_of(replicas_.begin(), replicas_.end(),
                               [](const Replica& one) { return one.ready.has_value(); });
  if (state_ == EngineState::kStarting && !all) return;
  callbacks_.message(ReadyOfAll());
  Enter(EngineState::kReady, "");
}

void EngineGroup::OnDown(size_t index, EngineState state, const std::string& public_reason) {
  const std::vector<uint64_t> prompts = router_.SetDown(index);
  AddTotals(std::exchange(replicas_[index].stats, {}), ended_);
  callbacks_.stats(index, {});  // nothing runs, waits or holds blocks there
  if (router_.any_up() && state != EngineState::kFailed) {
    FinishQuestions(index);
    if (state == EngineState::kRestarting) callbacks_.lost(prompts, public_reason);
    return;
  }
  ended_ = {};  // those who add up start anew as well
  info_ = reset_ = {};
  profiling_.clear();
  if (state != state_ || !together_) Enter(state, public_reason);
}

// The answer of a replica that is gone is not waited for. If it was the only one to be asked, those
// that have come up since then are asked in its place.
bool EngineGroup::AnsweredWithout(size_t index, const LinkMessage& question, Question& asked) {
  const bool was_asked = asked.waiting.contains(index);
  if (Answered(index, std::nullopt, asked)) return true;
  if (was_asked && asked.waiting.empty()) AskAll(question, asked);
  return false;
}

void EngineGroup::FinishQuestions(size_t index) {
  if (AnsweredWithout(index, InfoRequestMessage{}, info_)) AnswerInfo();
  if (AnsweredWithout(index, ResetCacheMessage{}, reset_)) AnswerReset();
  const bool writing = !profiling_.empty() && *profiling_.begin() == index;
  if (profiling_.erase(index) && writing) StopNextProfile();
}

void EngineGroup::Enter(EngineState state, const std::string& public_reason) {
  state_ = state;
  callbacks_.state(state, public_reason);
}

void EngineGroup::Sleep(std::function<void()> done) {
  still_awake_ = size();
  together_ = true;
  for (Replica& replica : replicas_)
    replica.supervisor->Sleep([this, done] {
      if (--still_awake_ == 0) done();
    });
  together_ = false;
}

void EngineGroup::Wake() {
  together_ = true;
  for (Replica& replica : replicas_) replica.supervisor->Wake();
  together_ = false;
}

void EngineGroup::Close(double seconds) {
  for (Replica& replica : replicas_) replica.supervisor->Close(seconds);
}

double EngineGroup::retry_after_s() const {
  double least = replicas_.front().supervisor->retry_after_s();
  for (const Replica& replica : replicas_)
    least = std::min(least, replica.supervisor->retry_after_s());
  return least;
}

}  // namespace pinion
