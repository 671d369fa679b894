#include "engine/weights/summary.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "engine/base/strings.h"
#include "engine/spec/attention_spec.h"
#include "engine/spec/kv_tables.h"
#include "engine/spec/spec_facts.h"
#include "engine/spec/tensor_list.h"
#include "engine/weights/weights.h"

namespace pinion {
namespace {

using kernels::Dtype;
using kernels::KvDtype;

constexpr Dtype kDtypes[] = {Dtype::kBf16, Dtype::kF16, Dtype::kF32};

Json BytesByDtype(uint64_t elements) {
  Json bytes = Json::MakeObject();
  for (const Dtype dtype : kDtypes)
    bytes.Set(kernels::Name(dtype), elements * kernels::SizeOf(dtype));
  return bytes;
}

template <typename Bytes>
Json KvBytesByDtype(const Bytes& bytes_of) {
  Json bytes = Json::MakeObject();
  for (const KvDtype dtype : kernels::kKvDtypes) bytes.Set(kernels::Name(dtype), bytes_of(dtype));
  return bytes;
}

// The source's content: tensors, bytes per dtype, files.
struct Stored {
  size_t tensors = 0;
  std::map<std::string, uint64_t> bytes;  // by dtype or quantised format
  std::set<std::string> files;            // names without their folder
};

struct Form {
  std::string name;  // a dtype, or a quantised format
  uint64_t bytes = 0;
};

Form FormOf(const TensorSource& weights, const TensorInfo& info) {
  if (const QuantisedTensor* quantised = weights.Quantised(info.name))
    return {quantised->format(), quantised->stored_bytes()};
  return {kernels::Name(info.dtype), ElementCount(info.shape) * kernels::SizeOf(info.dtype)};
}

Stored CountStored(const DecoderSpec& spec, const TensorSource& weights) {
  Stored stored;
  for (const TensorSpec& tensor : TensorList(spec)) {
    const auto info = weights.Find(tensor.name);
    if (!info) continue;  // OpenWeights has checked; a source from elsewhere may lack some
    ++stored.tensors;
    const Form form = FormOf(weights, *info);
    stored.bytes[form.name] += form.bytes;
    if (!info->file.empty()) stored.files.insert(info->file.substr(info->file.rfind('/') + 1));
  }
  return stored;
}

Json StoredJson(const Stored& stored) {
  Json bytes = Json::MakeObject();
  for (const auto& [dtype, count] : stored.bytes) bytes.Set(dtype, count);
  Json json;
  json.Set("tensors", static_cast<int64_t>(stored.tensors));
  json.Set("bytes", std::move(bytes));
  json.Set("files", std::vector<std::string>(stored.files.begin(), stored.files.end()));
  return json;
}

Json TensorsJson(const DecoderSpec& spec, const TensorSource& weights) {
  Json list = Json::MakeArray();
  for (const TensorSpec& tensor : TensorList(spec)) {
    const auto info = weights.Find(tensor.name);
    if (!info) continue;
    Json entry;
    entry.Set("name", tensor.name);
    entry.Set("shape", info->shape);
    entry.Set("dtype", FormOf(weights, *info).name);
    list.Append(std::move(entry));
  }
  return list;
}

// 1235814400 -> "1,235,814,400"
std::string Grouped(uint64_t number) {
  std::string text = StrCat(number);
  for (size_t at = text.size(); at > 3;) text.insert(at -= 3, 1, ',');
  return text;
}

// Rows of cells, each column as wide as its widest cell; numbers of `right` columns to the right.
class Table {
 public:
  explicit Table(std::string right) : right_(std::move(right)) {}
  void Row(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }
  std::string Text() const {
    std::string text;
    for (const auto& row : rows_) {
      std::string line = " ";
      for (size_t column = 0; column < row.size(); ++column) {
        const std::string gap(Width(column) - row[column].size(), ' ');
        line += right_[column] == 'r' ? " " + gap + row[column] : " " + row[column] + gap;
        line += ' ';
      }
      text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
    }
    return text;
  }

