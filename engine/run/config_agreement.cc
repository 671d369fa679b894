#include "engine/run/config_agreement.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/json_text.h"
#include "engine/base/strings.h"
#include "engine/run/join_processes.h"

namespace pinion {
namespace {

// The first place at which two values differ, and the values there.
struct Difference {
  std::string place, first, second;
};

std::optional<Difference> FirstDifference(const Json* first, const Json* second,
                                          const std::string& place);

std::optional<Difference> FirstOfObjects(const Json& first, const Json& second,
                                         const std::string& place) {
  for (const Json* walked : {&first, &second})  // the second may have keys that the first lacks
    for (const auto& [key, value] : walked->object())
      if (auto found = FirstDifference(first.Find(key), second.Find(key),
                                       place.empty() ? key : StrCat(place, ".", key)))
        return found;
  return std::nullopt;
}

std::optional<Difference> FirstOfArrays(const Json& first, const Json& second,
                                        const std::string& place) {
  for (size_t i = 0; i < first.array().size(); ++i)
    if (auto found =
            FirstDifference(&first.array()[i], &second.array()[i], StrCat(place, "[", i, "]")))
      return found;
  return std::nullopt;
}

// A null pointer stands for a value that is absent.
std::optional<Difference> FirstDifference(const Json* first, const Json* second,
                                          const std::string& place) {
  if (first && second) {
    if (first->is_object() && second->is_object()) return FirstOfObjects(*first, *second, place);
    if (first->is_array() && second->is_array() && first->array().size() == second->array().size())
      return FirstOfArrays(*first, *second, place);
    const bool numbers = first->is_number() && second->is_number();
    if (numbers ? first->number() == second->number() : *first == *second) return std::nullopt;
  }
  const auto text = [](const Json* value) { return value ? Excerpt(*value) : "not given"; };
  return Difference{place, text(first), text(second)};
}

}  // namespace

Json ConfigOf(const ModelFiles& files) {
  Json config = files.config;
  if (!files.gguf) return config;
  Json factors = Json::MakeArray();
  for (const RopeSpec& rope : files.spec.ropes) factors.Append(Json(rope.wave_factors));
  config.Set("rope_factors", std::move(factors));
  return config;
}

Status AgreeOnConfig(Communicator& world, const char* file, const Json& config) {
  const std::string mine = config.Dump();
  const std::vector<std::string> hashes = GatherTexts(world, HashOf(mine));
  if (std::all_of(hashes.begin(), hashes.end(),
                  [&](const std::string& hash) { return hash == hashes[0]; }))
    return {};
  const std::vector<std::string> texts = GatherTexts(world, mine);
  PINION_ASSIGN(const Json first, Json::Parse(texts[0]));
  for (size_t process = 1; process < texts.size(); ++process) {
    PINION_ASSIGN(const Json other, Json::Parse(texts[process]));
    if (const auto found = FirstDifference(&first, &other, ""))
      return Fail(ErrorCode::kUsage,
                  StrCat("the processes differ: ", found->place, " of ", file, " is ", found->first,
                         " in process 0 and ", found->second, " in process ", process,
                         "; have the same files of the model on all hosts"));
  }
  return {};
}

}  // namespace pinion
