#include "engine/serve/response.h"

#include <algorithm>
#include <span>
#include <utility>

#include "engine/base/strings.h"

namespace pinion {
namespace {

// JSON has no infinities and clients expect numbers; this is OpenAI's and vLLM's floor.
double Floor(double logprob) { return std::max(logprob, -9999.0); }

std::string TextOf(const Tokenizer& tokenizer, int32_t id) {
  return tokenizer.Decode(std::span(&id, 1), false);
}

// Code points, because Python clients slice text by them.
size_t CharactersOf(std::string_view text) {
  const auto begins = [](char byte) { return (byte & 0xC0) != 0x80; };
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), begins));
}

Json OrNull(const std::string& text) { return text.empty() ? Json() : Json(text); }

Json Choice(const ResponseHead& head, const ChoicePart& part) {
  Json choice = Json::MakeObject();
  choice.Set("index", static_cast<int64_t>(part.index));
  if (!head.chat)
    choice.Set("text", part.text);
  else
    choice.Set("message", Json(Json::Object{{"role", "assistant"}, {"content", part.text}}));
  choice.Set("logprobs", part.logprobs);
  choice.Set("finish_reason", OrNull(part.finish_reason));
  choice.Set("stop_reason", part.stop_reason);
  return choice;
}

Json ChatToken(const Tokenizer& tokenizer, int32_t id, double logprob) {
  std::string text = TextOf(tokenizer, id);
  Json bytes = Json::MakeArray();
  for (const unsigned char byte : text) bytes.Append(static_cast<int>(byte));
  Json token = Json::MakeObject();
  token.Set("token", std::move(text));
  token.Set("logprob", Floor(logprob));
  token.Set("bytes", std::move(bytes));
  return token;
}

}  // namespace

Json ToJson(const Usage& usage) {
  Json details = Json::MakeObject();
  details.Set("cached_tokens", static_cast<int64_t>(usage.cached_tokens));
  Json json = Json::MakeObject();
  json.Set("prompt_tokens", static_cast<int64_t>(usage.prompt_tokens));
  json.Set("completion_tokens", static_cast<int64_t>(usage.completion_tokens));
  json.Set("total_tokens", static_cast<int64_t>(usage.prompt_tokens + usage.completion_tokens));
  json.Set("prompt_tokens_details", std::move(details));
  return json;
}

std::string SseEvent(const Json& data) { return StrCat("data: ", data.Dump(), "\n\n"); }

Json WholeResponse(const ResponseHead& head, const std::vector<ChoicePart>& choices,
                   const Usage& usage) {
  Json list = Json::MakeArray();
  for (const ChoicePart& part : choices) list.Append(Choice(head, part));
  Json whole = Json::MakeObject();
  whole.Set("id", head.id);
  whole.Set("object", head.chat ? "chat.completion" : "text_completion");
  whole.Set("created", head.created);
  whole.Set("model", head.model);
  whole.Set("choices", std::move(list));
  whole.Set("usage", ToJson(usage));
  return whole;
}

Json CompletionLogprobs(const Tokenizer& tokenizer, const std::vector<SampledToken>& tokens,
                        size_t& text_offset) {
  Json texts = Json::MakeArray(), chosen = Json::MakeArray(), tops = Json::MakeArray(),
       offsets = Json::MakeArray();
  for (const SampledToken& token : tokens) {
    std::string text = TextOf(tokenizer, token.id);
    Json top = Json::MakeObject();
    for (const auto& [id, logprob] : token.top) top.Set(TextOf(tokenizer, id), Floor(logprob));
    top.Set(text, Floor(token.logprob));
    offsets.Append(static_cast<int64_t>(text_offset));
    text_offset += CharactersOf(text);
    texts.Append(std::move(text));
    chosen.Append(Floor(token.logprob));
    tops.Append(std::move(top));
  }
  Json logprobs = Json::MakeObject();
  logprobs.Set("text_offset", std::move(offsets));
  logprobs.Set("token_logprobs", std::move(chosen));
  logprobs.Set("tokens", std::move(texts));
  logprobs.Set("top_logprobs", std::move(tops));
  return logprobs;
}

Json ChatLogprobs(const Tokenizer& tokenizer, const std::vector<SampledToken>& tokens) {
  Json content = Json::MakeArray();
  for (const SampledToken& token : tokens) {
    Json entry = ChatToken(tokenizer, token.id, token.logprob);
    Json top = Json::MakeArray();
    for (const auto& [id, logprob] : token.top) top.Append(ChatToken(tokenizer, id, logprob));
    entry.Set("top_logprobs", std::move(top));
    content.Append(std::move(entry));
  }
  return Json(Json::Object{{"content", std::move(content)}});
}

}  // namespace pinion
