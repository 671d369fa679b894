#include "engine/weights/summary.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "engine/base/strings.h"
#include "engine/base/words.h"
#include "engine/checkpoint/cross_encoder.h"
#include "engine/spec/attention_spec.h"
#include "engine/spec/kv_tables.h"
#include "engine/spec/spec_facts.h"
#include "engine/spec/spec_names.h"
#include "engine/spec/tensor_list.h"
#include "engine/weights/formats.h"
#include "engine/weights/quant_facts.h"
#include "engine/weights/summary_tables.h"
#include "engine/weights/weights.h"

namespace pinion {
namespace {

using kernels::Dtype;
using kernels::KvDtype;

Json BytesByDtype(uint64_t elements) {
  Json bytes = Json::MakeObject();
  for (const Dtype dtype : kWeightDtypes)
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

const char* PoolingText(PoolingKind kind) {
  switch (kind) {
    case PoolingKind::kFirst:
      return "the first token's state";
    case PoolingKind::kLast:
      return "the last token's state";
    case PoolingKind::kMean:
      return "the mean of all tokens' states";
    case PoolingKind::kMeanSqrt:
      return "the sum of all tokens' states over the root of their number";
    case PoolingKind::kWeightedMean:
      return "the mean of all tokens' states, weighted by position";
    case PoolingKind::kMax:
      return "the largest of all tokens' states, element by element";
  }
  return "";
}

std::string EmbedderText(const EmbedderSpec& embedder) {
  std::string text = PoolingText(embedder.pooling);
  for (const DenseSpec& dense : embedder.dense)
    text += StrCat(", dense to ", Grouped(uint64_t{dense.outputs}));
  text += embedder.normalises ? ", normalised to length 1" : ", not normalised";
  if (embedder.max_tokens)
    text += StrCat("; texts of up to ", Counted(*embedder.max_tokens, "token"));
  return text;
}

// One row for each prompt, and nothing for an embedder without any.
void AddPromptRows(const EmbedderSpec& embedder, TextTable& facts) {
  for (const auto& [name, prompt] : embedder.prompts)
    facts.Row({"prompt", StrCat(name, name == embedder.default_prompt ? " (default)" : "", ": ",
                                Json(prompt).Dump())});
}

Json EmbedderJson(const EmbedderSpec& embedder) {
  Json dense = Json::MakeArray();
  for (const DenseSpec& each : embedder.dense) dense.Append(static_cast<uint64_t>(each.outputs));
  Json prompts = Json::MakeObject();
  for (const auto& [name, prompt] : embedder.prompts) prompts.Set(name, prompt);
  return Json::Object{
      {"pooling", Name(embedder.pooling)},
      {"dense", std::move(dense)},
      {"normalises", embedder.normalises},
      {"prompts", std::move(prompts)},
      {"default_prompt", embedder.default_prompt},
      {"max_tokens",
       embedder.max_tokens ? Json(static_cast<uint64_t>(*embedder.max_tokens)) : Json()}};
}

std::string StoredText(const ModelFiles& files, const Stored& stored) {
  std::vector<std::string> parts;
  for (const auto& [dtype, bytes] : stored.bytes)
    parts.push_back(StrCat(FormatBytes(bytes), " in ", dtype));
  const std::string where = files.folder.empty() && !files.gguf
                                ? "made up when they are read"
                                : Counted(stored.files.size(), "file");
  return StrCat(Counted(stored.tensors, "tensor"), ": ", Join(parts, ", "), "; ", where);
}

// The weights that a default start of a quantised model keeps in memory, on one rank.
struct Packed {
  size_t int8 = 0, int4 = 0, fp8 = 0, dequantised = 0;  // matrices
  size_t latent_up = 0;        // of the dequantised: those that make keys and values of latents
  Dtype dtype = Dtype::kBf16;  // of the dequantised
  uint64_t bytes = 0;          // of all weights
};

// Latent attention multiplies queries and results with this matrix's two halves, never its inputs.
size_t CountLatentUps(const DecoderSpec& spec, const TensorSource& weights) {
  size_t count = 0;
  for (int layer = 0; layer < spec.layers && spec.latent.kv_rank > 0; ++layer)
    for (const std::string& module : ModulesOf(spec, layer, MatrixRole::kLatentUp))
      count += weights.Quantised(module + ".weight") != nullptr;
  return count;
}

// Empty if nothing is quantised.
std::optional<Packed> CountPacked(const DecoderSpec& spec, const TensorSource& weights,
                                  const FormatPlan& plan) {
  if (plan.empty() && plan.dequantised == 0) return {};
  Packed packed;
  packed.latent_up = CountLatentUps(spec, weights);
  packed.dequantised = plan.dequantised + packed.latent_up;
  packed.dtype = plan.dtype;
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
  const std::string dequantised = StrCat(
      "dequantised to ", kernels::Name(packed.dtype),
      packed.latent_up > 0 ? StrCat(" (", Grouped(uint64_t{packed.latent_up}), " of them kv_b)")
                           : std::string());
  for (const auto& [count, form] : {std::pair{packed.int4, std::string("in 4 bits")},
                                    {packed.int8, "in 8 bits"},
                                    {packed.fp8, "in FP8"},
                                    {packed.dequantised, dequantised}})
    if (count > 0)
      parts.push_back(
          StrCat(Grouped(uint64_t{count}), count == 1 ? " matrix " : " matrices ", form));
  return StrCat(FormatBytes(packed.bytes), " of weights: ", Join(parts, ", "),
                "; tensors that share an input form one matrix, and so do a layer's experts");
}

// Whether the folder of a model that generates says that it is to score.
bool IsGenerativeReranker(const ModelFiles& files) {
  return files.spec.classifier.labels == 0 && !files.folder.empty() &&
         IsCrossEncoder(files.folder).value_or(false);
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
  json.Set("router_bias", router.bias);
  json.Set("correction", router.correction);
  json.Set("bias", spec.moe.bias);
  json.Set("swiglu_limit", static_cast<double>(spec.moe.swiglu_limit));
  json.Set("swiglu_alpha", static_cast<double>(spec.moe.swiglu_alpha));
  return json;
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
  json.Set("quantised", QuantisedJson(QuantisedKinds(files, weights)));
  if (const auto packed = CountPacked(spec, weights, formats))
    json.Set("packed", PackedJson(*packed));
  json.Set("tensors", TensorsJson(spec, weights));
  return json;
}

std::string FormatModel(const ModelFiles& files, const TensorSource& weights,
                        const FormatPlan& formats) {
  const DecoderSpec& spec = files.spec;
  TextTable facts("ll");
  facts.Row({"model", files.name});
  facts.Row({"architecture", spec.architecture});
  if (!spec.wrapper.empty())
    facts.Row({"part of", StrCat(spec.wrapper, ": only the language model is loaded")});
  facts.Row({"parameters", Grouped(ParameterCount(spec))});
  for (const auto& [heading, value] : SpecFacts(spec)) facts.Row({heading, value});
  if (const uint64_t state = StateBytesPerSequence(spec); state > 0)
    facts.Row(
        {"state", StrCat(FormatBytes(state), " per sequence, whatever its length, in float32")});
  if (files.embedder) {
    facts.Row({"embedder", EmbedderText(*files.embedder)});
    AddPromptRows(*files.embedder, facts);
  }
  if (IsGenerativeReranker(files))
    facts.Row({"reranker",
               "scores how well a document answers a query, by the logits of \"yes\" and \"no\" "
               "(--task score)"});
  const char* head = !spec.has_head() ? ""
                     : spec.tied_head ? ", head tied to the embedding"
                                      : ", head separate";
  facts.Row({"vocabulary", StrCat(Grouped(static_cast<uint64_t>(spec.vocabulary)), head)});
  facts.Row({"context", Counted(static_cast<size_t>(spec.max_positions), "token")});
  facts.Row({"stored", StoredText(files, CountStored(spec, weights))});
  const std::vector<QuantisedKind> kinds = QuantisedKinds(files, weights);
  for (const QuantisedKind& kind : kinds) facts.Row({"quantised", QuantisedText(kind)});
  if (const std::string text = ActivationsText(files, formats); !text.empty())
    facts.Row({"activations", text});
  if (const auto packed = CountPacked(spec, weights, formats))
    facts.Row({"in memory", PackedText(*packed)});
  return StrCat(facts.Text(), "\n", ByteTable(spec, !kinds.empty()), "\n", TensorTable(spec));
}

}  // namespace pinion
