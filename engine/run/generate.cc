#include "engine/run/generate.h"

#include <optional>
#include <utility>

#include "engine/base/check.h"
#include "engine/base/trace.h"

namespace pinion {
namespace {

// One offline batch: request ids are indices into the prompts.
class Batch {
 public:
  Batch(Engine& engine, const Tokenizer* tokenizer, const std::vector<Prompt>& prompts,
        const GenerateHooks& hooks)
      : engine_(engine),
        tokenizer_(tokenizer),
        prompts_(prompts),
        hooks_(hooks),
        results_(prompts.size()),
        outputs_(prompts.size()) {}

  std::vector<PromptResult> Run(const SamplingParams& params) {
    for (size_t i = 0; i < prompts_.size(); ++i)
      if (auto added = Submit(i, params); !added) {
        results_[i].error = std::move(added);
        Done(i);
      }
    std::vector<TokenEvent> events;
    while (!engine_.idle()) {
      events.clear();
      engine_.Step(events);
      TakeAll(events);
      if (hooks_.on_step) hooks_.on_step(tokens_);
    }
    return std::move(results_);
  }

 private:
  // How one request's tokens are turned into its result.
  struct Output {
    std::optional<OutputText> text;
    bool logprobs = false;
    bool stop_token_text = false;  // include the final stop token's text (as vLLM, only if asked)
  };

  Status Submit(size_t index, SamplingParams params) {
    const Prompt& prompt = prompts_[index];
    if (!prompt.error) return prompt.error;
    PINION_TRY(ReadSamplingParams(prompt.line, params));
    if (!params.stop.empty() && !tokenizer_)
      return Fail(ErrorCode::kUsage, "stop strings need a tokenizer; use stop_token_ids");
    Output& output = outputs_[index];
    output.logprobs = params.logprobs >= 0;
    output.stop_token_text = params.include_stop_str_in_output;
    if (tokenizer_)
      output.text.emplace(PrimedText(*tokenizer_, prompt.ids, true, /*whole=*/true), params.stop,
                          params.include_stop_str_in_output,
                          static_cast<size_t>(params.min_tokens));
    return engine_.Add({index, prompt.ids, params, false});
  }

  void TakeAll(std::vector<TokenEvent>& events) {
    const TraceSpan span("detokenise", "events", events.size());
    for (TokenEvent& event : events) Take(event);
  }

  void Take(TokenEvent& event) {
    PromptResult& result = results_[event.request];
    // A stop string ended it here before the engine knew; this event only confirms our Abort.
    if (result.finish != FinishReason::kNone) return;
    result.cached_tokens = event.cached_tokens;
    Output& output = outputs_[event.request];
    auto& text = output.text;
    if (event.has_token) {
      result.output_ids.push_back(event.token.id);
      ++tokens_;
      const bool stops = event.finish == FinishReason::kStop;
      if (text && (!stops || output.stop_token_text))
        Emit(event.request, text->Push(event.token.id));
      if (output.logprobs) result.tokens.push_back(std::move(event.token));
      if (text && text->stopped()) {
        result.finish = FinishReason::kStop;
        engine_.Abort(event.request);
        Done(event.request);
        return;
      }
    }
    if (event.finish == FinishReason::kNone) return;
    result.finish = event.finish;
    if (!event.error.empty()) result.error = Fail(ErrorCode::kFailed, std::move(event.error));
    if (text) {
      Emit(event.request, text->Finish());
      result.text = text->whole();
    }
    Done(event.request);
  }

  void Done(size_t index) {
    if (hooks_.on_done) hooks_.on_done(index, results_[index]);
  }

  void Emit(size_t index, const std::string& text) {
    results_[index].text += text;
    if (hooks_.on_text && !text.empty()) hooks_.on_text(index, text);
  }

  Engine& engine_;
  const Tokenizer* tokenizer_;
  const std::vector<Prompt>& prompts_;
  const GenerateHooks& hooks_;
  std::vector<PromptResult> results_;
  std::vector<Output> outputs_;
  uint64_t tokens_ = 0;
};

Json LogprobsOf(const std::vector<SampledToken>& tokens) {
  Json list = Json::MakeArray();
  for (const SampledToken& token : tokens) {
    Json top = Json::MakeArray();
    for (const auto& [id, logprob] : token.top) top.Append(Json::Array{id, logprob});
    Json entry = Json::MakeObject();
    entry.Set("id", token.id);
    entry.Set("logprob", token.logprob);
    entry.Set("top", std::move(top));
    list.Append(std::move(entry));
  }
  return list;
}

}  // namespace

std::vector<PromptResult> Generate(Engine& engine, const Tokenizer* tokenizer,
                                   const std::vector<Prompt>& prompts, const SamplingParams& params,
                                   const GenerateHooks& hooks) {
  CHECK(engine.idle()) << "request ids would collide";
  return Batch(engine, tokenizer, prompts, hooks).Run(params);
}

Json ToJson(const Prompt& prompt, const PromptResult& result) {
  Json out = Json::MakeObject();
  if (!result.error) {
    out.Set("error", result.error.error().message);
    return out;
  }
  out.Set("prompt_ids", prompt.ids);
  out.Set("output_ids", result.output_ids);
  out.Set("text", result.text);
  out.Set("finish_reason", Name(result.finish));
  out.Set("cached_tokens", static_cast<uint64_t>(result.cached_tokens));
  if (!result.tokens.empty()) out.Set("logprobs", LogprobsOf(result.tokens));
  return out;
}

}  // namespace pinion
