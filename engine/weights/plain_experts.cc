#include "engine/weights/plain_experts.h"

#include <string>

#include "engine/base/check.h"
#include "engine/spec/tensor_list.h"

namespace pinion {
namespace {

using kernels::Dtype;

TensorInfo FindTensor(const TensorSource& source, const std::string& name) {
  auto found = source.Find(name);
  CHECK(found) << found.error().message;
  return *std::move(found);
}

}  // namespace

PlainExperts::PlainExperts(const DecoderSpec& spec, int layer, const TensorSource& source)
    : source_(source),
      tensors_(spec.moe.tensors),
      gated_(spec.gated),
      experts_(static_cast<size_t>(spec.moe.router.experts)),
      wide_(static_cast<size_t>(spec.moe.intermediate)) {
  const TensorNames& names = spec.names;
  const auto add = [&](const std::string& name, const char* weight, const char* bias) {
    weights_.push_back(FindTensor(source, name + weight));
    if (spec.moe.bias) biases_.push_back(FindTensor(source, name + bias));
  };
  if (tensors_ != ExpertTensors::kEach) {
    for (const std::string* name : {&names.experts_gate_up, &names.experts_down})
      add(LayerTensor(*name, layer), "", "_bias");
    return;
  }
  for (const std::string* name : {&names.expert_gate, &names.expert_up, &names.expert_down})
    for (int expert = 0; !name->empty() && expert < spec.moe.router.experts; ++expert)
      add(ExpertTensor(*name, layer, expert), ".weight", ".bias");
}

PlainExperts::OutputStride PlainExperts::StrideOf(ExpertMatrix matrix) const {
  const bool alternating = tensors_ == ExpertTensors::kAlternating;
  switch (matrix) {
    case ExpertMatrix::kGate:
      return {0, alternating ? size_t{2} : 1};
    case ExpertMatrix::kUp:
      return alternating ? OutputStride{1, 2} : OutputStride{wide_, 1};
    case ExpertMatrix::kDown:
      return {0, 1};
  }
  return {};
}

const TensorInfo& PlainExperts::Tensor(const std::vector<TensorInfo>& tensors, ExpertMatrix matrix,
                                       size_t expert) const {
  if (tensors_ != ExpertTensors::kEach) return tensors[matrix == ExpertMatrix::kDown ? 1 : 0];
  const size_t before = static_cast<size_t>(matrix) - (gated_ ? 0 : 1);  // matrices
  return tensors[before * experts_ + expert];
}

const std::byte* PlainExperts::Slab(const TensorInfo& tensor, size_t expert,
                                    ExpertScratch& scratch) const {
  if (scratch.slab_tensor != &tensor || scratch.slab_expert != expert) {
    scratch.slab = source_.Rows(tensor, expert, 1, scratch.rows);
    scratch.slab_tensor = &tensor;
    scratch.slab_expert = expert;
  }
  return scratch.slab;
}

const std::byte* PlainExperts::OutputRows(ExpertMatrix matrix, size_t expert, Range outputs,
                                          ExpertScratch& scratch) const {
  const TensorInfo& tensor = Tensor(weights_, matrix, expert);
  if (tensors_ == ExpertTensors::kEach)
    return source_.Rows(tensor, outputs.begin, outputs.size(), scratch.rows);
  const size_t row = outputs.begin + (matrix == ExpertMatrix::kUp ? wide_ : 0);
  const size_t row_bytes = static_cast<size_t>(tensor.shape.back()) * kernels::SizeOf(tensor.dtype);
  return Slab(tensor, expert, scratch) + row * row_bytes;
}

// scratch.gathered [outputs][inputs] from a tensor [experts][all inputs][all outputs].
void PlainExperts::Gather(const TensorInfo& tensor, OutputStride stride, size_t expert,
                          Range outputs, Range inputs, ExpertScratch& scratch) const {
  const std::byte* slab = Slab(tensor, expert, scratch);
  const auto columns = static_cast<size_t>(tensor.shape.back());
  const size_t element = kernels::SizeOf(tensor.dtype), k = inputs.size();
  const size_t run = (outputs.size() - 1) * stride.step + 1;
  scratch.gathered.resize(outputs.size() * k + run);
  float* line = scratch.gathered.data() + outputs.size() * k;  // one input's weights
  for (size_t i = 0; i < k; ++i) {
    const size_t at = (inputs.begin + i) * columns + outputs.begin * stride.step + stride.offset;
    kernels::Convert(reinterpret_cast<std::byte*>(line), Dtype::kF32, slab + at * element,
                     tensor.dtype, run);
    for (size_t o = 0; o < outputs.size(); ++o) scratch.gathered[o * k + i] = line[o * stride.step];
  }
}

void PlainExperts::Pack(ExpertMatrix matrix, size_t expert, Range outputs, Range inputs,
                        Dtype dtype, std::byte* dst, ExpertScratch& scratch) const {
  const TensorInfo& tensor = Tensor(weights_, matrix, expert);
  if (inputs_first()) {
    Gather(tensor, StrideOf(matrix), expert, outputs, inputs, scratch);
    kernels::PackBlock(dst, dtype, reinterpret_cast<const std::byte*>(scratch.gathered.data()),
                       Dtype::kF32, inputs.size(), outputs.size(), inputs.size());
    return;
  }
  const std::byte* rows = OutputRows(matrix, expert, outputs, scratch);
  kernels::PackBlock(dst, dtype, rows + inputs.begin * kernels::SizeOf(tensor.dtype), tensor.dtype,
                     static_cast<size_t>(tensor.shape.back()), outputs.size(), inputs.size());
}

void PlainExperts::PackIntegers(ExpertMatrix matrix, size_t expert, Range outputs, Range inputs,
                                const kernels::IntLayout& layout, std::byte* dst,
                                ExpertScratch& scratch) const {
  const QuantisedTensor& tensor = *source_.Quantised(Tensor(weights_, matrix, expert).name);
  scratch.integers.Clear(layout, nullptr, outputs.size());
  scratch.integers.Put(tensor, outputs.begin, outputs.size(), inputs.begin, 0);
  scratch.integers.Pack(dst, outputs.size());
}

void PlainExperts::ReadBias(ExpertMatrix matrix, size_t expert, Range outputs, float* dst) const {
  const TensorInfo& tensor = Tensor(biases_, matrix, expert);
  std::vector<std::byte> scratch;
  const size_t element = kernels::SizeOf(tensor.dtype);
  const auto copy = [&](float* to, const std::byte* from, size_t count) {
    kernels::Convert(reinterpret_cast<std::byte*>(to), Dtype::kF32, from, tensor.dtype, count);
  };
  if (tensors_ == ExpertTensors::kEach)
    return copy(dst, source_.Rows(tensor, outputs.begin, outputs.size(), scratch), outputs.size());
  const std::byte* row = source_.Rows(tensor, expert, 1, scratch);
  const OutputStride stride = StrideOf(matrix);
  for (size_t i = 0; i < outputs.size(); ++i)
    copy(dst + i, row + ((outputs.begin + i) * stride.step + stride.offset) * element, 1);
}

void PlainExperts::Release(ExpertMatrix matrix, size_t expert, Range outputs) const {
  const TensorInfo& tensor = Tensor(weights_, matrix, expert);
  if (tensors_ == ExpertTensors::kEach)
    return source_.Release(tensor, outputs.begin, outputs.size());
  // Of a tensor of all experts only the last output's owner knows; its pages go as a whole.
  const auto all = static_cast<size_t>(inputs_first() ? tensor.shape.back() : tensor.shape[1]);
  const size_t last = tensors_ == ExpertTensors::kAlternating
                          ? outputs.end * StrideOf(matrix).step
                          : outputs.end + (matrix == ExpertMatrix::kUp ? wide_ : 0);
  if (last == all) source_.Release(tensor, expert, 1);
}

}  // namespace pinion
