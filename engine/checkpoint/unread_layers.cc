#include "engine/checkpoint/unread_layers.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <set>
#include <string_view>
#include <vector>

#include "engine/base/strings.h"
#include "engine/spec/tensor_list.h"

namespace pinion {
namespace {

// "model.layers." of "model.layers.0.mlp.up_proj.weight".
std::string PrefixOfLayers(const DecoderSpec& spec) {
  for (const TensorSpec& tensor : TensorList(spec))
    if (tensor.layer == 0) return tensor.name.substr(0, tensor.name.find(".0.") + 1);
  return "";
}

std::optional<int64_t> LayerOf(std::string_view tensor, std::string_view prefix) {
  if (!tensor.starts_with(prefix)) return {};
  tensor.remove_prefix(prefix.size());
  int64_t layer = 0;
  const auto [end, error] = std::from_chars(tensor.data(), tensor.data() + tensor.size(), layer);
  const bool is_number = error == std::errc() && end != tensor.data() + tensor.size();
  if (!is_number || *end != '.' || layer < 0) return {};
  return layer;
}

// The first of the tensors in the first layer from `end` on that predicts no further tokens.
std::optional<std::string> FirstFrom(int64_t end, const std::vector<std::string>& names,
                                     std::string_view prefix) {
  std::map<int64_t, std::string> first;  // by layer
  std::set<int64_t> predicts;
  for (const std::string& name : names) {
    const auto layer = LayerOf(name, prefix);
    if (!layer || *layer < end) continue;
    // This matrix joins a hidden state and the next token's embedding: only such layers have it.
    if (name.find(".eh_proj.") != name.npos) predicts.insert(*layer);
    std::string& kept = first[*layer];
    if (kept.empty() || name < kept) kept = name;
  }
  for (const auto& [layer, name] : first)
    if (!predicts.contains(layer)) return name;
  return {};
}

// The number of layers behind the model's that predict further tokens.
int64_t FurtherLayers(const Json& settings, std::string_view key) {
  const Json* count = settings.Find(key);
  return count && count->is_int() ? std::clamp<int64_t>(count->integer(), 0, 1 << 20) : 0;
}

std::string Sentence(const std::string& tensor, const std::string& field, const Json& value) {
  return StrCat("tensor '", tensor,
                "' and perhaps others belong to layers that are not computed: ", field, " is ",
                value.Dump(), "; if the file is whole, correct that number");
}

std::optional<std::string> UnreadBlocks(const GgufHeader& header) {
  const Json* architecture = header.metadata.Find("general.architecture");
  if (!architecture || !architecture->is_string()) return {};
  const std::string key = architecture->string() + ".block_count";
  const Json* count = header.metadata.Find(key);
  if (!count || !count->is_int()) return {};
  std::vector<std::string> names;
  for (const GgufTensor& tensor : header.tensors) names.push_back(tensor.name);
  const auto unread = FirstFrom(count->integer(), names, "blk.");
  if (!unread) return {};
  return Sentence(*unread, StrCat("'", key, "'"), *count);
}

}  // namespace

std::optional<std::string> UnreadLayers(const ModelFiles& files, const TensorSource& weights) {
  if (files.gguf) return UnreadBlocks(files.gguf->header);
  const std::string prefix = PrefixOfLayers(files.spec);
  if (files.folder.empty() || prefix.empty()) return {};
  const Json* text = files.config.Find("text_config");
  const Json& config = text && text->is_object() ? *text : files.config;
  const int64_t further = FurtherLayers(config, "num_nextn_predict_layers");
  const auto unread = FirstFrom(files.spec.layers + further, weights.Names(), prefix);
  if (!unread) return {};
  const bool stated = config.Find("num_hidden_layers") != nullptr;
  return Sentence(*unread,
                  stated ? "config.json's 'num_hidden_layers'" : "config.json's number of layers",
                  files.spec.layers);
}

}  // namespace pinion
