#include "engine/serve/pooling_writer.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "engine/base/base64.h"
#include "engine/base/json_text.h"
#include "engine/base/strings.h"
#include "engine/run/pooler.h"
#include "engine/serve/vector_form.h"

namespace pinion {
namespace {

std::string UsageText(const Usage& usage) {
  return StrCat("\"usage\":{\"prompt_tokens\":", usage.prompt_tokens,
                ",\"total_tokens\":", usage.prompt_tokens,
                ",\"completion_tokens\":0,\"prompt_tokens_details\":null}");
}

}  // namespace

std::vector<float> PoolingWriter::VectorOf(const ChoicePart& choice) const {
  if (facts_.task == ModelTask::kScore)
    return wishes_.activates ? Activated(choice.pooled, facts_.label_activation) : choice.pooled;
  return FinishEmbedding(choice.pooled, wishes_.dimensions,
                         wishes_.normalises.value_or(facts_.normalises && wishes_.activates));
}

std::vector<float> PoolingWriter::ScoresOf(const std::vector<ChoicePart>& choices) const {
  std::vector<float> scores;
  if (facts_.task == ModelTask::kScore) {
    const auto activation = wishes_.activates ? facts_.pair_activation : ScoreActivation::kNone;
    for (const ChoicePart& choice : choices)
      scores.push_back(Activated(choice.pooled, activation).front());
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
  if (wishes_.form.kind == VectorForm::Kind::kNumbers) return AppendNumbers(out, values);
  std::string bytes;
  AppendElements(bytes, values, wishes_.form);
  out += '"';
  AppendBase64(out, bytes);
  out += '"';
}

const char* PoolingWriter::media() const {
  return wishes_.form.json() ? AnswerWriter::media() : "application/octet-stream";
}

// The fields that JSON has around the vectors, for an answer that has no room for them.
HttpFields PoolingWriter::Header(const std::vector<ChoicePart>& choices, const Usage& usage) const {
  if (wishes_.form.kind != VectorForm::Kind::kBytes) return {};
  std::string out = StrCat("{\"id\":\"", head_.id, "\",\"created\":", head_.created, ",\"model\":");
  AppendJsonString(out, head_.model);
  out += ",\"data\":[";
  size_t start = 0;
  for (size_t i = 0; i < choices.size(); ++i) {
    const size_t width = VectorOf(choices[i]).size();
    const size_t end = start + width * SizeOf(wishes_.form.type);
    out += StrCat(i > 0 ? "," : "", "{\"index\":", i, ",\"embed_dtype\":\"",
                  Name(wishes_.form.type), "\",\"endianness\":\"", wishes_.form.order,
                  "\",\"start\":", std::exchange(start, end), ",\"end\":", end, ",\"shape\":[",
                  width, "]}");
  }
  return {{"metadata", out + "]," + UsageText(usage) + "}"}};
}

void PoolingWriter::AppendClass(std::string& out, const ChoicePart& choice) const {
  const std::vector<float> values = VectorOf(choice);
  const auto best =
      static_cast<size_t>(std::max_element(values.begin(), values.end()) - values.begin());
  out += ",\"label\":";
  AppendJsonString(out, facts_.labels[best]);
  out += ",\"probs\":";
  AppendNumbers(out, values);
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

std::string PoolingWriter::Elements(const std::vector<ChoicePart>& choices) const {
  std::string out;
  for (const ChoicePart& choice : choices) AppendElements(out, VectorOf(choice), wishes_.form);
  return out;
}

// Each text's list of vectors, which has one: those of single tokens are not given out.
std::string PoolingWriter::LlamaList(const std::vector<ChoicePart>& choices) const {
  std::string out = "[";
  for (size_t i = 0; i < choices.size(); ++i) {
    out += StrCat(i > 0 ? "," : "", "{\"index\":", i, ",\"embedding\":[");
    AppendNumbers(out, VectorOf(choices[i]));
    out += "]}";
  }
  return out + "]";
}

std::string PoolingWriter::Whole(const std::vector<ChoicePart>& choices, const Usage& usage) const {
  if (api_ == Api::kRerank) return Ranking(choices, usage);
  if (api_ == Api::kLlamaEmbed) return LlamaList(choices);
  if (!wishes_.form.json()) return Elements(choices);
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
