#include "engine/text/post_processor.h"

#include <optional>
#include <string>
#include <utility>

#include "engine/base/strings.h"
#include "engine/text/component.h"
#include "engine/text/vocabulary.h"

namespace pinion {
namespace {

using Ids = std::vector<int32_t>;
using Texts = std::vector<Encoding>;
using Step = Steps<Texts>::Step;

constexpr std::string_view kRole = "post-processor";
constexpr int32_t kMaxType = 255;  // published ones are 0 and 1

Result<int32_t> ReadId(const Json& value, std::string_view token) {
  if (value.is_int() && value.integer() >= 0 && value.integer() <= Vocabulary::kMaxId)
    return static_cast<int32_t>(value.integer());
  return Fail(ErrorCode::kCorrupt, StrCat("special token '", token, "' has id ", value.Dump(),
                                          ", want 0 to ", Vocabulary::kMaxId));
}

Result<Ids> SpecialIds(const Json& component, const std::string& name) {
  const Json* specials = component.Find("special_tokens");
  const Json* entry = specials ? specials->Find(name) : nullptr;
  const Json* list = entry ? entry->Find("ids") : nullptr;
  if (!list || !list->is_array())
    return Fail(ErrorCode::kCorrupt,
                StrCat("the template names '", name, "', which its special_tokens lack"));
  Ids ids;
  for (const Json& item : list->array()) {
    PINION_ASSIGN(const int32_t id, ReadId(item, name));
    ids.push_back(id);
  }
  return ids;
}

void Append(Encoding& dst, const Encoding& src) {
  dst.ids.insert(dst.ids.end(), src.ids.begin(), src.ids.end());
  dst.types.insert(dst.types.end(), src.types.begin(), src.types.end());
}

// A part of a template: one of the texts, or special tokens.
struct Part {
  std::optional<size_t> text;
  Ids special;
  int32_t type = 0;
};
using Template = std::vector<Part>;

Result<Part> ReadPart(const Json& component, const Json& json) {
  Part part;
  const Json* sequence = json.Find("Sequence");
  const Json* special = json.Find("SpecialToken");
  if (!sequence && !special)
    return Fail(ErrorCode::kCorrupt,
                StrCat("template part ", json.Dump(), " is neither Sequence nor SpecialToken"));
  const Json& of = sequence ? *sequence : *special;
  PINION_ASSIGN(const std::string name, Optional<std::string>(of, "id", "A"));
  PINION_ASSIGN(part.type, Optional<int>(of, "type_id", 0));
  if (part.type < 0 || part.type > kMaxType)
    return Fail(ErrorCode::kCorrupt,
                StrCat("type_id of '", name, "' is ", part.type, ", want 0 to ", kMaxType));
  if (!sequence) {
    PINION_ASSIGN(part.special, SpecialIds(component, name));
    return part;
  }
  if (name != "A" && name != "B")
    return Fail(ErrorCode::kCorrupt, StrCat("template names text '", name, "', want A or B"));
  part.text = name == "A" ? 0 : 1;
  return part;
}

Result<Template> ReadTemplate(const Json& component, std::string_view key, size_t texts) {
  const Json* list = component.Find(key);
  if (!list || !list->is_array())
    return Fail(ErrorCode::kCorrupt,
                StrCat("'", key, "' of TemplateProcessing is missing, want an array"));
  Template parts;
  for (const Json& json : list->array()) {
    PINION_ASSIGN(Part part, ReadPart(component, json));
    if (part.text.value_or(0) >= texts)
      return Fail(ErrorCode::kCorrupt, StrCat("the template '", key, "' names a second text"));
    parts.push_back(std::move(part));
  }
  return parts;
}

// A file may lack the template for pairs; it is an error only if there is one to encode.
Result<Step> MakeTemplate(const Json& component) {
  PINION_ASSIGN(Template single, ReadTemplate(component, "single", 1));
  Template pair;
  if (const Json* list = component.Find("pair"); list && !list->is_null()) {
    PINION_ASSIGN(pair, ReadTemplate(component, "pair", 2));
  }
  return Step([=](Texts& texts, const Growth& growth) -> Status {
    const Template& parts = texts.size() == 1 ? single : pair;
    if (texts.size() == 2 && pair.empty())
      return Fail(ErrorCode::kUnsupported, "the tokenizer has no template for pairs of texts");
    Encoding wrapped;
    for (const Part& part : parts) {
      Encoding source = part.text ? texts[*part.text] : Encoding{part.special, {}};
      source.types.assign(source.ids.size(), part.type);
      PINION_TRY(growth.Allow(wrapped.ids.size() + source.ids.size()));
      Append(wrapped, source);
    }
    texts.assign(1, std::move(wrapped));
    return {};
  });
}

// The [text, id] under `key`.
Result<int32_t> ReadPair(const Json& component, std::string_view key) {
  const Json* pair = component.Find(key);
  if (!pair || !pair->is_array() || pair->array().size() != 2)
    return Fail(ErrorCode::kCorrupt, StrCat("'", key, "' is missing, want [token, id]"));
  return ReadId(pair->array()[1], key);
}

// One text as cls A sep; a pair as cls A sep B sep, or (doubled, where all types are 0) cls A sep
// sep B sep.
Result<Step> MakeBetween(const Json& component, bool doubled) {
  PINION_ASSIGN(const int32_t cls, ReadPair(component, "cls"));
  PINION_ASSIGN(const int32_t sep, ReadPair(component, "sep"));
  return Step([=](Texts& texts, const Growth&) -> Status {
    Encoding whole{{cls}, {0}};
    for (size_t i = 0; i < texts.size(); ++i) {
      if (i > 0 && doubled) texts[i].ids.insert(texts[i].ids.begin(), sep);
      texts[i].ids.push_back(sep);
      texts[i].types.assign(texts[i].ids.size(), doubled ? 0 : static_cast<int32_t>(i));
      Append(whole, texts[i]);
    }
    texts.assign(1, std::move(whole));
    return {};
  });
}

Result<Step> MakeStep(const Json& component, std::string_view type) {
  if (type == "TemplateProcessing") return MakeTemplate(component);
  if (type == "ByteLevel")
    return Step([](Texts&, const Growth&) { return Status(); });  // offsets only
  if (type == "RobertaProcessing") return MakeBetween(component, true);
  if (type == "BertProcessing") return MakeBetween(component, false);
  return UnknownComponent(kRole, type,
                          "TemplateProcessing, ByteLevel, RobertaProcessing, BertProcessing, "
                          "Sequence");
}

size_t TokensOf(const Texts& texts) {
  size_t tokens = 0;
  for (const Encoding& text : texts) tokens += text.ids.size();
  return tokens;
}

}  // namespace

Result<PostProcessor> MakePostProcessor(const Json& component) {
  PINION_ASSIGN(std::vector<Step> steps, ReadTree(component, kRole, "processors", MakeStep));
  return Steps<Texts>{kRole, "tokens", TokensOf, std::move(steps)};
}

Result<Encoding> PostProcess(const PostProcessor& processor, std::vector<Encoding> texts) {
  if (processor) PINION_TRY(processor(texts));
  for (size_t i = 1; i < texts.size(); ++i) Append(texts[0], texts[i]);
  return std::move(texts[0]);
}

}  // namespace pinion
