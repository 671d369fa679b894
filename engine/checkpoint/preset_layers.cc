#include "engine/checkpoint/preset_layers.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <vector>

#include "engine/base/strings.h"

namespace pinion {
namespace {

// The fields in which published configs tell their layers apart: of each layer one entry (of a
// string, one letter), or the numbers of some layers, counted from `base`.
constexpr const char* kEntries[] = {"layer_types", "no_rope_layers", "hybrid_override_pattern"};
struct NumbersField {
  const char *object, *name;  // object: "" for config.json itself
  int64_t base;
  bool attends;  // to everything
};
constexpr NumbersField kNumbers[] = {{"", "attn_layer_indices", 0, true},
                                     {"", "full_attn_idxs", 0, true},
                                     {"linear_attn_config", "kda_layers", 1, false},
                                     {"linear_attn_config", "full_attn_layers", 1, true}};

struct Run {
  size_t first, count;
};

Json* FindIn(Json& config, const NumbersField& field) {
  const Json* holder = *field.object ? config.Find(field.object) : &config;
  const Json* found = holder ? holder->Find(field.name) : nullptr;
  return const_cast<Json*>(found);
}

struct Kind {
  std::string name;      // whatever tells it from others
  bool attends = false;  // to everything, as at least one layer of a model must
};

// How the fields above name layers that attend to everything.
bool NamesAttention(const std::string& value) {
  return value == "full_attention" || value == "attention" || value == "*" || value == "1";
}

std::vector<Kind> KindsOf(Json& config, size_t layers) {
  std::vector<Kind> kinds(layers);
  for (const char* name : kEntries) {
    const Json* entries = config.Find(name);
    for (size_t i = 0; entries && i < layers; ++i) {
      const bool is_text = entries->is_string();
      const Json entry = is_text ? Json(entries->string().substr(i, 1)) : entries->array()[i];
      const std::string value = entry.is_string() ? entry.string() : entry.Dump();
      kinds[i].name += value + " ";
      kinds[i].attends = kinds[i].attends || NamesAttention(value);
    }
  }
  for (const NumbersField& field : kNumbers)
    if (const Json* numbers = FindIn(config, field))
      for (const Json& number : numbers->array()) {
        Kind& kind = kinds[static_cast<size_t>(number.integer() - field.base)];
        kind.name += field.name;
        kind.attends = kind.attends || field.attends;
      }
  return kinds;
}

// How unlike the whole a run is. A kind that it lacks counts more than any numbers of layers, the
// more the more frequent it is, and attention most.
double Unlikeness(const std::vector<Kind>& kinds, const Run& run) {
  const auto all = static_cast<double>(kinds.size());
  std::map<std::string, double> surplus, lacking;
  for (const Kind& kind : kinds) {
    surplus[kind.name] -= static_cast<double>(run.count) / all;
    lacking[kind.name] += kind.attends ? 2 * all * all : all;
  }
  for (size_t i = run.first; i < run.first + run.count; ++i) {
    surplus[kinds[i].name] += 1;
    lacking[kinds[i].name] = 0;
  }
  double unlikeness = 0;
  for (const auto& [kind, extra] : surplus) unlikeness += std::abs(extra) + lacking[kind];
  return unlikeness;
}

Run ChooseRun(const std::vector<Kind>& kinds, size_t count) {
  Run best{0, count};
  for (size_t first = 1; first + count <= kinds.size(); ++first)
    if (Unlikeness(kinds, {first, count}) < Unlikeness(kinds, best) - 1e-9) best.first = first;
  return best;
}

void CutEntries(Json& config, const Run& run) {
  for (const char* name : kEntries) {
    const Json* entries = config.Find(name);
    if (!entries) continue;
    if (entries->is_string()) {
      config.Set(name, entries->string().substr(run.first, run.count));
      continue;
    }
    const auto first = entries->array().begin() + static_cast<ptrdiff_t>(run.first);
    config.Set(name, Json(Json::Array(first, first + static_cast<ptrdiff_t>(run.count))));
  }
}

void CutNumbers(Json& config, const Run& run) {
  const auto first = static_cast<int64_t>(run.first), count = static_cast<int64_t>(run.count);
  for (const NumbersField& field : kNumbers) {
    Json* numbers = FindIn(config, field);
    if (!numbers) continue;
    Json kept = Json::MakeArray();
    for (const Json& number : numbers->array())
      if (const int64_t layer = number.integer() - field.base - first; layer >= 0 && layer < count)
        kept.Append(layer + field.base);
    *numbers = std::move(kept);
  }
}

// Numbers of layers at the beginning or at the end.
void CutCounts(Json& config, const Run& run, int64_t layers) {
  const auto first = static_cast<int64_t>(run.first), count = static_cast<int64_t>(run.count);
  if (const Json* dense = config.Find("first_k_dense_replace"))
    config.Set("first_k_dense_replace", std::clamp<int64_t>(dense->integer() - first, 0, count));
  if (const Json* sharing = config.Find("num_kv_shared_layers"))
    config.Set("num_kv_shared_layers",
               std::max<int64_t>(0, first + count - (layers - sharing->integer())));
}

}  // namespace

Result<Json> ShortenConfig(Json config, const std::string& layers) {
  const int64_t all = config.Find("num_hidden_layers")->integer();
  PINION_ASSIGN(const int64_t count, ParseInt(layers, "the preset's layers"));
  if (count < 1 || count > all)
    return Fail(ErrorCode::kUsage, StrCat("the preset has ", all, " layers, not ", count));
  const Json* sharing = config.Find("num_kv_shared_layers");
  Run run{0, static_cast<size_t>(count)};
  // A layer that shares keys and values needs the one that makes them.
  if (!sharing || sharing->integer() == 0)
    run = ChooseRun(KindsOf(config, static_cast<size_t>(all)), run.count);
  config.Set("num_hidden_layers", count);
  CutEntries(config, run);
  CutNumbers(config, run);
  CutCounts(config, run, all);
  return config;
}

}  // namespace pinion
