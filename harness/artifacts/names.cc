#include "harness/artifacts/names.h"

#include <algorithm>
#include <cstdint>

#include "engine/base/strings.h"

namespace pinion::harness {
namespace {

constexpr std::string_view kPrefix = "pinion-";
constexpr size_t kHashDigits = 6, kMostOfObjective = 16;

// FNV-1a, whose values never change: a name must be the same with every version.
uint32_t StableHash(std::string_view text) {
  uint32_t hash = 2166136261U;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 16777619U;
  return hash;
}

std::string HashDigits(std::string_view text) {
  std::string digits;
  uint32_t hash = StableHash(text);
  for (size_t i = 0; i < kHashDigits; ++i, hash >>= 4) digits += "0123456789abcdef"[hash & 15U];
  return digits;
}

// "org/Name", "/models/Name/" and "preset:Name" are all called Name.
std::string_view LastPart(std::string_view model) {
  constexpr std::string_view kPreset = "preset:";
  if (model.starts_with(kPreset)) model.remove_prefix(kPreset.size());
  while (!model.empty() && model.back() == '/') model.remove_suffix(1);
  return model.substr(model.rfind('/') + 1);
}

}  // namespace

std::string Slug(std::string_view text, size_t most) {
  std::string slug;
  for (const char c : text) {
    const bool is_upper = c >= 'A' && c <= 'Z';
    if (is_upper || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'))
      slug += is_upper ? static_cast<char>(c - 'A' + 'a') : c;
    else if (!slug.empty() && slug.back() != '-')
      slug += '-';
  }
  slug.resize(std::min(slug.size(), most));
  while (!slug.empty() && slug.back() == '-') slug.pop_back();
  return slug;
}

std::string ObjectName(const Profile& profile, size_t most) {
  const std::string& model = profile.configuration.options.model;
  const std::string hash = HashDigits(StrCat(model, '\0', profile.objective));
  const std::string objective = Slug(profile.objective, kMostOfObjective);
  const std::string name =
      Slug(LastPart(model), most - kPrefix.size() - kMostOfObjective - kHashDigits - 2);
  return StrCat(kPrefix, name, name.empty() ? "" : "-", objective, objective.empty() ? "" : "-",
                hash);
}

std::string SelectorLabels(const std::string& object_name) {
  return StrCat("{app.kubernetes.io/name: pinion, app.kubernetes.io/instance: ", object_name, "}");
}

std::string ObjectLabels(const std::string& object_name) {
  std::string labels = SelectorLabels(object_name);
  labels.pop_back();
  return labels + ", app.kubernetes.io/component: model-server}";
}

}  // namespace pinion::harness
