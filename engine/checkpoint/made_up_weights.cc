// Weights of a real model's shape without the model. A sweep needs no others, since speed does not
// depend on the values.

#include <array>
#include <cmath>
#include <map>

#include "engine/base/check.h"
#include "engine/base/strings.h"
#include "engine/checkpoint/preset.h"
#include "engine/spec/tensor_list.h"

namespace pinion {
namespace {

using kernels::Dtype;

// An element is the sum of four random bytes: 1021 values, close to normal (Irwin-Hall, n = 4) and
// never beyond 3.45 standard deviations. A table turns the sum into the value, so the dtype costs
// nothing, no floating-point operation that could differ between machines is involved, and two
// elements come from one 64-bit hash.
constexpr int kSums = 4 * 255 + 1;
constexpr double kSumMean = 4 * 255 / 2.0;
const double kSumDeviation = std::sqrt(4 * (256.0 * 256.0 - 1) / 12);

// Finaliser of a 64-bit counter: every bit of the counter reaches every bit of the result.
// Source: Steele, Lea, Flood, "Fast splittable pseudorandom number generators" (OOPSLA 2014),
// Mix13.
inline uint64_t Mix(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

// FNV-1a, then mixed with the seed: one stream of counters per tensor.
uint64_t StreamKey(const std::string& name, uint64_t seed) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return Mix(hash + Mix(seed + 0x9e3779b97f4a7c15u));
}

// Sums of the four low and the four high bytes of a hash, as two 32-bit halves.
inline uint64_t ByteSums(uint64_t hash) {
  constexpr uint64_t kBytes = 0x00ff00ff00ff00ffu;
  const uint64_t pairs = (hash & kBytes) + ((hash >> 8) & kBytes);
  return (pairs + (pairs >> 16)) & 0x0000ffff0000ffffu;
}

// Elements [first, first + count) of the stream `key`.
template <typename T>
void Fill(T* dst, uint64_t key, size_t first, size_t count, const T* table) {
  constexpr uint64_t kStep = 0x9e3779b97f4a7c15u;  // odd, so that counters never repeat
  const auto sums = [&](size_t pair) { return ByteSums(Mix(key + pair * kStep)); };
  size_t i = 0;
  // A range may begin or end in the middle of a pair.
  if (first % 2 == 1 && count > 0) dst[i++] = table[sums(first / 2) >> 32];
  for (; i + 2 <= count; i += 2) {
    const uint64_t both = sums((first + i) / 2);
    dst[i] = table[both & 0xffffffffu];
    dst[i + 1] = table[both >> 32];
  }
  if (i < count) dst[i] = table[sums((first + i) / 2) & 0xffffffffu];
}

// The values of one standard deviation in one dtype.
struct ValueTable {
  std::array<float, kSums> f32;
  std::array<uint16_t, kSums> half;  // bfloat16 or float16, as bits
};

ValueTable MakeTable(double deviation, Dtype dtype) {
  ValueTable table;
  for (int sum = 0; sum < kSums; ++sum) {
    const auto value = static_cast<float>((sum - kSumMean) / kSumDeviation * deviation);
    table.f32[sum] = value;
    table.half[sum] =
        dtype == Dtype::kF16 ? kernels::ToF16(value).bits : kernels::ToBf16(value).bits;
  }
  return table;
}

// How strongly attention and MLP contribute to the residual stream. Attention adds an average over
// the context, which is nearly the same at every position: if it were as strong as the MLP, it
// would drown out the token itself, and greedy decoding would repeat one word forever. With these
// gains, 48 greedy tokens of `tiny`, `opt-125m` and `qwen2.5-0.5b` have 29, 39 and 49 different
// words (with 1 and 1: 5, 2 and 3).
constexpr double kAttentionGain = 0.5, kMlpGain = 3;

// Standard deviations that keep activations near 1 through any number of layers: a linear preserves
// the variance of its input, and the contributions of all layers to the residual stream together
// have a variance of about 1.
double Deviation(const TensorSpec& tensor, const DecoderSpec& spec) {
  const bool inputs_first =
      tensor.shape.size() == 3 && (spec.moe.tensors == ExpertTensors::kAlternating ||
                                   spec.moe.tensors == ExpertTensors::kInputsFirst);
  const auto inputs = static_cast<double>(inputs_first ? tensor.shape[1] : tensor.shape.back());
  switch (tensor.role) {
    case TensorRole::kEmbedding:
    case TensorRole::kLinear:
      return 1 / std::sqrt(inputs);
    case TensorRole::kAttentionOutput:
      return kAttentionGain / std::sqrt(2 * spec.layers * inputs);
    case TensorRole::kMlpOutput:
      return kMlpGain / std::sqrt(2 * spec.layers * inputs);
    case TensorRole::kBias:
      return 0.02;
    case TensorRole::kNorm:
      return 0;
  }
  return 0;
}

Dtype ParseDtype(const std::string& name) {
  for (const Dtype dtype : {Dtype::kF32, Dtype::kBf16, Dtype::kF16})
    if (name == kernels::Name(dtype)) return dtype;
  CHECK(false) << "no dtype '" << name << "'";
  return Dtype::kF32;
}

class MadeUpSource : public TensorSource {
 public:
  MadeUpSource(const DecoderSpec& spec, Dtype dtype, uint64_t seed)
      : dtype_(dtype), norm_(1 - spec.norm_offset) {
    for (const TensorSpec& wanted : TensorList(spec)) {
      Tensor tensor{wanted.shape, StreamKey(wanted.name, seed), nullptr};
      if (wanted.role != TensorRole::kNorm) tensor.table = TableFor(Deviation(wanted, spec));
      tensors_.emplace(wanted.name, std::move(tensor));
    }
  }

