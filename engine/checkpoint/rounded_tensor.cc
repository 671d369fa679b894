#include "engine/checkpoint/rounded_tensor.h"

#include <algorithm>
#include <initializer_list>

#include "engine/base/strings.h"
#include "engine/checkpoint/quantised_source.h"
#include "engine/spec/tensor_list.h"
#include "kernels/kernels.h"

namespace pinion {
namespace {

std::string FormatName(const RoundingScheme& scheme) {
  switch (scheme.kind) {
    case CodeKind::kE4m3:
      return "FP8";
    case CodeKind::kMxfp4:
      return "MXFP4";
    case CodeKind::kNvfp4:
      return "NVFP4";
    case CodeKind::kInteger:
      break;
  }
  return StrCat("int", scheme.bits);
}

class RoundedTensor : public QuantisedTensor {
 public:
  RoundedTensor(const TensorSource& source, const TensorInfo& info, const RoundingScheme& scheme)
      : source_(source), info_(info), scheme_(scheme) {
    rows_ = static_cast<size_t>(info.shape.at(0));
    columns_ = static_cast<size_t>(info.shape.at(1));
    group_ = scheme.group_of(columns_);
    range_ = scheme.range();
    if (scheme.kind == CodeKind::kNvfp4) scale_unit_ = kNvfp4Unit;
    format_ = FormatName(scheme) + " (rounded here)";
    stored_bytes_ = rows_ * columns_ * static_cast<uint64_t>(scheme.bits) / 8;
  }

  void Read(size_t row, size_t count, int8_t* codes, float* scales, float* offsets) const override {
    std::vector<std::byte> scratch;
    std::vector<float> values(columns_);
    for (size_t r = 0; r < count; ++r) {
      const std::byte* src = source_.Rows(info_, row + r, 1, scratch);
      kernels::Convert(reinterpret_cast<std::byte*>(values.data()), kernels::Dtype::kF32, src,
                       info_.dtype, columns_);
      RoundRow(scheme_, values.data(), columns_, codes + r * columns_, scales + r * groups(),
               offsets + r * groups());
    }
  }

 private:
  const TensorSource& source_;
  TensorInfo info_;
  RoundingScheme scheme_;
};

// Everything as in `source`, except for the head, which has integers.
class Int8HeadSource : public TensorSource {
 public:
  Int8HeadSource(std::unique_ptr<TensorSource> source, std::string head)
      : source_(std::move(source)), head_(std::move(head)) {
    if (source_->Quantised(head_)) return;
    if (const auto info = source_->Find(head_)) rounded_ = RoundTensor(*source_, *info, {});
  }
  Result<TensorInfo> Find(const std::string& name) const override { return source_->Find(name); }
  std::vector<std::string> Names() const override { return source_->Names(); }
  const std::byte* Rows(const TensorInfo& info, size_t row, size_t count,
                        std::vector<std::byte>& scratch) const override {
    return source_->Rows(info, row, count, scratch);
  }
  const QuantisedTensor* Quantised(const std::string& name) const override {
    return name == head_ && rounded_ ? rounded_.get() : source_->Quantised(name);
  }
  std::optional<StoredTensor> Stored(const std::string& name) const override {
    return source_->Stored(name);
  }
  void Release(const TensorInfo& info, size_t row, size_t count) const override {
    source_->Release(info, row, count);
  }

