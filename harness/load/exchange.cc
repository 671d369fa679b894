#include "harness/load/exchange.h"

#include <cmath>

#include "engine/base/strings.h"

namespace pinion::harness {
namespace {

// JSON has no infinity: null.
Json Limit(double seconds) { return std::isfinite(seconds) ? Json(seconds) : Json(); }

Result<double> ReadLimit(const Json& object, const char* key) {
  const Json* value = object.Find(key);
  if (!value || value->is_null()) return std::numeric_limits<double>::infinity();
  return Require<double>(object, key);
}

template <typename T>
Json MaybeJson(const std::optional<T>& value) {
  return value ? Json(*value) : Json();
}

template <typename T>
Result<std::optional<T>> ReadMaybe(const Json& object, const char* key) {
  const Json* value = object.Find(key);
  if (!value || value->is_null()) return std::optional<T>();
  PINION_ASSIGN(T read, Require<T>(object, key));
  return std::optional<T>(std::move(read));
}

Result<const Json::Array*> List(const Json& object, const char* key) {
  const Json* value = object.Find(key);
  if (!value || !value->is_array())
    return Fail(ErrorCode::kUsage, StrCat("'", key, "' must be a list"));
  return &value->array();
}

Result<std::vector<double>> Numbers(const Json& object, const char* key) {
  PINION_ASSIGN(const Json::Array* list, List(object, key));
  std::vector<double> numbers;
  for (const Json& one : *list) numbers.push_back(one.is_number() ? one.number() : 0);
  return numbers;
}

Result<std::vector<int>> Integers(const Json& object, const char* key) {
  PINION_ASSIGN(const std::vector<double> numbers, Numbers(object, key));
  return std::vector<int>(numbers.begin(), numbers.end());
}

Json ToJson(const Conversation& conversation) {
  Json turns = Json::MakeArray();
  for (const Turn& turn : conversation.turns)
    turns.Append(Json::Object{{"text", turn.text}, {"output_len", turn.output_len}});
  return Json::Object{{"context", conversation.context}, {"turns", std::move(turns)}};
}

Result<Conversation> ReadConversation(const Json& object) {
  Conversation conversation;
  PINION_ASSIGN(conversation.context, Require<std::string>(object, "context"));
  PINION_ASSIGN(const Json::Array* turns, List(object, "turns"));
  for (const Json& one : *turns) {
    Turn turn;
    PINION_ASSIGN(turn.text, Require<std::string>(one, "text"));
    PINION_ASSIGN(turn.output_len, Require<int>(one, "output_len"));
    conversation.turns.push_back(std::move(turn));
  }
  return conversation;
}

Json ToJson(const RequestStyle& style) {
  return Json::Object{{"endpoint", Name(style.endpoint)},
                      {"model", style.model},
                      {"ignore_eos", style.ignore_eos},
                      {"temperature", style.temperature},
                      {"extra_body", style.extra_body}};
}

Result<RequestStyle> ReadStyle(const Json& object) {
  RequestStyle style;
  PINION_ASSIGN(const std::string endpoint, Require<std::string>(object, "endpoint"));
  PINION_ASSIGN(style.endpoint, ParseEndpoint(endpoint));
  PINION_ASSIGN(style.model, Require<std::string>(object, "model"));
  PINION_ASSIGN(style.ignore_eos, Require<bool>(object, "ignore_eos"));
  PINION_ASSIGN(style.temperature, Require<double>(object, "temperature"));
  if (const Json* extra = object.Find("extra_body")) style.extra_body = *extra;
  return style;
}

Json ToJson(const GeneratorLoad& own) {
  return Json::Object{{"cpu_s", own.cpu_s},
                      {"cpu_share", own.cpu_share},
                      {"late_s", Json(own.late_s)},
                      {"lag_s", Json(own.lag_s)},
                      {"cpus", Json(own.cpus)}};
}

Result<GeneratorLoad> ReadGeneratorLoad(const Json& object) {
  GeneratorLoad own;
  PINION_ASSIGN(own.cpu_s, Require<double>(object, "cpu_s"));
  PINION_ASSIGN(own.cpu_share, Require<double>(object, "cpu_share"));
  PINION_ASSIGN(own.late_s, Numbers(object, "late_s"));
  PINION_ASSIGN(own.lag_s, Numbers(object, "lag_s"));
  PINION_ASSIGN(own.cpus, Integers(object, "cpus"));
  return own;
}

}  // namespace

Json ToJson(const RequestRecord& record) {
  Json tokens = Json::MakeArray();
  int64_t last_ns = record.sent_ns;
  for (const int64_t time_ns : record.token_ns) {
    const int64_t gap_us = (time_ns - last_ns) / 1000;
    tokens.Append(gap_us);
    last_ns += gap_us * 1000;
  }
  return Json::Object{{"conversation", static_cast<uint64_t>(record.conversation)},
                      {"turn", static_cast<uint64_t>(record.turn)},
                      {"scheduled_ns", record.scheduled_ns},
                      {"sent_ns", record.sent_ns},
                      {"token_us", std::move(tokens)},
                      {"ended_ns", record.ended_ns},
                      {"output_len", record.output_len},
                      {"prompt_tokens", MaybeJson(record.prompt_tokens)},
                      {"output_tokens", MaybeJson(record.output_tokens)},
                      {"cached_tokens", MaybeJson(record.cached_tokens)},
                      {"status", record.status},
                      {"error", record.error},
                      {"cut", record.cut}};
}

Result<RequestRecord> ReadRequestRecord(const Json& object) {
  RequestRecord record;
  const auto index = [&](const char* key, size_t& member) -> Status {
    PINION_ASSIGN(const int64_t value, Require<int64_t>(object, key));
    member = static_cast<size_t>(value);
    return {};
  };
  PINION_TRY(index("conversation", record.conversation));
  PINION_TRY(index("turn", record.turn));
  PINION_ASSIGN(record.scheduled_ns, Require<int64_t>(object, "scheduled_ns"));
  PINION_ASSIGN(record.sent_ns, Require<int64_t>(object, "sent_ns"));
  PINION_ASSIGN(const std::vector<double> gaps_us, Numbers(object, "token_us"));
  int64_t time_ns = record.sent_ns;
  for (const double gap_us : gaps_us)
    record.token_ns.push_back(time_ns += static_cast<int64_t>(gap_us) * 1000);
  PINION_ASSIGN(record.ended_ns, Require<int64_t>(object, "ended_ns"));
  PINION_ASSIGN(record.output_len, Require<int>(object, "output_len"));
  PINION_ASSIGN(record.prompt_tokens, ReadMaybe<int>(object, "prompt_tokens"));
  PINION_ASSIGN(record.output_tokens, ReadMaybe<int>(object, "output_tokens"));
  PINION_ASSIGN(record.cached_tokens, ReadMaybe<int>(object, "cached_tokens"));
  PINION_ASSIGN(record.status, Require<int>(object, "status"));
  PINION_ASSIGN(record.error, Require<std::string>(object, "error"));
  PINION_ASSIGN(record.cut, Require<bool>(object, "cut"));
  return record;
}

Json ToJson(const ServerLoadPlan& plan) {
  Json conversations = Json::MakeArray();
  for (const Conversation& one : plan.conversations) conversations.Append(ToJson(one));
  return Json::Object{{"url", plan.url.text},
                      {"style", ToJson(plan.style)},
                      {"conversations", std::move(conversations)},
                      {"arrival_s", plan.arrival_s ? Json(*plan.arrival_s) : Json()},
                      {"concurrency", plan.concurrency},
                      {"stop_sending_s", Limit(plan.stop_sending_s)},
                      {"deadline_s", Limit(plan.deadline_s)},
                      {"last_deadline_s", MaybeJson(plan.last_deadline_s)},
                      {"longest", plan.longest},
                      {"timeout_s", plan.timeout_s},
                      {"cpus", Json(plan.cpus)}};
}

Result<ServerLoadPlan> ReadServerLoadPlan(const Json& object) {
  ServerLoadPlan plan;
  PINION_ASSIGN(const std::string url, Require<std::string>(object, "url"));
  PINION_ASSIGN(plan.url, ParseServerUrl(url));
  const Json* style = object.Find("style");
  if (!style) return Fail(ErrorCode::kUsage, "a generator's order needs 'style'");
  PINION_ASSIGN(plan.style, ReadStyle(*style));
  PINION_ASSIGN(const Json::Array* conversations, List(object, "conversations"));
  for (const Json& one : *conversations) {
    PINION_ASSIGN(Conversation conversation, ReadConversation(one));
    plan.conversations.push_back(std::move(conversation));
  }
  if (const Json* arrivals = object.Find("arrival_s"); arrivals && !arrivals->is_null()) {
    PINION_ASSIGN(plan.arrival_s, Numbers(object, "arrival_s"));
  }
  PINION_ASSIGN(plan.concurrency, Require<int>(object, "concurrency"));
  PINION_ASSIGN(plan.stop_sending_s, ReadLimit(object, "stop_sending_s"));
  PINION_ASSIGN(plan.deadline_s, ReadLimit(object, "deadline_s"));
  PINION_ASSIGN(plan.last_deadline_s, ReadMaybe<double>(object, "last_deadline_s"));
  PINION_ASSIGN(plan.longest, Require<int>(object, "longest"));
  PINION_ASSIGN(plan.timeout_s, Require<double>(object, "timeout_s"));
  PINION_ASSIGN(plan.cpus, Integers(object, "cpus"));
  return plan;
}

Json ToJson(const ServerLoadResult& result) {
  Json requests = Json::MakeArray();
  for (const RequestRecord& record : result.requests) requests.Append(ToJson(record));
  return Json::Object{{"open_loop", result.open_loop},
                      {"start_ns", result.start_ns},
                      {"end_ns", result.end_ns},
                      {"requests", std::move(requests)},
                      {"most_at_once", static_cast<uint64_t>(result.most_at_once)},
                      {"never_sent", static_cast<uint64_t>(result.never_sent)},
                      {"generator", ToJson(result.generator)}};
}

Result<ServerLoadResult> ReadServerLoadResult(const Json& object) {
  ServerLoadResult result;
  PINION_ASSIGN(result.open_loop, Require<bool>(object, "open_loop"));
  PINION_ASSIGN(result.start_ns, Require<int64_t>(object, "start_ns"));
  PINION_ASSIGN(result.end_ns, Require<int64_t>(object, "end_ns"));
  PINION_ASSIGN(const int64_t most_at_once, Require<int64_t>(object, "most_at_once"));
  PINION_ASSIGN(const int64_t never_sent, Require<int64_t>(object, "never_sent"));
  result.most_at_once = static_cast<size_t>(most_at_once);
  result.never_sent = static_cast<size_t>(never_sent);
  PINION_ASSIGN(const Json::Array* requests, List(object, "requests"));
  for (const Json& one : *requests) {
    PINION_ASSIGN(RequestRecord record, ReadRequestRecord(one));
    result.requests.push_back(std::move(record));
  }
  const Json* generator = object.Find("generator");
  if (!generator) return Fail(ErrorCode::kUsage, "a load's result needs 'generator'");
  PINION_ASSIGN(result.generator, ReadGeneratorLoad(*generator));
  return result;
}

}  // namespace pinion::harness
