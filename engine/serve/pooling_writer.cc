#include "engine/serve/pooling_writer.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numeric>
#include <span>
#include <utility>

#include "engine/base/json_text.h"
#include "engine/base/strings.h"
#include "engine/run/pooler.h"

namespace pinion {
namespace {

// The shortest text that reads back as the same float; null for what JSON has no number for.
void AppendNumber(std::string& out, float value) {
  if (!std::isfinite(value)) {
    out += "null";
    return;
  }
  char text[32];
  const auto end = std::to_chars(text, text + sizeof text, value);
  out.append(text, end.ptr);
}

void AppendList(std::string& out, const std::vector<float>& values) {
  out += '[';
  for (size_t i = 0; i < values.size(); ++i) {
    if (i > 0) out += ',';
    AppendNumber(out, values[i]);
  }
  out += ']';
}

// RFC 4648, section 4, of the floats' bytes, least significant first.
void AppendBase64(std::string& out, const std::vector<float>& values) {
  constexpr char kDigits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  const auto bytes = std::as_bytes(std::span(values));
  for (size_t i = 0; i < bytes.size(); i += 3) {
    const size_t count = std::min<size_t>(3, bytes.size() - i);
    uint32_t group = 0;
    for (size_t j = 0; j < 3; ++j)
      group = group << 8 | (j < count ? static_cast<uint32_t>(bytes[i + j]) : 0);
    for (size_t j = 0; j < 4; ++j) out += j <= count ? kDigits[group >> (18 - 6 * j) & 63] : '=';
  }
}

std::string UsageText(const Usage& usage) {
  return StrCat("\"usage\":{\"prompt_tokens\":", usage.prompt_tokens,
                ",\"total_tokens\":", usage.prompt_tokens,
                ",\"completion_tokens\":0,\"prompt_tokens_details\":null}");
}

}  // namespace

std::vector<float> PoolingWriter::VectorOf(const ChoicePart& choice) const {
  if (facts_.task == ModelTask::kScore)
    return wishes_.activates ? Probabilities(choice.pooled) : choice.pooled;
  return FinishEmbedding(choice.pooled, wishes_.dimensions,
                         wishes_.normalises.value_or(facts_.normalises && wishes_.activates));
}

std::vector<float> PoolingWriter::ScoresOf(const std::vector<ChoicePart>& choices) const {
  std::vector<float> scores;
  if (facts_.task == ModelTask::kScore) {
    for (const ChoicePart& choice : choices) scores.push_back(VectorOf(choice).front());
    return scores;
  }
  const size_t queries = wishes_.queries.size();
  for (size_t i = queries; i < choices.size(); ++i)
    scores.push_back(static_cast<float>(
        Cosine(choices[queries == 1 ? 0 : i - queries].pooled, choices[i].pooled)));
  return scores;
}

void PoolingWriter::AppendVector(std::string& out, const ChoicePart& choice,
                                 const char* field) const {
  out += StrCat(",\"object\":\"", api_ == Api::kPooling ? "pooling" : "embedding", "\",\"", field,
                "\":");
  const std::vector<float> values = VectorOf(choice);
  if (!wishes_.base64) return AppendList(out, values);
  out += '"';
  AppendBase64(out, values);
  out += '"';
}

void PoolingWriter::AppendClass(std::string& out, const ChoicePart& choice) const {
  const std::vector<float> values = VectorOf(choice);
  const auto best =
      static_cast<size_t>(std::max_element(values.begin(), values.end()) - values.begin());
  out += ",\"label\":";
  AppendJsonString(out, facts_.labels[best]);
  out += ",\"probs\":";
  AppendList(out, values);
  out += StrCat(",\"num_classes\":", values.size());
}

std::string PoolingWriter::Ranking(const std::vector<ChoicePart>& choices,
                                   const Usage& usage) const {
  const std::vector<float> scores = ScoresOf(choices);
  std::vector<size_t> order(scores.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return scores[a] > scores[b]; });
  if (wishes_.top_n > 0 && wishes_.top_n < order.size()) order.resize(wishes_.top_n);
  std::string out = StrCat("{\"id\":\"", head_.id, "\",\"model\":");
  AppendJsonString(out, head_.model);
  out += StrCat(",", UsageText(usage), ",\"results\":[");
  for (size_t i = 0; i < order.size(); ++i) {
    out += StrCat(i > 0 ? "," : "", "{\"index\":", order[i]);
    if (wishes_.return_documents) {
      out += ",\"document\":{\"text\":";
      AppendJsonString(out, wishes_.documents[order[i]]);
      out += '}';
    }
    out += ",\"relevance_score\":";
    AppendNumber(out, scores[order[i]]);
    out += '}';
  }
  return out + "]}";
}

std::string PoolingWriter::Whole(const std::vector<ChoicePart>& choices, const Usage& usage) const {
  if (api_ == Api::kRerank) return Ranking(choices, usage);
  const std::vector<float> scores = api_ == Api::kScore ? ScoresOf(choices) : std::vector<float>();
  std::string out = StrCat("{\"id\":\"", head_.id,
                           "\",\"object\":\"list\",\"created\":", head_.created, ",\"model\":");
  AppendJsonString(out, head_.model);
  out += ",\"data\":[";
  const size_t count = api_ == Api::kScore ? scores.size() : choices.size();
  for (size_t i = 0; i < count; ++i) {
    out += StrCat(i > 0 ? "," : "", "{\"index\":", i);
    if (api_ == Api::kScore) {
      out += ",\"object\":\"score\",\"score\":";
      AppendNumber(out, scores[i]);
    } else if (api_ == Api::kClassify) {
      AppendClass(out, choices[i]);
    } else {
      AppendVector(out, choices[i], api_ == Api::kPooling ? "data" : "embedding");
    }
    out += '}';
  }
  return out + "]," + UsageText(usage) + "}";
}

}  // namespace pinion
