#include "engine/serve/beam_rounds.h"

#include <algorithm>
#include <utility>

#include "engine/base/strings.h"

namespace pinion {
namespace {

// Of one token of a beam. Nothing is drawn: the most likely tokens are what counts.
SamplingParams ParamsOfStep(const SamplingParams& asked, size_t width) {
  SamplingParams params;
  params.max_tokens = 1;
  params.ignore_eos = true;
  params.logprobs = std::max(asked.logprobs, static_cast<int>(2 * width));
  return params;
}

}  // namespace

size_t BeamRounds::Begin(SubmitMessage prompt, const BeamRules& rules) {
  BeamSearch beams({.width = prompt.count,
                    .prompt_tokens = prompt.prompt_ids.size(),
                    .max_tokens = static_cast<size_t>(prompt.params.max_tokens),
                    .kept_top = static_cast<size_t>(std::max(0, prompt.params.logprobs)),
                    .rules = rules});
  return Start({std::move(prompt), std::move(beams), 0, {}, {}, 0});
}

size_t BeamRounds::Start(Search search) {
  const uint64_t first_id = next_id_;
  const size_t beams = search.beams.beams();
  next_id_ += beams;
  search.waiting = beams;
  search.behind.assign(beams, {});
  const Search& round = rounds_.emplace(first_id, std::move(search)).first->second;
  size_t engine = 0;
  for (size_t i = 0; i < beams; ++i) {
    SubmitMessage step;
    step.id = first_id + i;
    step.priority = round.prompt.priority;
    step.cache_salt = round.prompt.cache_salt;
    step.params = ParamsOfStep(round.prompt.params, round.prompt.count);
    step.prompt_ids = round.prompt.prompt_ids;
    const std::vector<int32_t> tokens = round.beams.TokensOf(i);
    step.prompt_ids.insert(step.prompt_ids.end(), tokens.begin(), tokens.end());
    const size_t sent_to = send_(step);
    if (i == 0) engine = sent_to;
  }
  return engine;
}

BeamRounds::Rounds::iterator BeamRounds::Find(uint64_t id) {
  auto found = rounds_.upper_bound(id);
  if (found == rounds_.begin()) return rounds_.end();
  --found;
  return id - found->first < found->second.behind.size() ? found : rounds_.end();
}

uint64_t BeamRounds::ChoiceOf(uint64_t id) {
  if (!Owns(id)) return id;
  const auto found = Find(id);
  return found == rounds_.end() ? 0 : found->second.prompt.id;
}

void BeamRounds::Abort(uint64_t first_choice, size_t choices) {
  for (auto round = rounds_.begin(); round != rounds_.end();) {
    const auto here = round++;
    const auto& [first_id, search] = *here;
    if (search.prompt.id < first_choice || search.prompt.id - first_choice >= choices) continue;
    send_(AbortMessage{first_id, static_cast<uint32_t>(search.behind.size())});
    rounds_.erase(here);
  }
}

BeamEvents BeamRounds::OnEvent(const TokenEvent& event) {
  const auto round = Find(event.request);
  if (round == rounds_.end()) return {};  // of a search that was ended meanwhile
  if (!event.has_token && event.finish == FinishReason::kNone) return {};
  if (!event.has_token || !event.error.empty()) return Fail(round, event);
  Search& search = round->second;
  const bool is_first = !search.first;
  if (!search.first) search.first = event;
  search.preemptions += event.preemptions;
  search.behind[event.request - round->first] = event.token;
  if (--search.waiting > 0) return {};
  Search ready = std::move(search);
  rounds_.erase(round);
  ready.beams.Step(std::move(ready.behind), event.now_ns);
  if (ready.beams.done()) return End(std::move(ready), event.now_ns);
  TokenEvent computed;
  computed.request = ready.prompt.id;
  Start(std::move(ready));
  return is_first ? BeamEvents(std::move(computed)) : BeamEvents();
}

BeamEvents BeamRounds::Fail(Rounds::iterator round, TokenEvent event) {
  event.request = round->second.prompt.id;
  if (event.error.empty())
    event.error = "the engine gave up a step of the beam search; send the request again";
  Abort(event.request, 1);
  return BeamEvents(std::move(event));
}

BeamEvents BeamRounds::End(Search search, int64_t now_ns) {
  TokenEvent event = std::move(*search.first);
  event.request = search.prompt.id;
  event.token = {};
  event.preemptions = search.preemptions;
  auto found = search.beams.Best();
  if (found.size() == search.prompt.count)
    return BeamEvents(std::move(search.beams), std::move(found), std::move(event));
  event.now_ns = now_ns;
  event.error = StrCat("the beam search found ", found.size(), " of ", search.prompt.count,
                       " answers: the engine gave too few alternatives of a token");
  return BeamEvents(std::move(event));
}

std::optional<TokenEvent> BeamEvents::Next() {
  if (only_) return std::exchange(only_, std::nullopt);
  if (next_token_ == answer_.tokens.size()) {
    if (next_answer_ == found_.size()) return std::nullopt;
    answer_ = beams_->WriteOut(found_[next_answer_++]);
    next_token_ = 0;
  }
  TokenEvent event = like_;
  event.token = std::move(answer_.tokens[next_token_]);
  event.now_ns = answer_.at_ns[next_token_];
  event.output_tokens = ++next_token_;
  event.finish = FinishReason::kNone;
  if (next_token_ < answer_.tokens.size()) return event;
  event.finish = answer_.ended ? FinishReason::kStop : FinishReason::kLength;
  ++like_.request;
  like_.preemptions = 0;
  return event;
}

}  // namespace pinion