  Result<TensorInfo> Find(const std::string& name) const override {
    const auto found = tensors_.find(name);
    if (found == tensors_.end())
      return Fail(ErrorCode::kNotFound,
                  StrCat("no tensor '", name, "' among the ", tensors_.size(), " made-up ones"));
    return TensorInfo{name, dtype_, found->second.shape, ""};
  }

  std::vector<std::string> Names() const override {
    std::vector<std::string> names;
    for (const auto& [name, tensor] : tensors_) names.push_back(name);
    return names;
  }

  const std::byte* Rows(const TensorInfo& info, size_t row, size_t count,
                        std::vector<std::byte>& scratch) const override {
    const Tensor& tensor = tensors_.at(info.name);
    const size_t columns = RowElements(tensor.shape);
    const size_t bytes = count * columns * kernels::SizeOf(dtype_);
    if (scratch.size() < bytes) scratch.resize(bytes);
    if (dtype_ == Dtype::kF32)
      Write(reinterpret_cast<float*>(scratch.data()), tensor, row * columns, count * columns, norm_,
            tensor.table ? tensor.table->f32.data() : nullptr);
    else
      Write(reinterpret_cast<uint16_t*>(scratch.data()), tensor, row * columns, count * columns,
            dtype_ == Dtype::kF16 ? kernels::ToF16(norm_).bits : kernels::ToBf16(norm_).bits,
            tensor.table ? tensor.table->half.data() : nullptr);
    return scratch.data();
  }

  void Release(const TensorInfo&, size_t, size_t) const override {}

 private:
  struct Tensor {
    std::vector<int64_t> shape;
    uint64_t key;
    const ValueTable* table;  // null: a norm's
  };

  const ValueTable* TableFor(double deviation) {
    auto& table = tables_[deviation];
    if (!table) table = std::make_unique<ValueTable>(MakeTable(deviation, dtype_));
    return table.get();
  }

  template <typename T>
  static void Write(T* dst, const Tensor& tensor, size_t first, size_t count, T one,
                    const T* table) {
    if (table)
      Fill(dst, tensor.key, first, count, table);
    else
      std::fill_n(dst, count, one);
  }

  Dtype dtype_;
  float norm_;  // every norm's stored weight, so that it is 1 in use
  std::map<double, std::unique_ptr<ValueTable>> tables_;
  std::map<std::string, Tensor> tensors_;
};

}  // namespace

std::unique_ptr<TensorSource> MakeUpWeights(const DecoderSpec& spec, const std::string& dtype,
                                            uint64_t seed) {
  return std::make_unique<MadeUpSource>(spec, ParseDtype(dtype), seed);
}

}  // namespace pinion
