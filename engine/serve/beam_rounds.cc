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

std::vector<TokenEvent> BeamRounds::OnEvent(const TokenEvent& event) {
  const auto round = Find(event.request);
  if (round == rounds_.end()) return {};  // of a search that was ended meanwhile
  if (!event.has_token && event.finish == FinishReason::kNone) return {};
  if (!event.has_token || !event.error.empty()) return Fail(round, event);
  Search& search = round->second;
  if (!search.first) search.first = event;
  search.preemptions += event.preemptions;
  search.behind[event.request - round->first] = event.token;
  if (--search.waiting > 0) return {};
  Search ready = std::move(search);
  rounds_.erase(round);
  ready.beams.Step(std::move(ready.behind), event.now_ns);
  if (!ready.beams.done()) {
    Start(std::move(ready));
    return {};
  }
  const auto answers = ready.beams.Best();
  if (answers.size() == ready.prompt.count) return EventsOf(answers, ready);
  TokenEvent failed = event;
  failed.request = ready.prompt.id;
  failed.error = StrCat("the beam search found ", answers.size(), " of ", ready.prompt.count,
                        " answers: the engine gave too few alternatives of a token");
  return {std::move(failed)};
}

std::vector<TokenEvent> BeamRounds::Fail(Rounds::iterator round, TokenEvent event) {
  event.request = round->second.prompt.id;
  if (event.error.empty()) event.error = "the engine gave a step of the beam search up";
  Abort(event.request, 1);
  return {std::move(event)};
}

std::vector<TokenEvent> BeamRounds::EventsOf(const std::vector<BeamSearch::Answer>& answers,
                                             const Search& search) {
  std::vector<TokenEvent> events;
  uint64_t choice = search.prompt.id;
  for (const BeamSearch::Answer& answer : answers) {
    TokenEvent event = *search.first;
    event.request = choice++;
    event.finish = FinishReason::kNone;
    event.preemptions = events.empty() ? search.preemptions : 0;
    for (size_t i = 0; i < answer.tokens.size(); ++i) {
      event.token = answer.tokens[i];
      event.output_tokens = i + 1;
      event.now_ns = answer.at_ns[i];
      if (i + 1 == answer.tokens.size())
        event.finish = answer.ended ? FinishReason::kStop : FinishReason::kLength;
      events.push_back(event);
    }
  }
  return events;
}

}  // namespace pinion
