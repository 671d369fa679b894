#include "engine/serve/generation.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "engine/base/trace.h"

namespace pinion {
namespace {

double Seconds(int64_t from_ns, int64_t to_ns) {
  return static_cast<double>(to_ns - from_ns) * 1e-9;
}

bool Contains(const std::vector<int32_t>& ids, int32_t id) {
  return std::find(ids.begin(), ids.end(), id) != ids.end();
}

}  // namespace

Generation::Generation(const Tokenizer& tokenizer, ServeMetrics& metrics, GenerationRequest request,
                       std::vector<std::vector<int32_t>> prompt_ids, ResponseHead head,
                       std::shared_ptr<HttpReply> reply, int64_t arrived_ns)
    : tokenizer_(tokenizer),
      metrics_(metrics),
      request_(std::move(request)),
      prompt_ids_(std::move(prompt_ids)),
      head_(std::move(head)),
      reply_(std::move(reply)),
      arrived_ns_(arrived_ns) {
  const size_t count = prompt_ids_.size() * static_cast<size_t>(request_.n);
  const SamplingParams& params = request_.params;
  choices_.reserve(count);
  std::optional<PrimedText> primed;  // of the prompt that the loop is at
  for (size_t i = 0; i < count; ++i) {
    const auto& prompt = PromptOf(i);
    if (i % static_cast<size_t>(request_.n) == 0)
      primed.emplace(tokenizer_, prompt, request_.skip_special_tokens, !request_.stream);
    choices_.emplace_back(OutputText(*primed, params.stop, params.include_stop_str_in_output,
                                     static_cast<size_t>(params.min_tokens)));
    if (!request_.echo) continue;
    const Prompt& said = request_.prompts[i / static_cast<size_t>(request_.n)];
    const auto* text = std::get_if<std::string>(&said);
    choices_.back().text = text ? *text : tokenizer_.Decode(prompt, request_.skip_special_tokens);
    choices_.back().echo_bytes = choices_.back().text.size();
  }
  unfinished_ = count;
}

SamplingParams Generation::ParamsOf(size_t choice) const {
  SamplingParams params = request_.params;
  params.stop.clear();  // matched here: the engine has tokens, not text
  if (params.seed) *params.seed += choice % static_cast<size_t>(request_.n);
  return params;
}

const std::vector<int32_t>& Generation::PromptOf(size_t choice) const {
  return prompt_ids_[choice / static_cast<size_t>(request_.n)];
}

Generation::Next Generation::OnEvent(size_t index, const TokenEvent& event) {
  Choice& choice = choices_[index];
  if (event.has_token) TakeToken(choice, event);
  const bool stopped = choice.output.stopped();
  if (stopped || event.finish != FinishReason::kNone) Finish(choice, event);
  if (request_.stream) {
    BeginStream();
    // Even a token whose text is held back sends an event, as in vLLM.
    reply_->Write(SseEvent(PartChunk(head_, TakePart(index))));
  }
  if (!choice.done()) return Next::kMore;
  if (--unfinished_ == 0) EndAnswer();
  return event.finish == FinishReason::kNone ? Next::kAbort : Next::kFinished;
}

void Generation::TakeToken(Choice& choice, const TokenEvent& event) {
  const TraceSpan span("detokenise");
  Time(choice, event);
  ++choice.output_tokens;
  choice.cached_tokens = event.cached_tokens;
  if (request_.params.logprobs >= 0) choice.tokens.push_back(event.token);
  // The token that ended the output is not part of its text.
  if (event.finish == FinishReason::kStop && !request_.params.include_stop_str_in_output) return;
  choice.text += choice.output.Push(event.token.id);
}

void Generation::Time(Choice& choice, const TokenEvent& event) {
  if (choice.output_tokens == 0) {
    choice.first_token_ns = event.now_ns;
    metrics_.AddFirstToken(Seconds(arrived_ns_, event.now_ns));
  } else {
    metrics_.AddInterTokenLatency(Seconds(choice.last_token_ns, event.now_ns));
  }
  choice.last_token_ns = event.now_ns;
}

void Generation::Finish(Choice& choice, const TokenEvent& event) {
  if (choice.output.stopped()) {
    choice.finish_reason = "stop";
    choice.stop_reason = choice.output.stop_string();
  } else {
    choice.text += choice.output.Finish();
    if (!request_.stream)
      choice.text.replace(choice.echo_bytes, choice.text.npos, choice.output.whole());
    choice.finish_reason = Name(event.finish);
    if (choice.output.stopped()) {  // the last held-back text completed a stop string
      choice.finish_reason = "stop";
      choice.stop_reason = choice.output.stop_string();
    } else if (event.finish == FinishReason::kStop &&
               Contains(request_.params.stop_token_ids, event.token.id)) {
      choice.stop_reason = event.token.id;
    }
  }
  metrics_.AddFinished({choice.finish_reason, Seconds(arrived_ns_, event.now_ns),
                        Seconds(event.arrived_ns, event.scheduled_ns),
                        Seconds(arrived_ns_, choice.first_token_ns), event.prompt_tokens,
                        choice.output_tokens});
}

ChoicePart Generation::TakePart(size_t index) {
  Choice& choice = choices_[index];
  ChoicePart part{
      index, std::exchange(choice.text, {}), {}, choice.finish_reason, choice.stop_reason};
  if (request_.params.logprobs >= 0) {
    part.logprobs = request_.chat
                        ? ChatLogprobs(tokenizer_, choice.tokens)
                        : CompletionLogprobs(tokenizer_, choice.tokens, choice.text_offset);
    choice.tokens.clear();
  }
  return part;
}

void Generation::BeginStream() {
  if (std::exchange(streaming_, true)) return;
  reply_->Begin("text/event-stream; charset=utf-8");
  if (!request_.chat) return;
  for (size_t i = 0; i < choices_.size(); ++i) reply_->Write(SseEvent(RoleChunk(head_, i)));
}

void Generation::EndAnswer() {
  if (request_.stream) {
    if (request_.include_usage) reply_->Write(SseEvent(UsageChunk(head_, CountUsage())));
    reply_->Write(kSseDone);
    reply_->End();
    return;
  }
  std::vector<ChoicePart> parts;
  for (size_t i = 0; i < choices_.size(); ++i) parts.push_back(TakePart(i));
  reply_->Send(200, "application/json", WholeResponse(head_, parts, CountUsage()).Dump());
}

Usage Generation::CountUsage() const {
  Usage usage;
  for (const auto& prompt : prompt_ids_) usage.prompt_tokens += prompt.size();
  for (size_t i = 0; i < choices_.size(); ++i) {
    usage.completion_tokens += choices_[i].output_tokens;
    if (i % static_cast<size_t>(request_.n) == 0) usage.cached_tokens += choices_[i].cached_tokens;
  }
  return usage;
}

void Generation::Fail(const ApiError& error) {
  CountUnfinished("error");
  if (!streaming_) {
    reply_->Send(error.status, "application/json", ToJson(error).Dump());
    return;
  }
  reply_->Write(SseEvent(ToJson(error)));
  reply_->End();
}

void Generation::CountUnfinished(const char* reason) {
  for (const Choice& choice : choices_)
    if (!choice.done()) metrics_.AddFinished({reason});
}

}  // namespace pinion
