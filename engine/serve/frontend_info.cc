// Facts about the model and the front end, for clients of vLLM and of llama-server.

#include <cctype>
#include <utility>

#include "engine/base/strings.h"
#include "engine/base/version.h"
#include "engine/serve/frontend.h"
#include "engine/serve/incoming.h"
#include "engine/serve/schema_llama.h"

namespace pinion {
namespace {

constexpr std::string_view kModels = "/v1/models/";

void SendJson(HttpReply& reply, const Json& body) {
  reply.Send(200, "application/json", body.Dump());
}

// "%2F" and the like, in which some clients write the slashes of a model's name.
std::string PercentDecoded(std::string_view text) {
  const auto value = [](char c) {
    return c <= '9' ? c - '0' : std::tolower(static_cast<unsigned char>(c)) - 'a' + 10;
  };
  const auto is_hex = [](char c) { return std::isxdigit(static_cast<unsigned char>(c)) != 0; };
  std::string decoded;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '%' && i + 2 < text.size() && is_hex(text[i + 1]) && is_hex(text[i + 2])) {
      decoded += static_cast<char>(value(text[i + 1]) * 16 + value(text[i + 2]));
      i += 2;
    } else {
      decoded += text[i];
    }
  }
  return decoded;
}

}  // namespace

void Frontend::Models(HttpRequest request, Reply reply, const EndpointFacts&) {
  const auto called = [this](const std::string& name) {
    Json model = Json::MakeObject();
    model.Set("id", name);
    model.Set("object", "model");
    model.Set("created", created_);
    model.Set("owned_by", "pinion");
    model.Set("root", model_.root);
    model.Set("parent", Json());
    model.Set("max_model_len", static_cast<int64_t>(max_model_len_));
    return model;
  };
  if (!request.path.starts_with(kModels)) {
    Json::Array models = {called(model_.name)};
    for (const std::string& alias : model_.aliases) models.push_back(called(alias));
    return SendJson(*reply, Json(Json::Object{{"object", "list"}, {"data", Json(models)}}));
  }
  const std::string name = PercentDecoded(request.path.substr(kModels.size()));
  if (model_.IsCalled(name)) return SendJson(*reply, called(name));
  Refuse(*reply, request.path, UnknownModel(name, model_));
}

bool Frontend::IsModelPath(std::string_view path) { return path.starts_with(kModels); }

void Frontend::Load(HttpRequest, Reply reply, const EndpointFacts&) {
  const size_t requests = incoming_.size() + pending_.size() + live_.size() + writing_.size();
  SendJson(*reply, Json(Json::Object{{"server_load", static_cast<int64_t>(requests)}}));
}

void Frontend::TokenizerInfo(HttpRequest, Reply reply, const EndpointFacts&) {
  Json info = Json::MakeObject();
  for (const auto& [name, token] : tokenizer_.special_tokens()) info.Set(name, token);
  info.Set("vocab_size", static_cast<int64_t>(tokenizer_.vocabulary_size()));
  info.Set("model_max_length", static_cast<int64_t>(max_model_len_));
  info.Set("chat_template",
           tokenizer_.chat_template() ? Json(*tokenizer_.chat_template()) : Json());
  SendJson(*reply, info);
}

void Frontend::Props(HttpRequest, Reply reply, const EndpointFacts&) {
  const SamplingParams& defaults = model_.defaults.params;
  Json params = Json::MakeObject();
  params.Set("n_predict", -1);
  params.Set("seed", -1);
  params.Set("temperature", defaults.temperature);
  params.Set("top_k", defaults.top_k);
  params.Set("top_p", defaults.top_p);
  params.Set("min_p", defaults.min_p);
  params.Set("repeat_penalty", defaults.repetition_penalty);
  params.Set("repeat_last_n", static_cast<int64_t>(kLlamaPenaltyWindow));
  params.Set("presence_penalty", defaults.presence_penalty);
  params.Set("frequency_penalty", defaults.frequency_penalty);
  Json settings = Json::MakeObject();
  settings.Set("n_ctx", static_cast<int64_t>(max_model_len_));
  settings.Set("params", std::move(params));
  const auto special = [this](const char* name) {
    const auto found = tokenizer_.special_tokens().find(name);
    return found == tokenizer_.special_tokens().end() ? std::string() : found->second;
  };
  Json props = Json::MakeObject();
  props.Set("default_generation_settings", std::move(settings));
  props.Set("total_slots", static_cast<int64_t>(slots_));
  props.Set("model_path", model_.root);
  props.Set("model_alias", model_.name);
  props.Set("chat_template", tokenizer_.chat_template().value_or(""));
  props.Set("bos_token", special("bos_token"));
  props.Set("eos_token", special("eos_token"));
  props.Set("modalities", Json(Json::Object{{"vision", Json(false)}, {"audio", Json(false)}}));
  props.Set("build_info", StrCat("pinion-", Version()));
  SendJson(*reply, props);
}

// Sequences have no fixed places here: the first ones stand for as many as run. Their prompts are
// their clients' own.
void Frontend::Slots(HttpRequest request, Reply reply, const EndpointFacts&) {
  if (request.query == "fail_on_no_slot=1" && running_ >= slots_)
    return Refuse(*reply, request.path, {503, "no slot is free", "", ""});
  Json list = Json::MakeArray();
  for (size_t i = 0; i < slots_; ++i) {
    Json slot = Json::MakeObject();
    slot.Set("id", static_cast<int64_t>(i));
    slot.Set("n_ctx", static_cast<int64_t>(max_model_len_));
    slot.Set("is_processing", Json(i < running_));
    list.Append(std::move(slot));
  }
  SendJson(*reply, list);
}

void Frontend::ApplyTemplate(HttpRequest request, Reply reply, const EndpointFacts&) {
  Prepare(
      std::move(request), std::move(reply), [this](Incoming& incoming, WorkerPool::Worker& worker) {
        return Answer(preparer_.ApplyTemplate(
            incoming.request, [&worker](const ChatRequest& chat) { return worker.Render(chat); }));
      });
}

}  // namespace pinion
