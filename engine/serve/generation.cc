#include "engine/serve/generation.h"

#include <algorithm>
#include <utility>

#include "engine/base/trace.h"
#include "engine/serve/request_memory.h"

namespace pinion {
namespace {

double Seconds(int64_t from_ns, int64_t to_ns) {
  return static_cast<double>(to_ns - from_ns) * 1e-9;
}

// Writing an answer of about this size takes a millisecond.
constexpr size_t kLargeBytes = size_t{128} << 10;
// Bytes of the answer for each choice beside its text, and for each token with its log-probability.
constexpr size_t kChoiceBytes = 300, kTokenBytes = 200, kFloatBytes = 12;

bool Contains(const std::vector<int32_t>& ids, int32_t id) {
  return std::find(ids.begin(), ids.end(), id) != ids.end();
}

}  // namespace

Generation::Generation(const Tokenizer& tokenizer, ServeMetrics& metrics, Prepared prepared,
                       ResponseHead head, Origin origin, Admission::Ticket ticket)
    : tokenizer_(tokenizer),
      metrics_(metrics),
      request_(std::move(prepared.request)),
      prompts_(std::move(prepared.prompts)),
      types_(std::move(prepared.types)),
      memory_(std::move(prepared.memory)),
      origin_(std::move(origin)),
      ticket_(std::move(ticket)),
      writer_(MakeAnswerWriter(request_, std::move(head))) {
  const SamplingParams& params = request_.params;
  for (const auto& prompt : prompts_) {
    prompt_tokens_.push_back(prompt.size());
    if (params.prompt_logprobs >= 0) rated_.push_back({prompt.front(), {}});
    if (request_.return_token_ids) shown_prompts_.push_back(prompt);
  }
  unfinished_ = prompts_.size() * static_cast<size_t>(request_.n);
  choices_.reserve(unfinished_);
  for (size_t i = 0; i < unfinished_; ++i) {
    choices_.emplace_back(OutputText(prepared.primed[PromptOf(i)], params.stop,
                                     params.include_stop_str_in_output,
                                     static_cast<size_t>(params.min_tokens)));
    choices_.back().prompt_tokens = prompt_tokens_[PromptOf(i)];
    choices_.back().parser = MakeAnswerParser(request_.output);
    if (request_.api == Api::kResponses && request_.output.thoughts)
      choices_.back().counter = MakeAnswerParser(request_.output);
    if (!request_.echo) continue;
    choices_.back().text = prepared.echoes[PromptOf(i)];
    choices_.back().echo_bytes = choices_.back().text.size();
  }
}

std::vector<SubmitMessage> Generation::TakeSubmits(uint64_t first_id) {
  first_id_ = first_id;
  SamplingParams params = request_.params;
  params.stop.clear();  // matched here: the engine has tokens, not text
  std::vector<SubmitMessage> messages;
  for (auto& prompt : prompts_) {
    if (params.thought.any())
      params.thought.in_prompt = request_.thought_in_prompts[messages.size()];
    messages.push_back({first_id, static_cast<uint32_t>(request_.n), request_.priority,
                        request_.prompt_only, request_.cache_salt, params, std::move(prompt),
                        request_.grammar});
    if (request_.pooling.facts) {
      messages.back().pool = true;
      messages.back().types = std::move(types_[messages.size() - 1]);
    }
    first_id += static_cast<uint64_t>(request_.n);
  }
  prompts_.clear();
  return messages;
}

void Generation::SetEngine(size_t prompt, size_t engine) {
  const auto n = static_cast<size_t>(request_.n);
  for (size_t i = 0; i < n; ++i) choices_[prompt * n + i].engine = engine;
}

void Generation::Begin() {
  if (!request_.stream || std::exchange(streaming_, true)) return;
  origin_.reply->Begin("text/event-stream; charset=utf-8");
  if (!request_.chat) return;  // a completion's first part has its prompt's ids
  for (size_t i = 0; i < choices_.size(); ++i)
    origin_.reply->Write(writer_->Begin(i, TakePromptIds(i), UsageOf(choices_[i])));
}

Generation::Next Generation::OnEvent(size_t index, const TokenEvent& event) {
  Choice& choice = choices_[index];
  if (choice.done()) return Next::kMore;  // a stop string ended it before the engine knew
  if (!event.error.empty()) {
    engine_error_ = event.error;
    return Next::kFail;
  }
  TakeRated(index, event);
  if (event.has_token && !TakeToken(index, event)) return Next::kFail;
  const bool ended =
      choice.output.stopped() || choice.out_of_time || event.finish != FinishReason::kNone;
  if (!event.has_token && !ended) {  // a part of the prompt, or all of a search's
    if (request_.beam) EndPrompt(index);
    return Next::kMore;
  }
  if (ended) Finish(choice, event);
  if (ended) choice.pooled = event.pooled;
  if (request_.stream) {
    Begin();
    // Even of a token whose text is held back a stream of completions tells, as in vLLM.
    const ChoicePart part = TakePart(index);
    origin_.reply->Write(writer_->Part(part, UsageOf(choice)));
  }
  if (!choice.done()) return Next::kMore;
  if (--unfinished_ == 0 && request_.stream) EndStream();
  return event.finish == FinishReason::kNone ? Next::kAbort : Next::kMore;
}

void Generation::TakeRated(size_t index, const TokenEvent& event) {
  if (event.rated_prompt.empty() || rated_.empty()) return;
  std::vector<SampledToken>& others = rated_[PromptOf(index)].others;
  others.insert(others.end(), event.rated_prompt.begin(), event.rated_prompt.end());
  for (const SampledToken& token : event.rated_prompt)
    kept_tokens_ += (1 + token.top.size()) * static_cast<size_t>(request_.n);
}

bool Generation::TakeToken(size_t index, const TokenEvent& event) {
  Choice& choice = choices_[index];
  const TraceSpan span("detokenise");
  Time(index, event);
  ++choice.output_tokens;
  choice.cached_tokens = event.cached_tokens;
  if (request_.params.logprobs >= 0) {
    const size_t entries = 1 + event.token.top.size();
    if (keeps_logprobs() && !memory_.Grow(entries * kLogprobBytes)) return false;
    kept_tokens_ += entries;
    choice.tokens.push_back(event.token);
  }
  if (request_.return_token_ids) {
    if (!request_.stream && !memory_.Grow(kTokenIdBytes)) return false;
    choice.ids.push_back(event.token.id);
  }
  // The token that ended the output is not part of its text.
  if (event.finish == FinishReason::kStop && !request_.params.include_stop_str_in_output)
    return true;
  const std::string text = choice.output.Push(event.token.id);
  CountReasoning(choice, text);
  choice.text += text;
  choice.out_of_time = IsBehindLimit(choice, text);
  return true;
}

// `text`: of the token that has just come.
bool Generation::IsBehindLimit(const Choice& choice, std::string_view text) const {
  return request_.line_limit_ns > 0 && text.find('\n') != text.npos &&
         choice.last_token_ns - choice.first_token_ns > request_.line_limit_ns;
}

// Tokens whose text the parser holds back belong to the text that comes of it.
void Generation::CountReasoning(Choice& choice, std::string_view text) {
  if (!choice.counter) return;
  ++choice.uncounted_tokens;
  const ParsedOutput parsed = choice.counter->Push(text, /*last=*/false);
  if (parsed.reasoning.empty() && parsed.content.empty() && parsed.calls.empty()) return;
  const size_t tokens = std::exchange(choice.uncounted_tokens, 0);
  if (!parsed.reasoning.empty()) choice.reasoning_tokens += tokens;
}

ApiError Generation::Failure() const {
  if (!engine_error_.empty()) return {500, engine_error_, "", ""};
  return OutOfMemory(memory_, static_cast<size_t>(1 + request_.params.logprobs) * kLogprobBytes,
                     "the log-probabilities of one more token");
}

// The prompt of this choice does not wait any more: in a search, that of all of its choices.
void Generation::EndPrompt(size_t index) {
  const size_t count = request_.beam ? static_cast<size_t>(request_.n) : 1;
  const size_t first = index - index % count;
  for (size_t i = first; i < first + count; ++i)
    if (std::exchange(choices_[i].waits, false)) ticket_.FirstToken(choices_[i].prompt_tokens);
}

void Generation::Time(size_t index, const TokenEvent& event) {
  Choice& choice = choices_[index];
  if (choice.output_tokens == 0) {
    choice.scheduled_ns = event.scheduled_ns;
    choice.first_token_ns = event.now_ns;
    EndPrompt(index);
    metrics_.AddFirstToken(choice.engine, Seconds(origin_.arrived_ns, event.now_ns));
  } else {
    metrics_.AddInterTokenLatency(choice.engine, Seconds(choice.last_token_ns, event.now_ns));
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
    choice.finish_reason =
        Name(event.finish == FinishReason::kNone ? FinishReason::kLength : event.finish);
    if (choice.output.stopped()) {  // the last held-back text completed a stop string
      choice.finish_reason = "stop";
      choice.stop_reason = choice.output.stop_string();
    } else if (event.finish == FinishReason::kStop &&
               Contains(request_.params.stop_token_ids, event.token.id)) {
      choice.stop_reason = event.token.id;
    }
  }
  // Nothing was cut short.
  if (request_.pooling.facts && event.finish == FinishReason::kLength)
    choice.finish_reason = "stop";
  ticket_.ChoiceEnded();
  const int64_t first_ns = choice.output_tokens > 0 ? choice.first_token_ns : event.now_ns;
  metrics_.AddFinished(
      choice.engine,
      {choice.finish_reason, Seconds(origin_.arrived_ns, event.now_ns),
       Seconds(event.arrived_ns, event.scheduled_ns), Seconds(origin_.arrived_ns, first_ns),
       event.prompt_tokens, choice.output_tokens, event.cached_tokens,
       request_.prompt_only || request_.pooling.facts
           ? 0
           : static_cast<size_t>(request_.params.max_tokens),
       event.preemptions, Seconds(event.scheduled_ns, first_ns), Seconds(first_ns, event.now_ns)});
  longest_output_ = std::max(longest_output_, choice.output_tokens);
  if (unfinished_ == 1)
    metrics_.AddRequest(choice.engine, static_cast<size_t>(request_.n), longest_output_);
}

ChoicePart Generation::TakePart(size_t index) {
  Choice& choice = choices_[index];
  ChoicePart part{
      index, std::exchange(choice.text, {}), {}, choice.finish_reason, choice.stop_reason, {}};
  part.usage = UsageOf(choice);
  part.prompt_s = Seconds(choice.scheduled_ns, choice.first_token_ns);
  part.decode_s = Seconds(choice.first_token_ns, choice.last_token_ns);
  part.pooled = std::move(choice.pooled);
  if (choice.parser) Parse(choice, part);
  if (request_.params.logprobs >= 0) part.logprobs = LogprobsOf(index);
  if (request_.prompt_logprobs >= 0)
    part.prompt_logprobs =
        PromptLogprobs(tokenizer_, rated_[PromptOf(index)].others, request_.prompt_logprobs);
  if (request_.return_token_ids) {
    part.prompt_token_ids = TakePromptIds(index);
    part.token_ids = Json(std::exchange(choice.ids, {}));
  }
  return part;
}

// Moves reasoning and calls out of the part's text.
void Generation::Parse(Choice& choice, ChoicePart& part) {
  ParsedOutput parsed = choice.parser->Push(part.text, choice.done());
  part.text = std::move(parsed.content);
  part.reasoning = std::move(parsed.reasoning);
  part.calls = std::move(parsed.calls);
  const bool goes_on = !part.calls.empty() && part.calls.front().name.empty();
  part.first_call = choice.calls - (goes_on ? 1 : 0);
  choice.calls = part.first_call + part.calls.size();
  if (choice.calls > 0 && part.finish_reason == "stop") part.finish_reason = "tool_calls";
}

// Null if they are not asked for, or have been sent in the choice's first part.
Json Generation::TakePromptIds(size_t index) {
  Choice& choice = choices_[index];
  if (!request_.return_token_ids || std::exchange(choice.shows_prompt, false) == false) return {};
  return Json(shown_prompts_[PromptOf(index)]);
}

Json Generation::LogprobsOf(size_t index) {
  Choice& choice = choices_[index];
  const std::vector<SampledToken> tokens = std::exchange(choice.tokens, {});
  const bool llama = request_.api == Api::kLlama || request_.api == Api::kInfill;
  if (request_.chat || llama)
    return ChatLogprobs(tokenizer_, tokens, request_.tokens_as_ids, /*with_ids=*/llama);
  CompletionLogprobs logprobs(tokenizer_, request_.params.logprobs, request_.tokens_as_ids);
  if (request_.echo) {
    const RatedPrompt& prompt = rated_[PromptOf(index)];
    logprobs.AddFirst(prompt.first, choice.text_offset);
    for (const SampledToken& token : prompt.others) logprobs.Add(token, choice.text_offset);
  }
  for (const SampledToken& token : tokens) logprobs.Add(token, choice.text_offset);
  return logprobs.Take();
}

void Generation::EndStream() {
  origin_.reply->Write(writer_->End(CountUsage()));
  origin_.reply->End();
}

bool Generation::answer_is_large() const {
  size_t bytes = kept_tokens_ * kTokenBytes + choices_.size() * kChoiceBytes;
  for (const auto& prompt : shown_prompts_)
    bytes += prompt.size() * kTokenIdBytes * static_cast<size_t>(request_.n);
  for (const Choice& choice : choices_)
    bytes += choice.text.size() + choice.pooled.size() * kFloatBytes;
  return bytes > kLargeBytes;
}

std::string Generation::Answer() {
  std::vector<ChoicePart> parts;
  for (size_t i = 0; i < choices_.size(); ++i) parts.push_back(TakePart(i));
  header_ = writer_->Header(parts, CountUsage());
  return writer_->Whole(parts, CountUsage());
}

void Generation::Send(std::string answer) {
  for (const auto& [name, value] : header_) origin_.reply->AddHeader(name, value);
  origin_.reply->Send(200, writer_->media(), std::move(answer));
}

Usage Generation::UsageOf(const Choice& choice) const {
  return {choice.prompt_tokens, choice.output_tokens, choice.cached_tokens};
}

Usage Generation::CountUsage() const {
  Usage usage;
  for (const size_t tokens : prompt_tokens_) usage.prompt_tokens += tokens;
  for (size_t i = 0; i < choices_.size(); ++i) {
    usage.completion_tokens += choices_[i].output_tokens;
    usage.reasoning_tokens += choices_[i].reasoning_tokens;
    if (i % static_cast<size_t>(request_.n) == 0) usage.cached_tokens += choices_[i].cached_tokens;
  }
  return usage;
}

void Generation::Fail(const ApiError& error, const std::string& retry_after) {
  CountUnfinished("error");
  if (!streaming_) {
    if (!retry_after.empty()) origin_.reply->AddHeader("Retry-After", retry_after);
    origin_.reply->Send(error.status, "application/json", writer_->Error(error));
    return;
  }
  origin_.reply->Write(writer_->Fail(error));
  origin_.reply->End();
}

void Generation::CountUnfinished(const char* reason) {
  for (const Choice& choice : choices_)
    if (!choice.done()) metrics_.AddFinished(choice.engine, {reason});
}

}  // namespace pinion
