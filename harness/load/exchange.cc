#include "harness/load/exchange.h"

#include <concepts>
#include <limits>
#include <type_traits>

#include "engine/base/strings.h"

namespace pinion::harness {
namespace {

// Each type's members are listed once: `member` is told their names and, as `it` is const or not,
// writes or reads them.
template <typename T, typename Type>
concept Is = std::same_as<std::remove_const_t<T>, Type>;

void Members(Is<RequestStyle> auto& it, const auto& member) {
  member("endpoint", it.endpoint);
  member("model", it.model);
  member("ignore_eos", it.ignore_eos);
  member("temperature", it.temperature);
  member("extra_body", it.extra_body);
}

void Members(Is<TokenScale> auto& it, const auto& member) {
  member("per_word", it.per_word);
  member("overhead", it.overhead);
  member("is_known", it.is_known);
}

void Members(Is<LoadedServer> auto& it, const auto& member) {
  member("url", it.url.text);
  member("style", it.style);
  member("timeout_s", it.timeout_s);
  member("scale", it.scale);
  member("longest", it.longest);
}

void Members(Is<Lengths> auto& it, const auto& member) {
  member("kind", it.kind);
  member("a", it.a);
  member("b", it.b);
}

void Members(Is<WorkloadShape> auto& it, const auto& member) {
  member("name", it.name);
  member("prompt", it.prompt);
  member("output", it.output);
  member("shared_prefix", it.shared_prefix);
  member("prefixes", it.prefixes);
  member("turns", it.turns);
  member("style", it.style);
}

void Members(Is<Ramp> auto& it, const auto& member) {
  member("exponential", it.exponential);
  member("from", it.from);
  member("to", it.to);
}

void Members(Is<ArrivalPlan> auto& it, const auto& member) {
  member("rate", it.rate);
  member("burstiness", it.burstiness);
  member("ramp", it.ramp);
}

void Members(Is<LoadPlan> auto& it, const auto& member) {
  member("shape", it.shape);
  member("num_prompts", it.num_prompts);
  member("seed", it.seed);
  member("dataset", it.dataset);
  member("trace", it.trace);
  member("answers", it.answers);
  member("arrivals", it.arrivals);
  member("concurrency", it.concurrency);
  member("stop_sending_s", it.stop_sending_s);
  member("deadline_s", it.deadline_s);
  member("last_deadline_s", it.last_deadline_s);
}

// A record's tokens in whole microseconds, the first since it was sent, each next since the one
// before; and their times again.
std::vector<int64_t> GapsOf(const RequestRecord& record) {
  std::vector<int64_t> gaps_us;
  int64_t last_ns = record.sent_ns;
  for (const int64_t time_ns : record.token_ns) {
    gaps_us.push_back((time_ns - last_ns) / 1000);
    last_ns += gaps_us.back() * 1000;
  }
  return gaps_us;
}

void SetTimes(const std::vector<int64_t>& gaps_us, RequestRecord& record) {
  record.token_ns.clear();
  int64_t time_ns = record.sent_ns;
  for (const int64_t gap_us : gaps_us) record.token_ns.push_back(time_ns += gap_us * 1000);
}

void Members(Is<RequestRecord> auto& it, const auto& member) {
  member("conversation", it.conversation);
  member("turn", it.turn);
  member("scheduled_ns", it.scheduled_ns);
  member("sent_ns", it.sent_ns);
  auto gaps_us = GapsOf(it);
  member("token_us", gaps_us);
  if constexpr (!std::is_const_v<std::remove_reference_t<decltype(it)>>) SetTimes(gaps_us, it);
  member("ended_ns", it.ended_ns);
  member("output_len", it.output_len);
  member("prompt_tokens", it.prompt_tokens);
  member("output_tokens", it.output_tokens);
  member("cached_tokens", it.cached_tokens);
  member("status", it.status);
  member("error", it.error);
  member("cut", it.cut);
}

void Members(Is<GeneratorLoad> auto& it, const auto& member) {
  member("cpu_s", it.cpu_s);
  member("cpu_share", it.cpu_share);
  member("late_s", it.late_s);
  member("lag_s", it.lag_s);
  member("cpus", it.cpus);
}

void Members(Is<ServerLoadResult> auto& it, const auto& member) {
  member("open_loop", it.open_loop);
  member("start_ns", it.start_ns);
  member("end_ns", it.end_ns);
  member("requests", it.requests);
  member("most_at_once", it.most_at_once);
  member("never_sent", it.never_sent);
  member("generator", it.generator);
}

template <typename T>
constexpr bool kIsOptional = false;
template <typename T>
constexpr bool kIsOptional<std::optional<T>> = true;
template <typename T>
constexpr bool kIsList = false;
template <typename T>
constexpr bool kIsList<std::vector<T>> = true;
// Written as signed integers, which JSON keeps exactly: a seed has 64 bits.
template <typename T>
constexpr bool kIsWhole = std::is_enum_v<T> || (std::integral<T> && !std::same_as<T, bool>);

template <typename T>
Json Write(const T& it) {
  if constexpr (kIsOptional<T>) {
    return it ? Write(*it) : Json();
  } else if constexpr (kIsList<T>) {
    Json list = Json::MakeArray();
    for (const auto& one : it) list.Append(Write(one));
    return list;
  } else if constexpr (kIsWhole<T>) {
    return static_cast<int64_t>(it);
  } else if constexpr (std::convertible_to<T, Json>) {
    return it;
  } else {
    Json object = Json::MakeObject();
    const auto member = [&](const char* key, const auto& value) { object.Set(key, Write(value)); };
    Members(it, member);
    return object;
  }
}

// False if the JSON is of another type; `at` then becomes the path of keys to it.
template <typename T>
bool Read(const Json& json, T& it, std::string& at) {
  if constexpr (kIsOptional<T>) {
    it.reset();
    return json.is_null() || Read(json, it.emplace(), at);
  } else if constexpr (kIsList<T>) {
    if (!json.is_array()) return false;
    it.resize(json.array().size());
    for (size_t i = 0; i < it.size(); ++i)
      if (!Read(json.array()[i], it[i], at)) return false;
  } else if constexpr (kIsWhole<T>) {
    if (!json.is_int()) return false;
    it = static_cast<T>(json.integer());
  } else if constexpr (std::same_as<T, double>) {
    if (!json.is_number() && !json.is_null()) return false;
    it = json.is_null() ? std::numeric_limits<double>::infinity() : json.number();
  } else if constexpr (std::same_as<T, bool>) {
    if (!json.is_bool()) return false;
    it = json.boolean();
  } else if constexpr (std::same_as<T, std::string>) {
    if (!json.is_string()) return false;
    it = json.string();
  } else if constexpr (std::same_as<T, Json>) {
    it = json;
  } else {
    bool all = true;
    const auto member = [&](const char* key, auto& value) {
      const Json* found = json.Find(key);
      if (!all || (found && Read(*found, value, at))) return;
      all = false;
      at = StrCat(key, at.empty() ? "" : ".", at);
    };
    Members(it, member);
    return all;
  }
  return true;
}

template <typename T>
Result<T> ReadAll(const Json& object) {
  T it;
  std::string at;
  if (Read(object, it, at)) return it;
  return Fail(ErrorCode::kUsage, StrCat("'", at, "' is missing, or of another type"));
}

}  // namespace

Json ToJson(const LoadedServer& server) { return Write(server); }
Json ToJson(const LoadPlan& plan) { return Write(plan); }
Json ToJson(const RequestRecord& record) { return Write(record); }
Json ToJson(const ServerLoadResult& result) { return Write(result); }

Result<LoadedServer> ReadLoadedServer(const Json& object) {
  PINION_ASSIGN(LoadedServer server, ReadAll<LoadedServer>(object));
  PINION_ASSIGN(server.url, ParseServerUrl(server.url.text));
  return server;
}
Result<LoadPlan> ReadLoadPlan(const Json& object) { return ReadAll<LoadPlan>(object); }
Result<RequestRecord> ReadRequestRecord(const Json& object) {
  return ReadAll<RequestRecord>(object);
}
Result<ServerLoadResult> ReadServerLoadResult(const Json& object) {
  return ReadAll<ServerLoadResult>(object);
}

}  // namespace pinion::harness