 private:
  std::unique_ptr<TensorSource> source_;
  std::string head_;
  std::unique_ptr<QuantisedTensor> rounded_;
};

}  // namespace

std::unique_ptr<QuantisedTensor> RoundTensor(const TensorSource& source, const TensorInfo& info,
                                             const RoundingScheme& scheme) {
  return std::make_unique<RoundedTensor>(source, info, scheme);
}

Result<QuantScheme> MadeUpScheme(const std::string& name) {
  constexpr int64_t kGroup = 128;  // as in published checkpoints
  if (name == "w8a8")
    return QuantScheme{QuantMethod::kIntQuantized, 8, -1, false, ActivationRounding::kPerToken};
  if (name == "awq")
    return QuantScheme{QuantMethod::kAwq, 4, kGroup, false, ActivationRounding::kNone};
  if (name == "gptq")
    return QuantScheme{QuantMethod::kGptq, 4, kGroup, false, ActivationRounding::kNone};
  return Fail(ErrorCode::kUsage, StrCat("scheme '", name, "' is unknown, want w8a8, awq or gptq"));
}

Result<QuantScheme> PresetScheme(const std::string& name) {
  if (name == "fp8") {
    QuantScheme scheme;
    scheme.method = QuantMethod::kFp8;
    scheme.group = scheme.block_columns = scheme.activation_group = 128;
    scheme.block_rows = 1;
    scheme.activations = ActivationRounding::kPerToken;
    return scheme;
  }
  if (name == "mxfp4" || name == "nvfp4") {
    QuantScheme scheme;
    scheme.method = name == "mxfp4" ? QuantMethod::kMxfp4 : QuantMethod::kNvfp4;
    scheme.bits = 4;
    scheme.group = name == "mxfp4" ? 32 : 16;
    return scheme;
  }
  auto scheme = MadeUpScheme(name);
  if (scheme) return scheme;
  return Fail(ErrorCode::kUsage,
              StrCat("scheme '", name, "' is unknown, want w8a8, awq, gptq, fp8, nvfp4 or mxfp4"));
}

std::vector<std::string> PlainLinears(const DecoderSpec& spec) {
  std::vector<std::string> modules{"lm_head"};
  for (const std::string& module : {spec.names.classifier_dense, spec.names.classifier_out})
    if (!module.empty()) modules.push_back(module);
  const auto add = [&](int layer, std::initializer_list<std::string> patterns) {
    for (const std::string& pattern : patterns)
      if (!pattern.empty()) modules.push_back(LayerTensor(pattern, layer));
  };
  const TensorNames& names = spec.names;
  for (int layer = 0; layer < spec.layers; ++layer) {
    const LayerSpec& kinds = spec.layer_specs[static_cast<size_t>(layer)];
    if (kinds.mlp == MlpKind::kExperts) add(layer, {names.router, names.shared_router});
    if (kinds.mixer == MixerKind::kDeltaNet)
      add(layer, {names.delta_qkv, names.delta_z, names.delta_b, names.delta_a, names.delta_qkvz,
                  names.delta_ba, names.delta_o, names.delta_q, names.delta_k, names.delta_v,
                  names.delta_z_down, names.delta_z_up, names.delta_a_down, names.delta_a_up});
    if (HasMamba(kinds.mixer)) add(layer, {names.mamba_in, names.mamba_o});
    if (kinds.mixer == MixerKind::kShortConv) add(layer, {names.conv_in, names.conv_o});
    add(layer, {names.layer_input_gate, names.layer_input_out, names.laurel_left,
                names.laurel_right, names.altup_router, names.altup_predict, names.altup_correct});
  }
  add(0, {names.layer_input_projection});
  for (int stream = 0; stream + 1 < spec.alt_up.streams; ++stream)
    add(stream, {names.altup_in, names.altup_out});
  return modules;
}

std::vector<std::string> RoundedLinears(const DecoderSpec& spec) {
  const std::vector<std::string> plain = PlainLinears(spec);
  std::vector<std::string> names = LinearWeights(spec);
  std::erase_if(names, [&](const std::string& name) {
    return std::any_of(plain.begin(), plain.end(),
                       [&](const std::string& module) { return name == module + ".weight"; });
  });
  return names;
}

std::vector<std::string> ExpertLinears(const DecoderSpec& spec) {
  std::vector<std::string> names;
  const TensorNames& of = spec.names;
  if (spec.moe.tensors != ExpertTensors::kEach) return names;
  for (int layer = 0; layer < spec.layers; ++layer) {
    if (spec.layer_specs[static_cast<size_t>(layer)].mlp != MlpKind::kExperts) continue;
    for (const std::string& pattern : {of.expert_gate, of.expert_up, of.expert_down})
      for (int expert = 0; !pattern.empty() && expert < spec.moe.router.experts; ++expert)
        names.push_back(ExpertTensor(pattern, layer, expert) + ".weight");
  }
  return names;
}

RoundingScheme RoundingOf(const QuantScheme& scheme) {
  const CodeKind kind = scheme.method == QuantMethod::kFp8     ? CodeKind::kE4m3
                        : scheme.method == QuantMethod::kMxfp4 ? CodeKind::kMxfp4
                        : scheme.method == QuantMethod::kNvfp4 ? CodeKind::kNvfp4
                                                               : CodeKind::kInteger;
  return {scheme.bits, scheme.group < 0 ? 0 : static_cast<size_t>(scheme.group),
          scheme.method != QuantMethod::kAwq, kind};
}

Result<std::unique_ptr<TensorSource>> RoundLinears(std::unique_ptr<TensorSource> plain,
                                                   const DecoderSpec& spec,
                                                   const QuantScheme& scheme) {
  const RoundingScheme rounding = RoundingOf(scheme);
  QuantisedTensors rounded;
  const bool experts_only = scheme.method == QuantMethod::kMxfp4;
  for (const std::string& name : experts_only ? ExpertLinears(spec) : RoundedLinears(spec)) {
    PINION_ASSIGN(const TensorInfo info, plain->Find(name));
    rounded.emplace(name, RoundTensor(*plain, info, rounding));
  }
  return WithQuantised(std::move(plain), std::move(rounded));
}

std::unique_ptr<TensorSource> WithInt8Head(std::unique_ptr<TensorSource> source,
                                           const DecoderSpec& spec) {
  const std::string& head = spec.tied_head ? spec.names.embedding : spec.names.head;
  return std::make_unique<Int8HeadSource>(std::move(source), head);
}

}  // namespace pinion
