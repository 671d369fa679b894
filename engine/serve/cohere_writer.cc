#include "engine/serve/cohere_writer.h"

#include <cstdint>

#include "engine/base/base64.h"
#include "engine/base/json_text.h"
#include "engine/base/strings.h"
#include "engine/run/pooler.h"
#include "engine/serve/vector_form.h"

namespace pinion {
namespace {

// `bits`: SignBits; those of "binary" are bytes less 128.
void AppendPacked(std::string& out, std::string_view bits, int less) {
  out += '[';
  for (size_t i = 0; i < bits.size(); ++i)
    out += StrCat(i > 0 ? "," : "", static_cast<int>(static_cast<unsigned char>(bits[i])) - less);
  out += ']';
}

void AppendTyped(std::string& out, std::string_view type, const std::vector<float>& values) {
  if (type == "binary") return AppendPacked(out, SignBits(values), 128);
  if (type == "ubinary") return AppendPacked(out, SignBits(values), 0);
  if (type == "float") return AppendNumbers(out, values);
  std::string bytes;
  AppendElements(bytes, values, {});
  out += '"';
  AppendBase64(out, bytes);
  out += '"';
}

}  // namespace

std::string CohereWriter::Whole(const std::vector<ChoicePart>& choices, const Usage& usage) const {
  std::vector<std::vector<float>> vectors;
  for (const ChoicePart& choice : choices)
    vectors.push_back(FinishEmbedding(choice.pooled, wishes_.dimensions, facts_.normalises));
  std::string out = StrCat("{\"id\":\"", head_.id, "\",\"embeddings\":{");
  for (size_t i = 0; i < wishes_.types.size(); ++i) {
    out += StrCat(i > 0 ? "," : "", "\"", wishes_.types[i], "\":[");
    for (size_t j = 0; j < vectors.size(); ++j) {
      if (j > 0) out += ',';
      AppendTyped(out, wishes_.types[i], vectors[j]);
    }
    out += ']';
  }
  out += "},\"texts\":[";
  for (size_t i = 0; i < wishes_.documents.size(); ++i) {
    if (i > 0) out += ',';
    AppendJsonString(out, wishes_.documents[i]);
  }
  return out + StrCat("],\"response_type\":\"embeddings_by_type\",\"meta\":{\"api_version\":",
                      "{\"version\":\"2\"},\"tokens\":{\"input_tokens\":", usage.prompt_tokens,
                      "}}}");
}

}  // namespace pinion
