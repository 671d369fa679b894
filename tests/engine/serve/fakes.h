#pragma once

#include <algorithm>
#include <atomic>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "engine/run/engine.h"
#include "engine/text/tokenizer.h"

namespace pinion {

// Token i is byte i; token 256 is the special end token "<end>".
class ByteTokenizer : public Tokenizer {
 public:
  ByteTokenizer() {
    special_tokens_["eos_token"] = "<end>";
    chat_template_ = "(the test renders)";
  }
  void SetToolTemplate(std::string text) { tool_template_ = std::move(text); }
  Result<std::vector<int32_t>> Encode(std::string_view text, bool) const override {
    std::vector<int32_t> ids;
    for (const unsigned char byte : text) ids.push_back(byte);
    return ids;
  }
  std::string Decode(std::span<const int32_t> ids, bool skip_special_tokens) const override {
    std::string text;
    for (const int32_t id : ids) {
      if (id < 256) text += static_cast<char>(id);
      if (id == 256 && !skip_special_tokens) text += "<end>";
    }
    return text;
  }
  std::string TokenText(int32_t id) const override { return Decode(std::span(&id, 1), false); }
  std::optional<int32_t> TokenId(std::string_view) const override { return std::nullopt; }
  bool is_special(int32_t id) const override { return id == 256; }
  size_t vocabulary_size() const override { return 257; }
};

// Answers every request with "abcdef..." one letter a step, starting at the seed's letter, then the
// end token after `letters`. A prompt that begins with 'H' is held: it runs but yields nothing; one
// that begins with '!' is refused.
class FakeEngine : public Engine {
 public:
  static constexpr int kEnd = 256;
  explicit FakeEngine(int letters = 26) : letters_(letters) {}

  const EngineInfo& info() const override { return info_; }
  const ModelFiles& model() const override { return files_; }
  const FormatPlan& formats() const override { return formats_; }
  EngineStats stats() const override {
    EngineStats stats;
    stats.scheduler.running = live_.size();
    stats.steps = steps_;
    stats.output_tokens = output_tokens_;
    return stats;
  }
  Json ServerInfo() const override { return Json::MakeObject(); }

  Status Add(Request request) override {
    if (request.prompt_ids.at(0) == '!') return Fail(ErrorCode::kUsage, "the prompt is refused");
    if (on_add) on_add(request);
    const uint64_t id = request.id;
    live_.emplace(id, Live{std::move(request), 0});
    live = static_cast<int>(live_.size());
    return {};
  }
  void Abort(uint64_t id) override {
    aborted += static_cast<int>(live_.erase(id));
    live = static_cast<int>(live_.size());
  }
  bool idle() const override {
    for (const auto& [id, sequence] : live_)
      if (!sequence.held()) return false;
    return true;
  }
  void Step(std::vector<TokenEvent>& events) override {
    ++steps_;
    for (auto it = live_.begin(); it != live_.end();) {
      if (it->second.held()) {
        ++it;
        continue;
      }
      events.push_back(NextToken(it->first, it->second));
      it = events.back().finish == FinishReason::kNone ? std::next(it) : live_.erase(it);
    }
    live = static_cast<int>(live_.size());
  }
  void SetScoreSink(ScoreSink) override {}
  void DropPrefixCache() override {}

  std::atomic<int> aborted{0}, live{0};
  std::function<void(const Request&)> on_add;  // on the engine's thread
  int line = 0;                                // letters between new lines; 0: there are none
  int64_t token_ns = 0;  // from one token of a sequence to the next, as events tell

 private:
  struct Live {
    Request request;
    int given = 0;
    bool held() const { return request.prompt_ids.at(0) == 'H'; }
  };

  // Token i of the prompt has the log-probability -i and the rank i + 1; 'y' is the best, 'z' next.
  static std::vector<SampledToken> Rated(const Request& request) {
    std::vector<SampledToken> tokens;
    if (request.params.prompt_logprobs < 0) return tokens;
    for (size_t i = 1; i < request.prompt_ids.size(); ++i) {
      SampledToken token{
          request.prompt_ids[i], -static_cast<double>(i), {{'y', -0.25}, {'z', -0.5}}};
      token.top.resize(std::min<size_t>(2, static_cast<size_t>(request.params.prompt_logprobs)));
      token.rank = static_cast<uint32_t>(i + 1);
      tokens.push_back(std::move(token));
    }
    return tokens;
  }

  TokenEvent NextToken(uint64_t id, Live& sequence) {
    const SamplingParams& params = sequence.request.params;
    const auto first = static_cast<int>(params.seed.value_or(0));
    const bool end = sequence.given == letters_;
    TokenEvent event;
    event.request = id;
    if (sequence.given == 0) event.rated_prompt = Rated(sequence.request);
    event.prompt_tokens = sequence.request.prompt_ids.size();
    if (sequence.request.score) {
      event.finish = FinishReason::kLength;
      return event;
    }
    ++output_tokens_;
    event.has_token = true;
    event.token = {end ? kEnd : 'a' + (first + sequence.given) % 26, -0.5, {}};
    if (line > 0 && sequence.given % (line + 1) == line) event.token.id = '\n';
    event.now_ns = sequence.given * token_ns;
    if (params.logprobs > 0) event.token.top = {{event.token.id, -0.5}, {'z', -2}};
    event.output_tokens = static_cast<size_t>(++sequence.given);
    if (end)
      event.finish = FinishReason::kStop;
    else if (sequence.given == params.max_tokens)
      event.finish = FinishReason::kLength;
    return event;
  }

  int letters_;
  EngineInfo info_;
  ModelFiles files_;
  FormatPlan formats_;
  std::map<uint64_t, Live> live_;
  uint64_t steps_ = 0, output_tokens_ = 0;
};

}  // namespace pinion
