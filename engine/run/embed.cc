#include "engine/run/embed.h"

#include <algorithm>
#include <limits>
#include <span>
#include <utility>

#include "engine/base/strings.h"
#include "engine/run/pooler.h"
#include "engine/run/pooling_input.h"

namespace pinion {
namespace {

using Pooled = Result<std::vector<float>>;

// One vector for each text, in their order; an error for one that the engine refuses or gives up.
std::vector<Pooled> PoolAll(Engine& engine, std::vector<Result<Encoding>> texts) {
  std::vector<Pooled> pooled(texts.size());
  for (size_t i = 0; i < texts.size(); ++i) {
    if (!texts[i]) {
      pooled[i] = Unexpected(std::move(texts[i]).error());
      continue;
    }
    Request request;
    request.id = i;
    request.pool = true;
    request.prompt_ids = std::move(texts[i]->ids);
    request.types = std::move(texts[i]->types);
    if (auto added = engine.Add(std::move(request)); !added)
      pooled[i] = Unexpected(std::move(added).error());
  }
  std::vector<TokenEvent> events;
  while (!engine.idle()) {
    events.clear();
    engine.Step(events);
    for (TokenEvent& event : events)
      if (!event.error.empty())
        pooled[event.request] = Fail(ErrorCode::kFailed, std::move(event.error));
      else if (event.finish != FinishReason::kNone)
        pooled[event.request] = std::move(event.pooled);
  }
  return pooled;
}

Json ErrorLine(size_t number, const Error& error) {
  Json line = Json::MakeObject();
  line.Set("error", StrCat("line ", number, ": ", error.message));
  return line;
}

Json ListOf(const std::vector<float>& values) {
  Json list = Json::MakeArray();
  for (const float value : values) list.Append(double{value});
  return list;
}

// An unknown key would be a wish that is silently ignored.
Status CheckKeys(const Json& line, const std::vector<std::string>& known) {
  for (const auto& [key, value] : line.object())
    if (std::find(known.begin(), known.end(), key) == known.end())
      return Fail(ErrorCode::kUsage,
                  StrCat("unknown key '", key.substr(0, 60), "'; use one of ", Join(known, ", ")));
  return {};
}

Result<std::string> TextOf(const Json& value, std::string_view field) {
  if (value.is_string()) return value.string();
  return Fail(ErrorCode::kUsage, StrCat("'", field, "' is ", value.type_name(), ", want a string"));
}

Result<Encoding> ReadTextIds(const Json& value) {
  if (!value.is_array())
    return Fail(ErrorCode::kUsage, StrCat("'input_ids' is ", value.type_name(), ", want a list"));
  Encoding encoding;
  for (const Json& id : value.array()) {
    if (!id.is_int() || id.integer() < 0 || id.integer() > std::numeric_limits<int32_t>::max())
      return Fail(ErrorCode::kUsage,
                  StrCat("'input_ids' holds ", id.Dump().substr(0, 60), ", want token ids >= 0"));
    encoding.ids.push_back(static_cast<int32_t>(id.integer()));
  }
  return encoding;
}

Result<Encoding> EncodeLine(const Json& line, const Tokenizer* tokenizer, const PoolingFacts& facts,
                            const std::string& prompt_name) {
  PINION_TRY(CheckKeys(line, {"text", "input_ids", "prompt_name", "dimensions"}));
  const Json* text = line.Find("text");
  if (const Json* ids = line.Find("input_ids")) {
    for (const char* key : {"text", "prompt_name"})
      if (line.Find(key))
        return Fail(ErrorCode::kUsage,
                    StrCat("'", key, "' and 'input_ids' are in one line; leave one of them out"));
    return ReadTextIds(*ids);
  }
  if (!text) return Fail(ErrorCode::kUsage, "the line has neither 'text' nor 'input_ids'");
  if (!tokenizer)
    return Fail(ErrorCode::kNotFound, "'text': the model has no tokenizer; give 'input_ids'");
  PINION_ASSIGN(const std::string plain, TextOf(*text, "text"));
  PINION_ASSIGN(const std::string name, Optional<std::string>(line, "prompt_name", prompt_name));
  auto whole = WithPrompt(facts.embedder, name, plain);
  if (!whole) return Unexpected(std::move(whole).error().In("'prompt_name'"));
  auto encoding = EncodeText(*tokenizer, facts, *whole);
  if (!encoding) return Unexpected(std::move(encoding).error().In("'text'"));
  return encoding;
}

// How many of its embedding's elements a line wants; 0: all.
Result<size_t> DimensionsOf(const Json& line, const PoolingFacts& facts, size_t usual) {
  if (!line.Find("dimensions")) return usual;
  PINION_ASSIGN(const int64_t wanted, Require<int64_t>(line, "dimensions"));
  if (wanted >= 1 && static_cast<uint64_t>(wanted) <= facts.width)
    return static_cast<size_t>(wanted);
  return Fail(ErrorCode::kUsage, StrCat("'dimensions' is ", wanted, ", want 1 to ", facts.width));
}

// A document is a text, or an object with one, as in the endpoints.
Result<std::string> DocumentOf(const Json& document) {
  const Json* text = document.is_object() ? document.Find("text") : &document;
  if (text && text->is_string()) return text->string();
  return Fail(ErrorCode::kUsage, StrCat("'documents' holds ", document.Dump().substr(0, 60),
                                        ", want strings or objects with a string \"text\""));
}

// The pairs of one line.
Result<std::vector<Encoding>> EncodePairs(const Json& line, const Tokenizer& tokenizer,
                                          const PoolingFacts& facts) {
  PINION_TRY(CheckKeys(line, {"query", "documents", "instruction"}));
  PINION_ASSIGN(const std::string query, Require<std::string>(line, "query"));
  PINION_ASSIGN(const std::string instruction,
                Optional<std::string>(line, "instruction", std::string(kUsualInstruction)));
  if (line.Find("instruction") && !facts.yes_no)
    return Fail(ErrorCode::kUsage, "'instruction' is for generative rerankers; leave it out");
  const Json* documents = line.Find("documents");
  if (!documents || !documents->is_array() || documents->array().empty())
    return Fail(ErrorCode::kUsage,
                StrCat("'documents' is ", documents ? documents->Dump().substr(0, 60) : "missing",
                       ", want a list of texts"));
  std::vector<Encoding> pairs;
  for (const Json& document : documents->array()) {
    PINION_ASSIGN(const std::string text, DocumentOf(document));
    auto pair = EncodePair(tokenizer, facts, query, text, instruction);
    if (!pair) return Unexpected(std::move(pair).error().In("'documents'"));
    pairs.push_back(*std::move(pair));
  }
  return pairs;
}

Json ScoresLine(std::span<Pooled> pooled, size_t number, ScoreActivation activation) {
  std::vector<float> scores;
  for (size_t i = 0; i < pooled.size(); ++i) {
    if (!pooled[i])
      return ErrorLine(number, Error(pooled[i].error()).In(StrCat("'documents', number ", i + 1)));
    scores.push_back(Activated({pooled[i]->front()}, activation).front());
  }
  Json line = Json::MakeObject();
  line.Set("scores", ListOf(scores));
  return line;
}

}  // namespace

Result<std::vector<Json>> EmbedLines(Engine& engine, const Tokenizer* tokenizer,
                                     const std::vector<JsonLine>& lines,
                                     const EmbedOptions& options) {
  const PoolingFacts facts = FactsOf(engine.model(), engine.info().task);
  if (facts.task != ModelTask::kEmbed)
    return Fail(ErrorCode::kUsage, "the model scores texts; use 'pinion rank'");
  if (options.dimensions > facts.width)
    return Fail(ErrorCode::kUsage, StrCat("--dimensions is ", options.dimensions,
                                          ", but the model's embeddings have ", facts.width));
  std::vector<Result<Encoding>> texts;
  for (const JsonLine& line : lines)
    texts.push_back(EncodeLine(line.value, tokenizer, facts, options.prompt_name));
  const auto pooled = PoolAll(engine, std::move(texts));
  std::vector<Json> answers;
  for (size_t i = 0; i < lines.size(); ++i) {
    const auto dimensions = DimensionsOf(lines[i].value, facts, options.dimensions);
    if (!pooled[i] || !dimensions) {
      const Error& error = pooled[i] ? dimensions.error() : pooled[i].error();
      answers.push_back(ErrorLine(lines[i].number, error));
      continue;
    }
    answers.push_back(Json::MakeObject());
    answers.back().Set("embedding",
                       ListOf(FinishEmbedding(*pooled[i], *dimensions, facts.normalises)));
  }
  return answers;
}

Result<std::vector<Json>> RankLines(Engine& engine, const Tokenizer& tokenizer,
                                    const std::vector<JsonLine>& lines, bool logits) {
  const PoolingFacts facts = FactsOf(engine.model(), engine.info().task);
  if (!facts.scores_pairs())
    return Fail(ErrorCode::kUsage,
                facts.task == ModelTask::kEmbed
                    ? std::string("the model embeds texts; use 'pinion embed'")
                    : StrCat("the model tells ", facts.width,
                             " labels apart; ranking takes a model with one score"));
  std::vector<Result<Encoding>> texts;
  std::vector<Result<size_t>> counts;  // of pairs, by line
  for (const JsonLine& line : lines) {
    auto pairs = EncodePairs(line.value, tokenizer, facts);
    if (!pairs) {
      counts.emplace_back(Unexpected(std::move(pairs).error()));
      continue;
    }
    counts.emplace_back(pairs->size());
    for (Encoding& pair : *pairs) texts.emplace_back(std::move(pair));
  }
  auto pooled = PoolAll(engine, std::move(texts));
  std::vector<Json> answers;
  size_t next = 0;
  for (size_t i = 0; i < lines.size(); ++i) {
    if (!counts[i]) {
      answers.push_back(ErrorLine(lines[i].number, counts[i].error()));
      continue;
    }
    answers.push_back(ScoresLine(std::span(pooled).subspan(next, *counts[i]), lines[i].number,
                                 logits ? ScoreActivation::kNone : facts.pair_activation));
    next += *counts[i];
  }
  return answers;
}

}  // namespace pinion