 private:
  size_t Width(size_t column) const {
    size_t width = 0;
    for (const auto& row : rows_)
      if (column < row.size()) width = std::max(width, row[column].size());
    return width;
  }
  std::string right_;  // 'l' or 'r' per column
  std::vector<std::vector<std::string>> rows_;
};

std::string ShapeText(const std::vector<int64_t>& shape) {
  std::vector<std::string> sizes;
  for (const int64_t size : shape) sizes.push_back(StrCat(size));
  return Join(sizes, " x ");
}

// A tensor's name without the number of its layer.
std::string NameInAnyLayer(const TensorSpec& tensor) {
  if (tensor.layer < 0) return tensor.name;
  const std::string number = StrCat(".", tensor.layer, ".");
  const size_t at = tensor.name.find(number);
  return StrCat(tensor.name.substr(0, at), ".*.", tensor.name.substr(at + number.size()));
}

// Tensors that several layers have are shown once, as "layers.*." and the number of layers.
std::string TensorTable(const DecoderSpec& spec) {
  const std::vector<TensorSpec> list = TensorList(spec);
  std::map<std::pair<std::string, std::vector<int64_t>>, uint64_t> copies;
  for (const TensorSpec& tensor : list) ++copies[{NameInAnyLayer(tensor), tensor.shape}];
  Table table("llrr");
  table.Row({"tensor", "shape", "copies", "parameters"});
  for (const TensorSpec& tensor : list) {
    const std::string name = NameInAnyLayer(tensor);
    const uint64_t count = std::exchange(copies[{name, tensor.shape}], 0);
    if (count == 0) continue;  // shown already
    table.Row({name, ShapeText(tensor.shape), StrCat(count),
               Grouped(count * ElementCount(tensor.shape))});
  }
  return table.Text();
}

std::string ByteTable(const DecoderSpec& spec) {
  Table table("lrrr");
  table.Row({"dtype", "weights", "KV per token",
             StrCat("KV of ", Grouped(static_cast<uint64_t>(spec.max_positions)), " tokens")});
  const auto row = [&](const char* name, const std::string& weights, KvDtype kv) {
    const uint64_t token = KvBytesPerToken(spec, kv);
    table.Row(
        {name, weights, FormatBytes(token),
         FormatBytes(KvBytesOfSequence(spec, kv, static_cast<uint64_t>(spec.max_positions)))});
  };
  for (const Dtype dtype : kDtypes)
    row(kernels::Name(dtype), FormatBytes(ParameterCount(spec) * kernels::SizeOf(dtype)),
        kernels::KvDtypeOf(dtype));
  for (const KvDtype dtype : kernels::kKvDtypes)
    if (kernels::IsScaled(dtype)) row(kernels::Name(dtype), "", dtype);
  return table.Text();
}

std::string EmbedderText(const EmbedderSpec& embedder) {
  std::string text = StrCat("pooling ", Name(embedder.pooling));
  for (const DenseSpec& dense : embedder.dense) text += StrCat(", dense to ", dense.outputs);
  return text + (embedder.normalises ? ", of length 1" : ", not normalised");
}

Json EmbedderJson(const EmbedderSpec& embedder) {
  Json dense = Json::MakeArray();
  for (const DenseSpec& each : embedder.dense) dense.Append(static_cast<uint64_t>(each.outputs));
  return Json::Object{{"pooling", Name(embedder.pooling)},
                      {"dense", std::move(dense)},
                      {"normalises", embedder.normalises}};
}

std::string StoredText(const ModelFiles& files, const Stored& stored) {
  std::vector<std::string> parts;
  for (const auto& [dtype, bytes] : stored.bytes)
    parts.push_back(StrCat(FormatBytes(bytes), " in ", dtype));
  const std::string where =
      files.folder.empty() && !files.gguf
          ? "made up when they are read"
          : StrCat(stored.files.size(), " file", stored.files.size() == 1 ? "" : "s");
  return StrCat(stored.tensors, " tensors, ", Join(parts, ", "), ", ", where);
}

// The weights that a default start of a quantised model keeps in memory, on one rank.
struct Packed {
  size_t int8 = 0, int4 = 0, fp8 = 0, dequantised = 0;  // matrices
  uint64_t bytes = 0;                                   // of all weights
};

// Empty if nothing is quantised.
std::optional<Packed> CountPacked(const DecoderSpec& spec, const FormatPlan& plan) {
  if (plan.empty() && plan.dequantised == 0) return {};
  Packed packed;
  packed.dequantised = plan.dequantised;
  for (const auto& [key, format] : plan.formats())
    ++(format.e4m3() ? packed.fp8 : format.bits == 4 ? packed.int4 : packed.int8);
  packed.bytes = ShardWeightBytes(spec, plan, true, 1, 0);
  return packed;
}

Json PackedJson(const Packed& packed) {
  Json json;
  json.Set("int4_matrices", static_cast<uint64_t>(packed.int4));
  json.Set("int8_matrices", static_cast<uint64_t>(packed.int8));
  json.Set("fp8_matrices", static_cast<uint64_t>(packed.fp8));
  json.Set("dequantised_matrices", static_cast<uint64_t>(packed.dequantised));
  json.Set("bytes", packed.bytes);
  return json;
}

std::string PackedText(const Packed& packed) {
  std::vector<std::string> parts;
  for (const auto& [count, form] : {std::pair{packed.int4, "in 4 bits"},
                                    {packed.int8, "in 8 bits"},
                                    {packed.fp8, "in FP8"},
                                    {packed.dequantised, "dequantised"}})
    if (count > 0) parts.push_back(StrCat(count, " matrices ", form));
  return StrCat(FormatBytes(packed.bytes), " of weights: ", Join(parts, ", "));
}

int ExpertLayers(const DecoderSpec& spec) {
  return static_cast<int>(
      std::count_if(spec.layer_specs.begin(), spec.layer_specs.end(),
                    [](const LayerSpec& layer) { return layer.mlp == MlpKind::kExperts; }));
}

const char* Name(RouterScore score) {
  switch (score) {
    case RouterScore::kSoftmax:
      return "softmax";
    case RouterScore::kSigmoid:
      return "sigmoid";
    case RouterScore::kLogit:
      return "softmax_of_chosen";
  }
  return "";
}

Json ExpertsJson(const DecoderSpec& spec) {
  const RouterSpec& router = spec.moe.router;
  Json json;
  json.Set("count", router.experts);
  json.Set("per_token", router.top_k);
  json.Set("layers", ExpertLayers(spec));
  json.Set("intermediate", spec.moe.intermediate);
  json.Set("shared_intermediate", spec.moe.shared_intermediate);
  json.Set("shared_router", spec.moe.shared_router);
  json.Set("weighs_input", spec.moe.weighs_input);
  json.Set("score", Name(router.score));
  json.Set("normalised", router.normalise);
  json.Set("scale", static_cast<double>(router.scale));
  json.Set("groups", router.groups);
  json.Set("groups_per_token", router.top_groups);
  return json;
}

std::string ExpertsText(const DecoderSpec& spec) {
  const RouterSpec& router = spec.moe.router;
  std::string text = StrCat(router.experts, " of ", spec.moe.intermediate, " in ",
                            ExpertLayers(spec), " layers, ", router.top_k, " a token (",
                            Name(router.score), router.normalise ? ", normalised" : "");
  if (router.scale != 1) text += StrCat(", times ", router.scale);
  if (router.groups > 1)
    text += StrCat(", from ", router.top_groups, " of ", router.groups, " groups");
  if (spec.moe.weighs_input) text += ", weights multiply inputs";
  text += ")";
  if (spec.moe.shared_intermediate > 0)
    text += StrCat(", a shared MLP of ", spec.moe.shared_intermediate,
                   spec.moe.shared_router ? " with a gate" : "");
  return text;
}

Json LatentJson(const LatentSpec& latent) {
  Json json;
  for (const auto& [key, value] : {std::pair{"kv_rank", latent.kv_rank},
                                   {"q_rank", latent.q_rank},
                                   {"nope_dim", latent.nope_dim},
                                   {"rope_dim", latent.rope_dim},
                                   {"value_dim", latent.value_dim}})
    json.Set(key, value);
  return json;
}

Json IndexJson(const IndexSpec& index) {
  Json json;
  for (const auto& [key, value] :
       {std::pair{"heads", index.heads}, {"dim", index.dim}, {"top_k", index.top_k}})
    json.Set(key, value);
  return json;
}

std::string IndexText(const IndexSpec& index) {
  return StrCat("a token attends to the ", index.top_k, " up to itself that score highest, by ",
                index.heads, " heads of ", index.dim, " with one cached key");
}

std::string LatentText(const DecoderSpec& spec) {
  const LatentSpec& latent = spec.latent;
  return StrCat("keys and values from ", latent.kv_rank, " elements and a ",
                spec.ropes.empty() ? "" : "rotary ", "key of ", latent.rope_dim,
                " a token; heads of ", latent.nope_dim, " + ", latent.rope_dim, ", values of ",
                latent.value_dim,
                latent.q_rank > 0 ? StrCat(", queries from ", latent.q_rank) : "");
}

}  // namespace

Json SummariseModel(const ModelFiles& files, const TensorSource& weights,
                    const FormatPlan& formats) {
  const DecoderSpec& spec = files.spec;
  Json json;
  json.Set("model", files.name);
  json.Set("folder", files.folder.empty() ? Json() : Json(files.folder));
  json.Set("architecture", spec.architecture);
  for (const auto& [key, value] : {std::pair{"layers", spec.layers},
                                   {"hidden", spec.hidden},
                                   {"heads", spec.heads},
                                   {"kv_heads", spec.kv_heads},
                                   {"head_dim", spec.head_dim},
                                   {"intermediate", spec.intermediate},
                                   {"vocabulary", spec.vocabulary},
                                   {"max_positions", spec.max_positions}})
    json.Set(key, value);
  AddSpecFields(spec, json);
  if (spec.moe.router.experts > 0) json.Set("experts", ExpertsJson(spec));
  if (spec.latent.kv_rank > 0) json.Set("latent", LatentJson(spec.latent));
  if (spec.index.top_k > 0) json.Set("index", IndexJson(spec.index));
  if (files.embedder) json.Set("embedder", EmbedderJson(*files.embedder));
  json.Set("checkpoint_dtype", spec.checkpoint_dtype);
  json.Set("bos_id", spec.bos_id ? Json(*spec.bos_id) : Json());
  json.Set("eos_ids", spec.eos_ids);
  json.Set("parameters", ParameterCount(spec));
  json.Set("weight_bytes", BytesByDtype(ParameterCount(spec)));
  const auto longest = static_cast<uint64_t>(spec.max_positions);
  json.Set("kv_bytes_per_token",
           KvBytesByDtype([&](KvDtype dtype) { return KvBytesPerToken(spec, dtype); }));
  json.Set("kv_bytes_of_longest_sequence",
           KvBytesByDtype([&](KvDtype dtype) { return KvBytesOfSequence(spec, dtype, longest); }));
  json.Set("state_bytes_per_sequence", StateBytesPerSequence(spec));
  json.Set("stored", StoredJson(CountStored(spec, weights)));
  if (const auto packed = CountPacked(spec, formats)) json.Set("packed", PackedJson(*packed));
  json.Set("tensors", TensorsJson(spec, weights));
  return json;
}

std::string FormatModel(const ModelFiles& files, const TensorSource& weights,
                        const FormatPlan& formats) {
  const DecoderSpec& spec = files.spec;
  Table facts("ll");
  facts.Row({"model", files.name});
  facts.Row({"architecture", spec.architecture});
  if (!spec.wrapper.empty())
    facts.Row({"part of", StrCat(spec.wrapper, ": only the language model is loaded")});
  facts.Row({"parameters", Grouped(ParameterCount(spec))});
  for (const auto& [heading, value] : SpecFacts(spec)) facts.Row({heading, value});
  if (spec.moe.router.experts > 0) facts.Row({"experts", ExpertsText(spec)});
  if (spec.latent.kv_rank > 0) facts.Row({"latent", LatentText(spec)});
  if (spec.index.top_k > 0) facts.Row({"indexer", IndexText(spec.index)});
  if (const uint64_t state = StateBytesPerSequence(spec); state > 0)
    facts.Row(
        {"state", StrCat(FormatBytes(state), " a sequence, whatever its length, in float32")});
  const char* head = !spec.has_head() ? "no head"
                     : spec.tied_head ? "head tied to the embedding"
                                      : "head separate";
  if (files.embedder) facts.Row({"embedder", EmbedderText(*files.embedder)});
  facts.Row({"vocabulary", StrCat(spec.vocabulary, ", ", head)});
  facts.Row({"longest", StrCat(spec.max_positions, " tokens")});
  facts.Row({"stored", StoredText(files, CountStored(spec, weights))});
  if (const auto packed = CountPacked(spec, formats)) facts.Row({"in memory", PackedText(*packed)});
  return StrCat(facts.Text(), "\n", ByteTable(spec), "\n", TensorTable(spec));
}

}  // namespace pinion
