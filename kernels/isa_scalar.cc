// The reference: plain C++ that runs on any x86-64, one rule per function. Row-wise functions sum
// in double, so that the order of summation does not matter to tests of the other tables.

#include <cmath>

#include "kernels/impl/attention_scalar.inl.h"
#include "kernels/impl/delta_chunk_scalar.inl.h"
#include "kernels/impl/half.inl.h"
#include "kernels/impl/kv_write_scalar.inl.h"
#include "kernels/impl/probes.h"
#include "kernels/impl/put.inl.h"
#include "kernels/impl/recurrent_scalar.inl.h"
#include "kernels/impl/state_space_scalar.inl.h"
#include "kernels/impl/tables.h"

namespace pinion::kernels::impl {
namespace {

// ---- GEMM -------------------------------------------------------------------------------------

// Rows that are multiplied together. A weight is loaded and widened once for all of them: in a test
// under ThreadSanitizer, or with float16, that costs far more than the product.
constexpr size_t kRowsAtOnce = 8;

// Weight, X: storage types. kPairs: how many consecutive k lie next to each other for one output.
// Up to kRowsAtOnce rows of `x` with the block `w`; each sum is taken in the order of k.
template <typename Weight, typename X, size_t kPairs>
void GemmRows(const GemmArgs& args, const X* x, const Weight* w, size_t rows, float* y) {
  float sums[kRowsAtOnce][kBlockN] = {}, wide[kBlockN];
  for (size_t k = 0; k < args.k_padded; ++k) {
    const Weight* wk = w + k / kPairs * kPairs * kBlockN + k % kPairs;
    for (size_t n = 0; n < kBlockN; ++n) wide[n] = Widen(wk[n * kPairs]);
    for (size_t row = 0; row < rows; ++row) {
      const float xk = Widen(x[row * args.row_stride() + k]);
      for (size_t n = 0; n < kBlockN; ++n) sums[row][n] += xk * wide[n];
    }
  }
  // Not memcpy: ThreadSanitizer would watch every sum, whose address a function was told.
  for (size_t row = 0; row < rows; ++row)
    for (size_t n = 0; n < kBlockN; ++n) y[row * args.ldy + n] = sums[row][n];
}

template <typename Weight, typename X, size_t kPairs>
void Gemm(const GemmArgs& args) {
  const X* x = static_cast<const X*>(args.x);
  const Weight* w = reinterpret_cast<const Weight*>(args.w);
  for (size_t block = 0; block < args.blocks; ++block, w += args.k_padded * kBlockN) {
    for (size_t row = 0; row < args.rows; row += kRowsAtOnce) {
      const size_t rows = args.rows - row < kRowsAtOnce ? args.rows - row : kRowsAtOnce;
      GemmRows<Weight, X, kPairs>(args, x + row * args.row_stride(), w, rows,
                                  args.y + row * args.ldy + block * kBlockN);
    }
  }
}

// ---- Row-wise ---------------------------------------------------------------------------------

void RmsNorm(void* dst, Dtype dst_type, const float* x, const float* weight, size_t n, float eps) {
  double squares = 0;
  for (size_t i = 0; i < n; ++i) squares += static_cast<double>(x[i]) * x[i];
  const float scale = static_cast<float>(1 / std::sqrt(squares / static_cast<double>(n) + eps));
  for (size_t i = 0; i < n; ++i) Put(dst, dst_type, i, x[i] * scale * weight[i]);
}

void LayerNorm(void* dst, Dtype dst_type, const float* x, const float* weight, const float* bias,
               size_t n, float eps) {
  double sum = 0;
  for (size_t i = 0; i < n; ++i) sum += x[i];
  const double mean = sum / static_cast<double>(n);
  double squares = 0;  // in a second pass: the mean of squares less mean^2 would cancel
  for (size_t i = 0; i < n; ++i) squares += (x[i] - mean) * (x[i] - mean);
  const double scale = 1 / std::sqrt(squares / static_cast<double>(n) + eps);
  for (size_t i = 0; i < n; ++i) {
    const float normal = static_cast<float>((x[i] - mean) * scale);
    Put(dst, dst_type, i, normal * weight[i] + (bias ? bias[i] : 0));
  }
}

void Rotary(float* x, const float* cos, const float* sin, size_t half) {
  for (size_t i = 0; i < half; ++i) {
    const float a = x[i], b = x[i + half];
    x[i] = a * cos[i] - b * sin[i];
    x[i + half] = b * cos[i] + a * sin[i];
  }
}

void RotaryPairs(float* x, const float* cos, const float* sin, size_t half) {
  for (size_t i = 0; i < half; ++i) {
    const float a = x[2 * i], b = x[2 * i + 1];
    x[2 * i] = a * cos[i] - b * sin[i];
    x[2 * i + 1] = b * cos[i] + a * sin[i];
  }
}

float Sigmoid(float x) { return 1 / (1 + std::exp(-x)); }

float ActivationOf(Activation activation, float x) {
  switch (activation) {
    case Activation::kSilu:
      return x / (1 + std::exp(-x));
    case Activation::kGeluTanh:
      return x * Sigmoid(1.5957691216f * x * (1 + 0.044715f * x * x));  // 2 sqrt(2/pi)
    case Activation::kGeluErf:
      return 0.5f * x * std::erfc(-0.7071067812f * x);
    case Activation::kRelu:
      return x > 0 ? x : 0;
    case Activation::kSigmoid:
      return Sigmoid(x);
    case Activation::kRelu2:
      return x > 0 ? x * x : 0;
  }
  return x;
}

void Activate(void* dst, Dtype dst_type, Activation activation, const float* x, size_t n) {
  for (size_t i = 0; i < n; ++i) Put(dst, dst_type, i, ActivationOf(activation, x[i]));
}

void ActivateGated(void* dst, Dtype dst_type, Activation activation, const float* gate,
                   const float* up, size_t n) {
  for (size_t i = 0; i < n; ++i) Put(dst, dst_type, i, ActivationOf(activation, gate[i]) * up[i]);
}

void ActivateRows(const ActivateRowsArgs& args) {
  for (size_t row = 0; row < args.rows; ++row) {
    for (size_t i = 0; i < args.n; ++i) {
      const size_t at = row * args.stride + i;
      float value = ActivationOf(args.activation, args.x[at] + (args.bias ? args.bias[i] : 0));
      if (args.up) value *= args.up[at] + (args.up_bias ? args.up_bias[i] : 0);
      Put(args.dst, args.dst_type, row * args.dst_stride + i, value);
    }
  }
}

void ClampedSwiglu(void* dst, Dtype dst_type, const float* gate, const float* up, size_t n,
                   float alpha, float limit) {
  for (size_t i = 0; i < n; ++i) {
    const float g = gate[i] < limit ? gate[i] : limit;
    const float below = up[i] < limit ? up[i] : limit, u = below > -limit ? below : -limit;
    Put(dst, dst_type, i, g * Sigmoid(alpha * g) * (u + 1));
  }
}

void Add(float* y, const float* x, size_t n) {
  for (size_t i = 0; i < n; ++i) y[i] += x[i];
}

void AddScaled(float* y, const float* x, float factor, size_t n) {
  for (size_t i = 0; i < n; ++i) y[i] += factor * x[i];
}

void Scale(float* x, float factor, size_t n) {
  for (size_t i = 0; i < n; ++i) x[i] *= factor;
}

void Weigh(float* x, const float* weight, float factor, size_t n) {
  for (size_t i = 0; i < n; ++i) x[i] *= factor * weight[i];
}

void SoftplusDecay(float* dst, const float* x, const float* bias, float rate, size_t n) {
  for (size_t i = 0; i < n; ++i) {
    const double z = static_cast<double>(x[i] + bias[i]);
    const double softplus = z > 40 ? z : std::log1p(std::exp(z));
    dst[i] = static_cast<float>(std::exp(rate * softplus));
  }
}

float SumSquares(const float* x, size_t n) {
  double squares = 0;
  for (size_t i = 0; i < n; ++i) squares += static_cast<double>(x[i]) * x[i];
  return static_cast<float>(squares);
}

void SoftCap(float* x, float cap, size_t n) {
  for (size_t i = 0; i < n; ++i) x[i] = cap * std::tanh(x[i] / cap);
}

void Store(void* dst, Dtype dst_type, const float* x, size_t n) {
  for (size_t i = 0; i < n; ++i) Put(dst, dst_type, i, x[i]);
}

template <typename Dst, typename Src>
void ConvertAs(std::byte* dst, const std::byte* src, size_t n) {
  for (size_t i = 0; i < n; ++i) {
    Src from;
    Dst to;
    std::memcpy(&from, src + i * sizeof(Src), sizeof(Src));
    Narrow(Widen(from), to);
    std::memcpy(dst + i * sizeof(Dst), &to, sizeof(Dst));
  }
}

template <typename Dst>
void ConvertTo(std::byte* dst, const std::byte* src, Dtype src_type, size_t n) {
  switch (src_type) {
    case Dtype::kF32:
      return ConvertAs<Dst, float>(dst, src, n);
    case Dtype::kBf16:
      return ConvertAs<Dst, Bf16>(dst, src, n);
    case Dtype::kF16:
      return ConvertAs<Dst, F16>(dst, src, n);
  }
}

void Convert(std::byte* dst, Dtype dst_type, const std::byte* src, Dtype src_type, size_t n) {
  switch (dst_type) {
    case Dtype::kF32:
      return ConvertTo<float>(dst, src, src_type, n);
    case Dtype::kBf16:
      return ConvertTo<Bf16>(dst, src, src_type, n);
    case Dtype::kF16:
      return ConvertTo<F16>(dst, src, src_type, n);
  }
}

float MaxOver(const float* x, size_t n) {
  float max = kMinusInfinity;
  bool nan = false;
  for (size_t i = 0; i < n; ++i) {
    max = x[i] > max ? x[i] : max;
    nan = nan || x[i] != x[i];
  }
  return nan ? std::nanf("") : max;
}

float LogSumExp(const float* x, size_t n) {
  const float max = MaxOver(x, n);
  if (std::isinf(max)) return max;  // nothing but -infinity, or some +infinity
  double sum = 0;
  for (size_t i = 0; i < n; ++i) sum += std::exp(static_cast<double>(x[i]) - max);
  return static_cast<float>(max + std::log(sum));
}

float ExpWeights(float* x, size_t n, float max, float scale, float least) {
  double sum = 0;
  for (size_t i = 0; i < n; ++i) {
    const float weight = std::exp((x[i] - max) * scale);
    x[i] = weight >= least ? weight : 0;  // NaN fails every comparison
    sum += x[i];
  }
  return static_cast<float>(sum);
}

float SumAtLeast(const float* x, size_t n, float least) {
  double sum = 0;
  for (size_t i = 0; i < n; ++i)
    if (x[i] >= least) sum += x[i];
  return static_cast<float>(sum);
}

size_t ArgMax(const float* x, size_t n) {
  const float max = MaxOver(x, n);
  for (size_t i = 0; i < n; ++i)
    if (x[i] == max) return i;
  return n;  // the largest is NaN, which equals nothing
}

// ---- Probes -----------------------------------------------------------------------------------

// The compiler's vector for plain loops on the oldest x86-64: four lanes, no fused multiply-add.
using Four = float __attribute__((vector_size(16)));

void Opaque(Four& v) { asm volatile("" : "+x"(v)); }

uint64_t ProbeMultiply(size_t steps) {
  constexpr size_t kChains = 12;
  Four factor = {0.5f, 0.5f, 0.5f, 0.5f}, sums[kChains] = {};
  Opaque(factor);
#pragma GCC unroll 12
  for (size_t i = 0; i < kChains; ++i) Opaque(sums[i]);  // or the compiler keeps one sum for all
  for (size_t step = 0; step < steps; ++step) {
#pragma GCC unroll 12
    for (size_t i = 0; i < kChains; ++i) sums[i] = sums[i] * factor + factor;
  }
#pragma GCC unroll 12
  for (size_t i = 0; i < kChains; ++i) Opaque(sums[i]);
  return steps * kChains * 4 * 2;
}

uint64_t ProbeExp(size_t steps) {
  float x = -3.5f;
  for (size_t step = 0; step < steps; ++step) {
    asm volatile("" : "+x"(x));
    float result = std::exp(x);
    asm volatile("" : "+x"(result));
  }
  return steps;
}

template <size_t ahead>
void ProbeRead(const std::byte* src, size_t bytes) {
  for (const std::byte* end = src + bytes; src < end; src += 64) {
    if (ahead > 0) __builtin_prefetch(src + ahead);
#pragma GCC unroll 4
    for (size_t i = 0; i < 64; i += sizeof(Four)) {
      Four v = *reinterpret_cast<const Four*>(src + i);
      Opaque(v);
    }
  }
}

}  // namespace

const Probes kScalarProbes = {
    .isa = Isa::kScalar,
    .multiply_f32 = ProbeMultiply,
    .multiply_bf16 = nullptr,
    .exp_f32 = ProbeExp,
    .read = ProbeRead<0>,
    .stream = ProbeRead<kProbeAhead>,
};

const Table kScalarTable = {
    .isa = Isa::kScalar,
    .gemm_f32 = Gemm<float, float, 1>,
    .gemm_bf16 = Gemm<Bf16, Bf16, 2>,
    .gemm_f16 = Gemm<F16, float, 1>,
    .rms_norm = RmsNorm,
    .layer_norm = LayerNorm,
    .rotary = Rotary,
    .rotary_pairs = RotaryPairs,
    .activate = Activate,
    .activate_gated = ActivateGated,
    .activate_rows = ActivateRows,
    .clamped_swiglu = ClampedSwiglu,
    .add = Add,
    .add_scaled = AddScaled,
    .scale = Scale,
    .weigh = Weigh,
    .softplus_decay = SoftplusDecay,
    .sum_squares = SumSquares,
    .soft_cap = SoftCap,
    .store = Store,
    .convert = Convert,
    .log_sum_exp = LogSumExp,
    .exp_weights = ExpWeights,
    .sum_at_least = SumAtLeast,
    .max = MaxOver,
    .argmax = ArgMax,
    .delta_rule = DeltaRule,
    .delta_chunk = DeltaChunk,
    .state_space = StateSpace,
    .state_space_scores = StateSpaceScores,
    .state_space_chunk = StateSpaceChunk,
    .short_conv = ShortConv,
    .kv_write = KvWrite,
    .attention = Attention,
    .attention_merge = AttentionMerge,
};

}  // namespace pinion::kernels::impl
