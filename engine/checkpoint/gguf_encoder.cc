// Metadata of encoders, embedders and rerankers in GGUF files.

#include "engine/checkpoint/gguf_encoder.h"

#include <string>
#include <utility>
#include <vector>

#include "engine/base/strings.h"
#include "engine/spec/architecture.h"

namespace pinion {
namespace {

constexpr std::string_view kPositions = "position_embd.weight", kTokenTypes = "token_types.weight",
                           kDense = "cls.weight", kOut = "cls.output.weight";

// By pooling_type.
enum Pooling : int64_t { kNone, kMean, kCls, kLast, kRank };

// llama.cpp's tools store a matrix of one row as a vector.
int64_t RowsOf(const GgufTensor& matrix) {
  return matrix.shape.size() < 2 ? 1 : matrix.shape.front();
}

Result<Json> LabelsOf(const Json& metadata, std::string_view architecture, int64_t count) {
  const std::string key = StrCat(architecture, ".classifier.output_labels");
  const Json* names = metadata.Find(key);
  const bool named = names && names->is_array();
  if (named && names->array().size() != static_cast<size_t>(count))
    return Fail(ErrorCode::kCorrupt, StrCat("'", key, "' has ", names->array().size(),
                                            " labels, but the tensor '", kOut, "' has ", count));
  Json::Object labels;  // filled without Json's Set, which would compare all of them with each
  for (int64_t i = 0; i < count; ++i)
    labels.emplace_back(std::to_string(i),
                        named ? names->array()[static_cast<size_t>(i)] : Json(StrCat("LABEL_", i)));
  return Json(std::move(labels));
}

// The tables that BERT and its kin look up beside the token's.
Status AddTables(const GgufHeader& header, Json& fields) {
  const GgufTensor* types = header.Find(kTokenTypes);
  if (!types)
    return Fail(ErrorCode::kUnsupported,
                StrCat("there is no tensor '", kTokenTypes,
                       "'; Pinion does not compute encoders without token types (DistilBERT)"));
  fields.Set("type_vocab_size", RowsOf(*types));
  if (const GgufTensor* positions = header.Find(kPositions))
    fields.Set("max_position_embeddings", RowsOf(*positions));
  return {};
}

// Whether the head is of the mean of all tokens, or of the first one. Of ModernBERT's files that do
// not say it, the mean, as llama.cpp does it.
Status AddHeadPooling(const GgufHeader& header, const GgufArchitecture& architecture,
                      Json& fields) {
  const std::string key = StrCat(architecture.name, ".classifier.pooling_type");
  PINION_ASSIGN(const int64_t type,
                Optional<int64_t>(header.metadata, key, architecture.encoder ? kCls : kMean));
  if (type == kCls) {
    fields.Set("classifier_pooling", "cls");
  } else if (type == kMean && !architecture.encoder) {
    fields.Set("classifier_pooling", "mean");
  } else {
    return Fail(ErrorCode::kUnsupported,
                StrCat("'", key, "' is ", type, ", want ",
                       architecture.encoder ? "2 (first)" : "1 (mean) or 2 (first)"));
  }
  return {};
}

// A reranker's head is a dense layer and an output; converters leave out the first one of BERT's.
Status AddHead(const GgufHeader& header, const GgufArchitecture& architecture, Json& fields) {
  const GgufTensor* dense = header.Find(kDense);
  const GgufTensor* out = header.Find(kOut);
  const Json* pooling = header.metadata.Find(StrCat(architecture.name, ".pooling_type"));
  const bool ranks = pooling && *pooling == Json(int64_t{kRank});
  if (!dense && !out && !ranks) return {};
  if (!dense || !out)
    return Fail(ErrorCode::kUnsupported,
                StrCat("it is a reranker without the tensor '", dense ? kOut : kDense,
                       "', a part of its head; use the folder that the file was made of"));
  if (RowsOf(*out) > kMaxLabels)
    return Fail(ErrorCode::kCorrupt, StrCat("tensor '", kOut, "' has ", RowsOf(*out),
                                            " rows, want at most ", kMaxLabels));
  PINION_ASSIGN(Json labels, LabelsOf(header.metadata, architecture.name, RowsOf(*out)));
  fields.Set("id2label", std::move(labels));
  return AddHeadPooling(header, architecture, fields);
}

// The dense layers behind the pooling, which files may hold.
Result<std::vector<DenseSpec>> DenseOf(const GgufHeader& header) {
  std::vector<DenseSpec> layers;
  for (const std::string_view module : kDenseModules) {
    const GgufTensor* weight = header.Find(StrCat(module, ".weight"));
    if (!weight) continue;
    if (weight->shape.size() != 2)
      return Fail(ErrorCode::kCorrupt, StrCat("tensor '", weight->name, "' is not a matrix"));
    DenseSpec dense;
    dense.module = module;
    dense.outputs = static_cast<size_t>(weight->shape[0]);
    dense.inputs = static_cast<size_t>(weight->shape[1]);
    dense.bias = header.Find(StrCat(module, ".bias")) != nullptr;
    dense.activation = DenseSpec::Activation::kNone;
    if (!layers.empty() && layers.back().outputs != dense.inputs)
      return Fail(ErrorCode::kCorrupt,
                  StrCat("tensor '", weight->name, "' takes ", dense.inputs,
                         " values, but the layer before gives ", layers.back().outputs));
    layers.push_back(std::move(dense));
  }
  return layers;
}

}  // namespace

Status CheckAttention(const GgufHeader& header, const GgufArchitecture& architecture) {
  const std::string key = StrCat(architecture.name, ".attention.causal");
  PINION_ASSIGN(const bool causal,
                Optional<bool>(header.metadata, key, !architecture.bidirectional));
  if (causal != architecture.bidirectional) return {};
  return Fail(ErrorCode::kUnsupported, StrCat("'", key, "' is ", causal ? "true" : "false",
                                              ", want ", causal ? "false" : "true"));
}

bool IsEncoderTable(std::string_view tensor) {
  return tensor == kPositions || tensor == kTokenTypes;
}

Result<Json> EncoderFields(const GgufHeader& header, const GgufArchitecture& architecture) {
  Json fields = Json::MakeObject();
  if (architecture.encoder) PINION_TRY(AddTables(header, fields));
  PINION_TRY(AddHead(header, architecture, fields));
  return fields;
}

Result<std::optional<EmbedderSpec>> ReadGgufEmbedder(const GgufHeader& header) {
  const Json& metadata = header.metadata;
  PINION_ASSIGN(const std::string name, Require<std::string>(metadata, "general.architecture"));
  const std::string key = StrCat(name, ".pooling_type");
  PINION_ASSIGN(const int64_t type, Optional<int64_t>(metadata, key, kNone));
  EmbedderSpec spec;
  spec.normalises = true;
  PINION_ASSIGN(spec.dense, DenseOf(header));
  if (type == kNone && !spec.dense.empty())
    return Fail(ErrorCode::kUnsupported,
                StrCat("'", key, "' is ", type, ", but there is a tensor '", spec.dense[0].module,
                       ".weight'; Pinion computes no vector for each token (late interaction)"));
  switch (type) {
    case kMean:
      spec.pooling = PoolingKind::kMean;
      break;
    case kCls:
      spec.pooling = PoolingKind::kFirst;
      break;
    case kLast:
      spec.pooling = PoolingKind::kLast;
      break;
    case kNone:
    case kRank:  // a reranker: its head is in the tensors, or it generates yes and no
      return std::optional<EmbedderSpec>();
    default:
      return Fail(ErrorCode::kUnsupported,
                  StrCat("'", key, "' is ", type,
                         ", want 0 (none), 1 (mean), 2 (first), 3 (last) or 4 (rank)"));
  }
  return std::optional(std::move(spec));
}

Result<std::optional<DenseSpec>> ReadGgufYesNoHead(const GgufHeader& header) {
  PINION_ASSIGN(const GgufArchitecture* architecture, FindGgufArchitecture(header));
  const Json* pooling = header.metadata.Find(StrCat(architecture->name, ".pooling_type"));
  const GgufTensor* out = header.Find(kOut);
  if (architecture->bidirectional || !out || !pooling || !(*pooling == Json(int64_t{kRank})))
    return std::optional<DenseSpec>();
  const std::string key = StrCat(architecture->name, ".classifier.output_labels");
  const Json* labels = header.metadata.Find(key);
  if (!labels || !(*labels == Json(Json::Array{Json("yes"), Json("no")})))
    return Fail(ErrorCode::kUnsupported,
                StrCat("'", key, "' is ", labels ? labels->Dump().substr(0, 60) : "missing",
                       R"(, want ["yes","no"], of a reranker that generates one of them)"));
  if (out->shape.size() != 2 || out->shape[0] != 2)
    return Fail(ErrorCode::kCorrupt, StrCat("tensor '", kOut, "' has shape ", ShapeText(out->shape),
                                            ", want a row for each of the labels yes and no"));
  DenseSpec head;
  head.module = kYesNoModule;
  head.outputs = 2;
  head.inputs = static_cast<size_t>(out->shape[1]);
  head.bias = false;
  head.activation = DenseSpec::Activation::kNone;
  return std::optional(std::move(head));
}

}  // namespace pinion
