#include "engine/text/post_processor.h"

#include <string>
#include <utility>

#include "engine/base/strings.h"
#include "engine/text/component.h"
#include "engine/text/vocabulary.h"

namespace pinion {
namespace {

using Ids = std::vector<int32_t>;
using Step = Steps<Ids>::Step;

constexpr std::string_view kRole = "post-processor";

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

// Only the template for a single text is used: Pinion never encodes pairs.
Result<Step> MakeTemplate(const Json& component) {
  const Json* single = component.Find("single");
  if (!single || !single->is_array())
    return Fail(ErrorCode::kCorrupt, "'single' of TemplateProcessing is missing, want an array");
  std::vector<std::pair<bool, Ids>> parts;  // {is the text, ids of a special token}
  for (const Json& part : single->array()) {
    if (part.Find("Sequence")) {
      parts.emplace_back(true, Ids{});
    } else if (const Json* special = part.Find("SpecialToken")) {
      PINION_ASSIGN(const std::string name, Require<std::string>(*special, "id"));
      PINION_ASSIGN(Ids ids, SpecialIds(component, name));
      parts.emplace_back(false, std::move(ids));
    } else {
      return Fail(ErrorCode::kCorrupt,
                  StrCat("template part ", part.Dump(), " is neither Sequence nor SpecialToken"));
    }
  }
  return Step([parts = std::move(parts)](Ids& ids, const Growth& growth) -> Status {
    Ids wrapped;
    for (const auto& [is_text, special] : parts) {
      const Ids& source = is_text ? ids : special;
      PINION_TRY(growth.Allow(wrapped.size() + source.size()));
      wrapped.insert(wrapped.end(), source.begin(), source.end());
    }
    ids = std::move(wrapped);
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

Result<Step> MakeBetween(const Json& component) {
  PINION_ASSIGN(const int32_t cls, ReadPair(component, "cls"));
  PINION_ASSIGN(const int32_t sep, ReadPair(component, "sep"));
  return Step([=](Ids& ids, const Growth&) -> Status {
    ids.insert(ids.begin(), cls);
    ids.push_back(sep);
    return {};
  });
}

Result<Step> MakeStep(const Json& component, std::string_view type) {
  if (type == "TemplateProcessing") return MakeTemplate(component);
  if (type == "ByteLevel")
    return Step([](Ids&, const Growth&) { return Status(); });  // offsets only
  if (type == "RobertaProcessing" || type == "BertProcessing") return MakeBetween(component);
  return UnknownComponent(kRole, type,
                          "TemplateProcessing, ByteLevel, RobertaProcessing, BertProcessing, "
                          "Sequence");
}

}  // namespace

Result<PostProcessor> MakePostProcessor(const Json& component) {
  PINION_ASSIGN(std::vector<Step> steps, ReadTree(component, kRole, "processors", MakeStep));
  return Steps<Ids>{kRole, "tokens", [](const Ids& ids) { return ids.size(); }, std::move(steps)};
}

}  // namespace pinion
