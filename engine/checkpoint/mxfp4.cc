#include "engine/checkpoint/mxfp4.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "engine/base/strings.h"
#include "engine/checkpoint/e2m1.h"
#include "engine/checkpoint/quantised_source.h"
#include "engine/spec/tensor_list.h"

namespace pinion {
namespace {

constexpr size_t kGroup = 32, kGroupBytes = kGroup / 2;

// A matrix's tensors of all experts of a layer, checked.
struct ExpertBlocks {
  StoredTensor blocks, scales, biases;
  size_t outputs = 0, groups = 0;  // of an expert
};

// Some outputs of one expert: every `step`-th of the stored ones, from `first` on.
class Mxfp4Tensor : public QuantisedTensor {
 public:
  Mxfp4Tensor(const ExpertBlocks& of, size_t expert, size_t first, size_t step)
      : of_(of), first_(expert * of.outputs + first), step_(step) {
    rows_ = of.outputs / step;
    columns_ = of.groups * kGroup;
    group_ = kGroup;
    range_ = {-12, 12, false, kernels::ScaleType::kPower};
    format_ = "MXFP4";
    stored_bytes_ = rows_ * of.groups * (kGroupBytes + 1);
  }

  void Read(size_t row, size_t count, int8_t* codes, float* scales, float* offsets) const override {
    std::fill_n(offsets, count * of_.groups, 0.0f);
    for (size_t r = row; r < row + count; ++r) {
      const size_t at = (first_ + r * step_) * of_.groups;
      for (size_t group = at; group < at + of_.groups; ++group) {
        *scales++ = ScaleOf(of_.scales.data[group]);
        UnpackE2m1(of_.blocks.data + group * kGroupBytes, kGroupBytes, codes);
        codes += kGroup;
      }
    }
  }
  // Gate and up rows share pages, which go with the last row of either.
  void Release(size_t row, size_t count) const override {
    const size_t row_bytes = of_.groups * kGroupBytes;
    of_.blocks.Release((first_ + row * step_) * row_bytes, ((count - 1) * step_ + 1) * row_bytes);
  }

 private:
  // Half of 2^(byte - 127); 255 is NaN.
  static float ScaleOf(std::byte byte) {
    const int exponent = std::to_integer<int>(byte);
    return exponent == 255 ? std::nanf("") : std::ldexp(1.0f, exponent - 128);
  }

  const ExpertBlocks of_;
  const size_t first_, step_;
};

// The biases of each expert, which the file has in one tensor.
class WithVectors : public TensorSource {
 public:
  using Vectors = std::map<std::string, std::vector<float>>;

  WithVectors(std::unique_ptr<TensorSource> plain, Vectors vectors)
      : plain_(std::move(plain)), vectors_(std::move(vectors)) {}

  Result<TensorInfo> Find(const std::string& name) const override {
    const auto found = vectors_.find(name);
    if (found == vectors_.end()) return plain_->Find(name);
    return TensorInfo{name, kernels::Dtype::kF32, {static_cast<int64_t>(found->second.size())}, ""};
  }
  std::vector<std::string> Names() const override {
    std::vector<std::string> names = plain_->Names();
    for (const auto& [name, vector] : vectors_) names.push_back(name);
    std::sort(names.begin(), names.end());
    return names;
  }
  const std::byte* Rows(const TensorInfo& info, size_t row, size_t count,
                        std::vector<std::byte>& scratch) const override {
    const auto found = vectors_.find(info.name);
    if (found == vectors_.end()) return plain_->Rows(info, row, count, scratch);
    return reinterpret_cast<const std::byte*>(found->second.data() + row);
  }
  std::optional<StoredTensor> Stored(const std::string& name) const override {
    return plain_->Stored(name);
  }
  void Release(const TensorInfo& info, size_t row, size_t count) const override {
    if (!vectors_.contains(info.name)) plain_->Release(info, row, count);
  }

