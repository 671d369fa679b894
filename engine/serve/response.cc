#include "engine/serve/response.h"

#include <algorithm>
#include <functional>
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

std::string NameOf(const Tokenizer& tokenizer, int32_t id, bool as_id) {
  return as_id ? StrCat("token_id:", id) : TextOf(tokenizer, id);
}

// Code points, because Python clients slice text by them.
size_t CharactersOf(std::string_view text) {
  const auto begins = [](char byte) { return (byte & 0xC0) != 0x80; };
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), begins));
}

Json OrNull(const std::string& text) { return text.empty() ? Json() : Json(text); }

// Whole answers have every member of their APIs' schemas, null if there is nothing to say: typed
// clients find vLLM's extensions on an object only if the answer has them.
Json Message(const ResponseHead& head, const ChoicePart& part) {
  Json::Object parsed = ParsedFields(head, part, /*delta=*/false);
  const bool silent = part.text.empty() && !parsed.empty();
  Json message(Json::Object{
      {"role", "assistant"}, {"content", silent ? Json() : Json(part.text)}, {"refusal", Json()}});
  for (const char* name : {"reasoning_content", "reasoning"})
    if (part.reasoning.empty()) message.Set(name, Json());
  for (auto& [name, value] : parsed) message.Set(name, std::move(value));
  return message;
}

Json Choice(const ResponseHead& head, const ChoicePart& part) {
  Json choice = Json::MakeObject();
  choice.Set("index", static_cast<int64_t>(part.index));
  if (!head.chat)
    choice.Set("text", part.text);
  else
    choice.Set("message", Message(head, part));
  choice.Set("logprobs", part.logprobs);
  choice.Set("finish_reason", OrNull(part.finish_reason));
  choice.Set("stop_reason", part.stop_reason);
  if (!head.chat) choice.Set("prompt_logprobs", part.prompt_logprobs);
  if (!head.chat) choice.Set("prompt_token_ids", part.prompt_token_ids);
  choice.Set("token_ids", part.token_ids);
  return choice;
}

Json ChatToken(const Tokenizer& tokenizer, int32_t id, double logprob, bool as_id, bool with_id) {
  const std::string text = TextOf(tokenizer, id);
  Json bytes = Json::MakeArray();
  for (const unsigned char byte : text) bytes.Append(static_cast<int>(byte));
  Json token = Json::MakeObject();
  if (with_id) token.Set("id", id);
  token.Set("token", as_id ? NameOf(tokenizer, id, true) : text);
  token.Set("logprob", Floor(logprob));
  token.Set("bytes", std::move(bytes));
  return token;
}

}  // namespace

std::string CallId(const std::string& answer, size_t choice, size_t call) {
  constexpr uint64_t kMost = 101559956668416;  // 36^9
  const auto seed = static_cast<uint64_t>(std::hash<std::string>{}(answer));
  uint64_t number = (seed % kMost + (choice << 20) + call) % kMost;
  std::string id(9, '0');
  for (size_t i = id.size(); i-- > 0; number /= 36)
    id[i] = "0123456789abcdefghijklmnopqrstuvwxyz"[number % 36];
  return id;
}

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

Json::Object ParsedFields(const ResponseHead& head, const ChoicePart& part, bool delta) {
  Json::Object fields;
  if (part.reasoning.empty() && part.calls.empty()) return fields;
  if (!part.reasoning.empty()) {
    fields.emplace_back("reasoning_content", part.reasoning);
    fields.emplace_back("reasoning", part.reasoning);
  }
  Json list = Json::MakeArray();
  for (size_t i = 0; i < part.calls.size(); ++i) {
    const size_t index = part.first_call + i;
    Json call = Json::MakeObject();
    if (delta) call.Set("index", static_cast<int64_t>(index));
    Json function = Json::MakeObject();
    if (!part.calls[i].name.empty()) {
      call.Set("id", CallId(head.id, part.index, index));
      call.Set("type", "function");
      function.Set("name", part.calls[i].name);
    }
    function.Set("arguments", part.calls[i].arguments);
    call.Set("function", std::move(function));
    list.Append(std::move(call));
  }
  if (!part.calls.empty()) fields.emplace_back("tool_calls", std::move(list));
  return fields;
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
  whole.Set("service_tier", Json());
  whole.Set("system_fingerprint", Json());
  whole.Set("choices", std::move(list));
  whole.Set("usage", ToJson(usage));
  if (!head.chat || choices.empty()) return whole;
  whole.Set("prompt_logprobs", choices.front().prompt_logprobs);
  whole.Set("prompt_token_ids", choices.front().prompt_token_ids);
  return whole;
}

std::string CompletionLogprobs::AddText(int32_t id, size_t& text_offset) {
  const std::string text = TextOf(tokenizer_, id);
  offsets_.emplace_back(static_cast<int64_t>(text_offset));
  text_offset += CharactersOf(text);
  texts_.emplace_back(as_ids_ ? NameOf(tokenizer_, id, true) : text);
  return texts_.back().string();
}

void CompletionLogprobs::AddFirst(int32_t id, size_t& text_offset) {
  AddText(id, text_offset);
  chosen_.emplace_back();
  tops_.emplace_back();
}

void CompletionLogprobs::Add(const SampledToken& token, size_t& text_offset) {
  const std::string text = AddText(token.id, text_offset);
  Json top = Json::MakeObject();
  for (size_t i = 0; i < std::min(count_, token.top.size()); ++i)
    top.Set(NameOf(tokenizer_, token.top[i].first, as_ids_), Floor(token.top[i].second));
  top.Set(text, Floor(token.logprob));
  chosen_.emplace_back(Floor(token.logprob));
  tops_.push_back(std::move(top));
}

Json CompletionLogprobs::Take() {
  Json logprobs = Json::MakeObject();
  logprobs.Set("text_offset", Json(std::move(offsets_)));
  logprobs.Set("token_logprobs", Json(std::move(chosen_)));
  logprobs.Set("tokens", Json(std::move(texts_)));
  logprobs.Set("top_logprobs", Json(std::move(tops_)));
  return logprobs;
}

Json PromptLogprobs(const Tokenizer& tokenizer, const std::vector<SampledToken>& rated, int count) {
  const auto entry = [&](int32_t id, double logprob, size_t rank) {
    return Json(Json::Object{{"logprob", Floor(logprob)},
                             {"rank", static_cast<int64_t>(rank)},
                             {"decoded_token", TextOf(tokenizer, id)}});
  };
  Json list(Json::Array{Json()});
  for (const SampledToken& token : rated) {
    Json ids(Json::Object{{StrCat(token.id), entry(token.id, token.logprob, token.rank)}});
    for (size_t i = 0; i < std::min(static_cast<size_t>(count), token.top.size()); ++i)
      if (token.top[i].first != token.id)
        ids.Set(StrCat(token.top[i].first), entry(token.top[i].first, token.top[i].second, i + 1));
    list.Append(std::move(ids));
  }
  return list;
}

Json ChatLogprobs(const Tokenizer& tokenizer, const std::vector<SampledToken>& tokens, bool as_ids,
                  bool with_ids) {
  Json content = Json::MakeArray();
  for (const SampledToken& token : tokens) {
    Json entry = ChatToken(tokenizer, token.id, token.logprob, as_ids, with_ids);
    Json top = Json::MakeArray();
    for (const auto& [id, logprob] : token.top)
      top.Append(ChatToken(tokenizer, id, logprob, as_ids, with_ids));
    entry.Set("top_logprobs", std::move(top));
    content.Append(std::move(entry));
  }
  return Json(Json::Object{{"content", std::move(content)}});
}

}  // namespace pinion
