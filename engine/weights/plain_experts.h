#pragma once

#include <cstddef>
#include <vector>

#include "engine/checkpoint/tensors.h"
#include "engine/spec/spec.h"
#include "engine/weights/integer_rows.h"
#include "engine/weights/shard.h"
#include "kernels/kernels.h"

namespace pinion {

// Which of an expert's three matrices; gate and up have the expert's intermediate outputs and
// hidden inputs, down the other way round.
enum class ExpertMatrix { kGate, kUp, kDown };

// One thread's scratch for reading experts: buffers that grow, and the expert that they hold.
struct ExpertScratch {
  std::vector<std::byte> rows;
  std::vector<float> gathered;
  IntegerRows integers;
  const TensorInfo* slab_tensor = nullptr;
  size_t slab_expert = 0;
  const std::byte* slab = nullptr;
};

// The experts of one layer as the checkpoint stores them: a tensor [outputs][inputs] for each
// expert and matrix, or one tensor of all experts (ExpertTensors). Packs any part of a matrix, at
// loading or, if nothing is prepacked, at every step.
// Thread rule: constant once made; a scratch belongs to one thread, and its expert to one object
// that outlives it.
class PlainExperts {
 public:
  // The tensors that the spec names for `layer`; they exist (OpenWeights has checked it).
  PlainExperts(const DecoderSpec& spec, int layer, const TensorSource& source);

  size_t count() const { return experts_; }

  // Packs `outputs` of a matrix, at most 64, and `inputs` of each:
  // PackedBlockBytes(dtype, inputs.size()) at dst.
  void Pack(ExpertMatrix matrix, size_t expert, Range outputs, Range inputs, kernels::Dtype dtype,
            std::byte* dst, ExpertScratch& scratch) const;

  // The same of a matrix that stays in integers: layout.block_bytes() at dst.
  void PackIntegers(ExpertMatrix matrix, size_t expert, Range outputs, Range inputs,
                    const kernels::IntLayout& layout, std::byte* dst, ExpertScratch& scratch) const;

  // dst[i] = bias of output range.begin + i. Only if the spec says that there are biases.
  void ReadBias(ExpertMatrix matrix, size_t expert, Range outputs, float* dst) const;

  // These outputs will hardly be read again: file pages may go.
  void Release(ExpertMatrix matrix, size_t expert, Range outputs) const;

 private:
  // A matrix's outputs in a tensor of all experts are at offset, offset + step, ...
  struct OutputStride {
    size_t offset, step;
  };
  OutputStride StrideOf(ExpertMatrix matrix) const;
  // Whether an expert's matrix is [inputs][outputs].
  bool inputs_first() const {
    return tensors_ == ExpertTensors::kAlternating || tensors_ == ExpertTensors::kInputsFirst;
  }
  const TensorInfo& Tensor(const std::vector<TensorInfo>& tensors, ExpertMatrix matrix,
                           size_t expert) const;
  void Gather(const TensorInfo& tensor, OutputStride stride, size_t expert, Range outputs,
              Range inputs, ExpertScratch& scratch) const;

  // All that a tensor of all experts holds of one.
  const std::byte* Slab(const TensorInfo& tensor, size_t expert, ExpertScratch& scratch) const;
  // The first of `outputs` of a tensor [outputs][inputs] for each expert.
  const std::byte* OutputRows(ExpertMatrix matrix, size_t expert, Range outputs,
                              ExpertScratch& scratch) const;

  const TensorSource& source_;
  const ExpertTensors tensors_;
  const bool gated_;
  const size_t experts_, wide_;  // wide: of one expert's MLP
  // By matrix, then expert; of tensors of all experts gate and up together, then down.
  std::vector<TensorInfo> weights_, biases_;
};

}  // namespace pinion