 private:
  std::unique_ptr<TensorSource> plain_;
  Vectors vectors_;
};

// Finds all experts and gives them the spec's names.
class Experts {
 public:
  Experts(const DecoderSpec& spec, const TensorSource& stored)
      : spec_(spec), lookup_([&stored](const std::string& name) { return stored.Stored(name); }) {}

  QuantisedTensors weights;
  WithVectors::Vectors biases;

  Status AddLayer(int layer) {
    const auto wide = static_cast<size_t>(spec_.moe.intermediate);
    const auto hidden = static_cast<size_t>(spec_.hidden);
    const TensorNames& names = spec_.names;
    PINION_ASSIGN(const ExpertBlocks in, Open(layer, "gate_up_proj", 2 * wide, hidden));
    PINION_ASSIGN(const ExpertBlocks down, Open(layer, "down_proj", hidden, wide));
    for (int expert = 0; expert < spec_.moe.router.experts; ++expert) {
      Add(ExpertTensor(names.expert_gate, layer, expert), in, expert, 0, 2);
      Add(ExpertTensor(names.expert_up, layer, expert), in, expert, 1, 2);
      Add(ExpertTensor(names.expert_down, layer, expert), down, expert, 0, 1);
    }
    return {};
  }

 private:
  Result<ExpertBlocks> Open(int layer, const char* matrix, size_t outputs, size_t inputs) const {
    const std::string module = LayerTensor("model.layers.{}.mlp.experts", layer);
    const StoredTensors tensors(module, lookup_);
    if (inputs % kGroup != 0)
      return Fail(ErrorCode::kUnsupported, StrCat("'", module, ".", matrix, "' has ", inputs,
                                                  " inputs, want a multiple of 32 in MXFP4"));
    const auto experts = static_cast<int64_t>(spec_.moe.router.experts);
    const auto rows = static_cast<int64_t>(outputs), groups = static_cast<int64_t>(inputs / kGroup);
    ExpertBlocks found;
    found.outputs = outputs;
    found.groups = inputs / kGroup;
    PINION_ASSIGN(found.blocks, tensors.Require(StrCat(matrix, "_blocks").c_str(), "U8",
                                                {experts, rows, groups, int64_t{kGroupBytes}}));
    PINION_ASSIGN(found.scales, tensors.Require(StrCat(matrix, "_scales").c_str(), "U8",
                                                {experts, rows, groups}));
    PINION_ASSIGN(found.biases,
                  tensors.RequireFloats(StrCat(matrix, "_bias").c_str(), {experts, rows}));
    return found;
  }

  void Add(const std::string& module, const ExpertBlocks& of, int expert, size_t first,
           size_t step) {
    const auto index = static_cast<size_t>(expert);
    weights.emplace(module + ".weight", std::make_unique<Mxfp4Tensor>(of, index, first, step));
    std::vector<float>& bias = biases[module + ".bias"];
    for (size_t row = first; row < of.outputs; row += step)
      bias.push_back(FloatAt(of.biases, index * of.outputs + row));
  }

  const DecoderSpec& spec_;
  const StoredLookup lookup_;
};

}  // namespace

Result<std::unique_ptr<TensorSource>> OpenMxfp4Experts(std::unique_ptr<TensorSource> stored,
                                                       const DecoderSpec& spec) {
  if (spec.names.expert_gate.empty() || !spec.moe.bias)
    return Fail(ErrorCode::kUnsupported,
                StrCat("MXFP4 is read for GPT-OSS's experts, not for ", spec.architecture));
  Experts experts(spec, *stored);
  for (int layer = 0; layer < spec.layers; ++layer)
    if (spec.layer_specs[static_cast<size_t>(layer)].mlp == MlpKind::kExperts)
      PINION_TRY(experts.AddLayer(layer));
  return WithQuantised(std::make_unique<WithVectors>(std::move(stored), std::move(experts.biases)),
                       std::move(experts.weights));
}

}  // namespace pinion
