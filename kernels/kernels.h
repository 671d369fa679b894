#pragma once

// The kernels: arithmetic on pointers and shapes. No allocation (but see Gemm's oneDNN cache), no
// threads, no errors: callers have checked the shapes. Every function may run on any number of
// threads at once on disjoint destinations.
//
// One Table of functions per ISA. All tables compute the same thing; floating-point results differ
// only by the order of summation (and, in bf16, by the places at which products are rounded).

#include <cstddef>
#include <cstdint>

#include "kernels/isa.h"
#include "kernels/types.h"

namespace pinion::kernels {

// ---- Packed weights -------------------------------------------------------------------------
// A weight matrix [n][k] (Hugging Face's Linear: y = x W^T) is packed once into column blocks of
// kBlockN outputs, oneDNN's own layouts, so that its primitives and ours read the same copy:
//   float32   BA16a64b    [n/64][k/16][16 k][64 n]
//   bfloat16  BA16a64b2a  [n/64][k/32][16 k-pairs][64 n][2 k]
//   float16   [n/64][k/16][16 k][64 n]   (oneDNN has no f16: our kernels only)
// n is padded to 64 and k to kPadK with zeros, so kernels have no tails in n and k.
inline constexpr size_t kBlockN = 64;
inline constexpr size_t kPadK = 32;

// Bytes of one packed block of 64 outputs.
constexpr size_t PackedBlockBytes(Dtype dtype, size_t k) {
  return kBlockN * RoundUp(k, kPadK) * SizeOf(dtype);
}

// Packs rows [0, rows) of src (rows <= 64; missing ones become zero) into one block at dst.
//   dst   PackedBlockBytes(dst_type, k), 64-byte aligned
//   src   [rows][k] of src_type, row stride src_stride elements
// Converts between any two types. dst may be freshly mapped memory: it is written in full, by the
// calling thread (first touch).
void PackBlock(std::byte* dst, Dtype dst_type, const std::byte* src, Dtype src_type,
               size_t src_stride, size_t rows, size_t k);

// Plain conversion of n contiguous elements between types (embedding rows, norm weights, biases),
// like PackBlock's by the best usable ISA. Every ISA gives the same bits, except for the payload of
// a NaN.
void Convert(std::byte* dst, Dtype dst_type, const std::byte* src, Dtype src_type, size_t n);

// How a product gets weights that no cache holds: it prefetches them into L1 (kNear) or into L2
// (kFar), which is faster if arithmetic takes about as long as reading; or it leaves prefetching to
// the hardware (kNone), which keeps up with a few rows; or it prefetches them into L2 first and
// into L1 later (kBoth), for cores with more misses of L2 in flight than of L1.
enum class Prefetch { kNear, kFar, kNone, kBoth };
inline constexpr Prefetch kPrefetches[] = {Prefetch::kNear, Prefetch::kFar, Prefetch::kNone,
                                           Prefetch::kBoth};

// ---- GEMM -----------------------------------------------------------------------------------
// y[rows][blocks*64] = x[rows][k_padded] * packed^T, overwriting y.
//   x      activations, element type ActivationType(weight type); k_padded = RoundUp(k, 32);
//          columns k..k_padded are zero; 64-byte aligned
//   w      `blocks` consecutive packed blocks
//   y      float32, row stride ldy elements (>= blocks*64), 64-byte aligned rows (ldy % 16 == 0)
//   prefetch  only vector kernels follow it. Gemm() sets it.
//   x_stride  elements from row to row of x, a multiple of 32; 0: k_padded
struct GemmArgs {
  const void* x;
  const std::byte* w;
  float* y;
  size_t rows, k_padded, blocks, ldy;
  Prefetch prefetch = Prefetch::kNear;
  size_t x_stride = 0;
  // Always inlined, because ISA files call it (README, the rule of ISA files).
  [[gnu::always_inline]] size_t row_stride() const { return x_stride > 0 ? x_stride : k_padded; }
};
// How products of many rows are best cut into calls. Kernels on matrix tiles want few enough rows
// for the activations to stay in L2 while block after block of weights passes and, if K is so deep
// that only some columns of the activations fit, several blocks per call; others want few enough
// rows for their sums to stay there. Any other cut computes the same bits.
struct ProductCut {
  size_t rows = ~size_t{0};         // at most per call: a multiple of kCutRows
  size_t blocks = 1;                // at least per call, if there are that many
  size_t rows_of_few = ~size_t{0};  // like `rows`, for a call of fewer blocks
};
inline constexpr size_t kCutRows = 32;

// `rows` rows in the fewest parts of at most `most`, all but the last a multiple of kCutRows and as
// even as that allows.
struct ProductParts {
  size_t rows, units, count;
  constexpr ProductParts(size_t rows, size_t most)
      : rows(rows),
        units((rows + kCutRows - 1) / kCutRows),
        count(rows <= most ? 1 : (units + most / kCutRows - 1) / (most / kCutRows)) {}
  constexpr size_t Begin(size_t part) const {
    const size_t row = units * part / count * kCutRows;
    return row < rows ? row : rows;
  }
  constexpr size_t Size(size_t part) const { return Begin(part + 1) - Begin(part); }
};

// bf16 weights take bf16 activations; f32 and f16 weights take float32 activations.
constexpr Dtype ActivationType(Dtype weights) {
  return weights == Dtype::kBf16 ? Dtype::kBf16 : Dtype::kF32;
}

// ---- Attention ------------------------------------------------------------------------------
// The KV cache of one layer and one rank is a pool of blocks of block_tokens tokens. Each KV head
// has a plane of keys and a plane of values: an array of one entry per block, at any stride.
//   K of one block  float32, float16: [key_dim][block_tokens];
//                   bfloat16: [key_dim/2][block_tokens][2]   (pairs along the reduced dimension)
//                   bytes: [key_dim/4][block_tokens][4], then the scales, bfloat16 [block_tokens]
//   V of one block  float32, float16: [block_tokens][value_dim];
//                   bfloat16: [block_tokens/2][value_dim][2]
//                   bytes: [block_tokens/4][value_dim][4], then the scales, bfloat16 [block_tokens]
// A byte stands for its number (types.h) times its token's scale.
// block_tokens is a multiple of 16, key_dim and value_dim are multiples of 8. Slots without a token
// may hold anything: no row sees them, nor any token outside its own range.
// A latent cache (DeepSeek-V2, arXiv:2405.04434) has no plane of values: they are the first
// value_dim elements of the keys.
//
// Bytes of one block of K (dim: key_dim) or of V (value_dim). With scales they are rounded up to
// whole cache lines, so that vectors of the next block do not straddle two.
constexpr size_t KvPlaneBlockBytes(KvDtype dtype, size_t block_tokens, size_t dim) {
  if (IsScaled(dtype)) return RoundUp(block_tokens * (dim + sizeof(Bf16)), 64);
  return block_tokens * dim * SizeOf(dtype);
}

// The layout of a plane's blocks (the keys, or the values, of one KV head): 2^shift of them form a
// stretch, `block` bytes from one to the next; stretches are `span` bytes apart, because those of
// the other heads lie between them. Blocks of a head with consecutive numbers are thus neighbours
// in memory, which the hardware's prefetchers follow.
struct KvStrides {
  size_t block, span;  // bytes
  unsigned shift;

  constexpr size_t blocks() const { return size_t{1} << shift; }  // of a stretch
  // Bytes from block 0 to block `i`.
  constexpr size_t At(size_t i) const { return (i >> shift) * span + (i & (blocks() - 1)) * block; }
};

// Writes the keys and values of one KV head into the slots of one block: those of `tokens`
// neighbouring tokens, from `slot` on. For bytes, a token's scale is the largest magnitude divided
// by the type's largest number, rounded up to bfloat16, and elements are rounded to the nearest,
// ties to even. If an element is infinite or NaN, so is the scale.
struct KvWriteArgs {
  std::byte *keys, *values;  // the block within its planes; values: null if latent
  const float *k, *v;  // [tokens][key_dim], rotary applied; [tokens][value_dim], unread if latent
  size_t slot, block_tokens, key_dim, value_dim;
  KvDtype dtype;
  size_t tokens = 1;  // 1 to block_tokens - slot
  size_t stride = 0;  // elements from token to token, of k as of v; unused for one token
};

// Attention of some query tokens over one run of cached tokens [context_begin, context_end), for
// the query heads that share one KV head: a partial softmax that AttentionMerge finishes, so that a
// long context can be split over threads. The query tokens are mostly neighbours in one sequence,
// but may be of several sequences whose block tables agree on the run (a shared prefix).
//   row r = token r / group, head r % group; rows = tokens * group <= kAttentionRows
//   Query token t sees the cached tokens in (positions[t] - window, positions[t]], from first_seen
//   on.
struct AttentionArgs {
  const float* const* q;     // [tokens]: head g of token t at q[t] + g * key_dim, NOT yet scaled
  const int64_t* positions;  // [tokens], in any order
  size_t tokens, group, key_dim, value_dim;
  // If others of a step's calls share the run (0: none does): how many query tokens all of them
  // have. The way in which sums are grouped follows from that number, not from `tokens`.
  size_t step_tokens = 0;
  int64_t window;                      // >= 1; kNoWindow: everything up to the position
  int64_t first_seen = 0;              // >= 0
  int64_t context_begin, context_end;  // context_begin: multiple of block_tokens
  const std::byte *keys, *values;      // the KV head's planes; values: null if latent
  KvStrides key_strides, value_strides;
  const int32_t* block_table;  // block_table[p / block_tokens] holds position p; entries
                               // outside the run are not read, entries of tokens that no
                               // row sees may hold anything
  size_t block_tokens;
  KvDtype dtype;   // of the cache
  float scale;     // s = q.k * scale; > 0
  float soft_cap;  // > 0: s = soft_cap * tanh(q.k * scale / soft_cap); 0: none
  float* out;      // [rows][value_dim]: sum of exp(s - max) * v, not normalised
  float* max;      // [rows]: largest s (-infinity if a row sees nothing)
  float* sum;      // [rows]: sum of exp(s - max)
};
inline constexpr size_t kAttentionRows = 64;
inline constexpr int64_t kNoWindow = int64_t{1} << 62;
// Scratch is on the stack. 576 and 512: DeepSeek's latent, with and without its rotary part.
inline constexpr size_t kMaxKeyDim = 576, kMaxValueDim = 512;

// One partial result, as above: [rows][value_dim], [rows], [rows].
struct AttentionPart {
  const float *out, *max, *sum;
};

// Combines the partial results of the same rows and normalises. dst row (t, g) is written at
// dst + (t * dst_stride + g * value_dim) elements of dst_type. Rows that see nothing become 0.
struct AttentionMergeArgs {
  const AttentionPart* parts;
  size_t parts_count, tokens, group, value_dim;
  const float* sinks;  // [group]: a logit per head that joins the sum and has no value; or null
  void* dst;
  size_t dst_stride;  // elements
  Dtype dst_type;     // kF32 or kBf16
};

// ---- MLP activations ------------------------------------------------------------------------
enum class Activation {
  kSilu,      // x / (1 + e^-x)
  kGeluTanh,  // x / 2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))
  kGeluErf,   // x / 2 (1 + erf(x / sqrt(2)))
  kRelu,      // max(0, x)
  kSigmoid,   // 1 / (1 + e^-x): of gates
  kRelu2,     // max(0, x)^2
};

// ---- Recurrent layers -----------------------------------------------------------------------
// One token of one head of the gated delta rule (arXiv:2412.06464, sec. 3): with S the state,
//   S *= decay;  S += k (beta (v - S'k))';  out = S'q
// or, with a decay for each channel of the key (Kimi Delta Attention, arXiv:2510.26692, sec. 3),
// S = diag(decays) S instead.
struct DeltaRuleArgs {
  float* state;        // [key_dim][value_dim], updated in place
  const float *q, *k;  // [key_dim], normalised and scaled
  const float* v;      // [value_dim]
  size_t key_dim, value_dim;
  float decay, beta;              // 0 to 1
  float* out;                     // [value_dim]; overlaps nothing else
  const float* decays = nullptr;  // [key_dim], instead of decay; 0 to 1
};

// Some consecutive tokens of one head, as DeltaRule computes them one by one, up to rounding; by
// matrix products, in which the state is read and written once for all tokens. With d_t the decays,
// D(t, s) = d_(s+1) ... d_t, and u_t = beta_t (v_t - d_t S_(t-1)'k_t) what token t adds for its
// key, the recurrence gives
//   S_t = D(t, 0) S_0 + sum over s <= t of D(t, s) k_s u_s'
// and, with this in u_t, a triangular system for all u (arXiv:2412.06464, sec. 3.3):
//   u_t + sum over s < t of beta_t D(t, s) (k_t'k_s) u_s = beta_t (v_t - D(t, 0) S_0'k_t)
// which is solved by substitution, without the inverse. Then
//   out_t = D(t, 0) S_0'q_t + sum over s <= t of D(t, s) (q_t'k_s) u_s
// D is multiplied up from the decays, from 1 on: nothing overflows, nothing is divided, a decay may
// be 0, and the error of D(t, s) is at most t - s roundings.
// With a decay for each channel of the key, D(t, s) is one for each channel, too: the products with
// D stand for sums over channels, as k_t'diag(D(t, s)) k_s for D(t, s) (k_t'k_s).
struct DeltaChunkArgs {
  float* state;        // [key_dim][value_dim], updated in place
  const float *q, *k;  // [tokens][key_dim], normalised and scaled
  const float* v;      // [tokens][value_dim], rows v_stride floats apart
  size_t v_stride;
  size_t tokens, key_dim, value_dim;  // tokens: 1 to kDeltaChunk
  const float *decay, *beta;          // [tokens], 0 to 1
  float* out;                         // [tokens][value_dim], contiguous; overlaps nothing else
  // [DeltaChunkFloats(key_dim, decays != nullptr)], 64-byte aligned; contents neither kept nor read
  float* scratch;
  const float* decays = nullptr;  // [tokens][key_dim], instead of decay; 0 to 1
};
inline constexpr size_t kDeltaChunk = 64;
// The columns of a state that are computed at a time.
inline constexpr size_t kDeltaPanel = 64;
// With decays of channels, the most tokens whose products with keys are computed pair by pair.
inline constexpr size_t kDeltaPairs = 16;
constexpr size_t DeltaChunkFloats(size_t key_dim, bool by_channel = false) {
  const size_t decayed = by_channel ? 2 * (kDeltaChunk + kDeltaPairs) * key_dim : 0;
  return key_dim * (kDeltaChunk + kDeltaPanel) + 2 * kDeltaChunk * (kDeltaChunk + kDeltaPanel) +
         decayed;
}

// Consecutive tokens of one head of a state space model (Mamba-2, arXiv:2405.21060, sec. 6); for
// each of them, with S the state:
//   S = decay S + b (dt x)';  out = S'c + skip x
struct StateSpaceArgs {
  float* state;    // [state_dim][head_dim], updated in place
  const float* x;  // [tokens][head_dim], rows stride floats apart, as those of the next two
  const float* b;  // [tokens][state_dim]
  const float* c;  // [tokens][state_dim]
  size_t stride, tokens, state_dim, head_dim;
  const float *decay, *dt;  // [tokens]
  float skip;
  float* out;         // [tokens][head_dim], out_stride floats apart; may be x, if the strides agree
  size_t out_stride;  // floats
};

// Some consecutive tokens of one head, as StateSpace computes them one by one, up to rounding; by
// matrix products, in which the state is read and written once for all tokens. With d_t the decays
// and D(t, s) = d_(s+1) ... d_t, the recurrence gives (arXiv:2405.21060, sec. 6)
//   out_t = D(t, 0) S_0'c_t + sum over s <= t of D(t, s) dt_s (c_t'b_s) x_s + skip x_t
//   S_t = D(t, 0) S_0 + sum over s <= t of D(t, s) dt_s b_s x_s'
// The c_t'b_s are the same for all heads with these b and c: StateSpaceScores computes them once.
// D is multiplied up from the decays, from 1 on: nothing overflows, nothing is divided, a decay may
// be 0, and the error of D(t, s) is at most t - s roundings.
struct StateSpaceScoresArgs {
  const float *b, *c;     // [tokens][state_dim], rows stride floats apart
  size_t stride, tokens;  // tokens: 1 to kStateChunk
  size_t state_dim;       // at least 1
  float* scores;  // [tokens][kStateChunk]: c_t'b_s in row t for s <= t; the rest is undefined
  size_t scores_stride;  // floats from row to row, at least kStateChunk
  float* scratch;        // [StateChunkFloats(state_dim)], as that of StateSpaceChunkArgs
};
struct StateSpaceChunkArgs {
  float* state;    // [state_dim][head_dim], updated in place
  const float* x;  // [tokens][head_dim], rows stride floats apart, as those of the next two
  const float* b;  // [tokens][state_dim]
  const float* c;  // [tokens][state_dim]
  size_t stride, tokens, state_dim, head_dim;  // tokens: 1 to kStateChunk
  const float* scores;                         // [tokens], of b and c
  size_t scores_stride;
  const float *decay, *dt;  // [tokens]; decay: 0 to 1, dt: 0 or more
  float skip;
  float* out;         // [tokens][head_dim], out_stride floats apart; may be x, if the strides agree
  size_t out_stride;  // floats
  float* scratch;  // [StateChunkFloats(state_dim)], 64-byte aligned; contents neither kept nor read
};
inline constexpr size_t kStateChunk = 64;
constexpr size_t StateChunkFloats(size_t state_dim) {
  return kStateChunk * (state_dim > 2 * kStateChunk ? state_dim : 2 * kStateChunk);
}

// Consecutive tokens of a causal convolution of each channel with a kernel of its own:
// dst[r][c] = sum over t of weights[t * weight_stride + c] * inputs[r + t][c]
struct ShortConvArgs {
  const float* const* inputs;  // [width - 1 + rows]: rows [n] of the tokens before, then of these
  const float* weights;        // [width], weight_stride floats apart
  size_t width, weight_stride, n, rows;
  // [rows][n], stride floats apart. A token's own input, inputs[width - 1 + r], may be dst + r *
  // stride, since the last row is computed first; the inputs are elsewhere otherwise.
  float* dst;
  size_t stride;
};

// Rows of a product, activated while they are in cache:
//   dst[row][i] = activation(x[row][i] + bias[i])
// and if there is `up`, times up[row][i] + up_bias[i]. A null bias is none.
struct ActivateRowsArgs {
  Activation activation;
  const float *x, *up = nullptr;  // [rows][n]
  size_t rows, n, stride;         // stride: elements from row to row, of x as of up
  const float *bias = nullptr, *up_bias = nullptr;  // [n]; both or none if there is `up`
  std::byte* dst;                                   // [rows][n] of dst_type, kF32 or kBf16
  Dtype dst_type;
  size_t dst_stride;  // elements from row to row
};

// ---- Table ----------------------------------------------------------------------------------
// Row-wise functions take float32 sources and write dst in dst_type (kF32 or kBf16).
struct Table {
  Isa isa;
  void (*gemm_f32)(const GemmArgs&);
  void (*gemm_bf16)(const GemmArgs&);
  void (*gemm_f16)(const GemmArgs&);
  size_t (*stride_bf16)(size_t rows, size_t k_padded) = nullptr;  // GemmStride; null: k_padded

  // dst[n] = x / sqrt(mean(x^2) + eps) * weight        (Zhang & Sennrich, arXiv:1910.07467)
  void (*rms_norm)(void* dst, Dtype dst_type, const float* x, const float* weight, size_t n,
                   float eps);
  // dst[n] = (x - mean) / sqrt(var + eps) * weight + bias  (Ba et al., arXiv:1607.06450);
  // a null bias is none
  void (*layer_norm)(void* dst, Dtype dst_type, const float* x, const float* weight,
                     const float* bias, size_t n, float eps);
  // x[i], x[i + half] rotated by cos[i], sin[i], i < half ("rotate_half" pairs), in place.
  void (*rotary)(float* x, const float* cos, const float* sin, size_t half);
  // The same of the pairs x[2i], x[2i + 1].
  void (*rotary_pairs)(float* x, const float* cos, const float* sin, size_t half);
  // dst[i] = activation(x[i])
  void (*activate)(void* dst, Dtype dst_type, Activation activation, const float* x, size_t n);
  // dst[i] = activation(gate[i]) * up[i]               (Shazeer, arXiv:2002.05202)
  void (*activate_gated)(void* dst, Dtype dst_type, Activation activation, const float* gate,
                         const float* up, size_t n);
  void (*activate_rows)(const ActivateRowsArgs&);
  // dst[i] = g * sigmoid(alpha * g) * (u + 1), g = min(gate[i], limit), u = up[i] within +-limit
  // (GPT-OSS)
  void (*clamped_swiglu)(void* dst, Dtype dst_type, const float* gate, const float* up, size_t n,
                         float alpha, float limit);
  // y[i] += x[i]
  void (*add)(float* y, const float* x, size_t n);
  // y[i] += factor * x[i]
  void (*add_scaled)(float* y, const float* x, float factor, size_t n);
  // x[i] *= factor
  void (*scale)(float* x, float factor, size_t n);
  // x[i] *= factor * weight[i]
  void (*weigh)(float* x, const float* weight, float factor, size_t n);
  // dst[i] = exp(rate * log(1 + exp(x[i] + bias[i]))), the decays of channels; rate <= 0
  void (*softplus_decay)(float* dst, const float* x, const float* bias, float rate, size_t n);
  // sum of x[i]^2
  float (*sum_squares)(const float* x, size_t n);
  // x[i] = cap * tanh(x[i] / cap)                      (Gemma 2, arXiv:2408.00118); cap > 0
  void (*soft_cap)(float* x, float cap, size_t n);
  // dst[i] = x[i], converted
  void (*store)(void* dst, Dtype dst_type, const float* x, size_t n);
  // dst[i] = src[i], from any type to any other, neither pointer aligned
  void (*convert)(std::byte* dst, Dtype dst_type, const std::byte* src, Dtype src_type, size_t n);
  // log(sum(exp(x[i]))), computed stably; NaN if an element is NaN; n >= 1
  float (*log_sum_exp)(const float* x, size_t n);
  // x[i] = exp((x[i] - max) * scale), or 0 if that is NaN or below `least`; returns their sum. max
  // is finite, scale > 0, least >= 0
  float (*exp_weights)(float* x, size_t n, float max, float scale, float least);
  // sum of the x[i] that are >= least, a finite number
  float (*sum_at_least)(const float* x, size_t n, float least);
  // the largest x[i]; NaN if an element is NaN; n >= 1
  float (*max)(const float* x, size_t n);
  // index of the largest x[i], the lowest index of equal ones; n if an element is NaN; n >= 1
  size_t (*argmax)(const float* x, size_t n);

  void (*delta_rule)(const DeltaRuleArgs&);
  void (*delta_chunk)(const DeltaChunkArgs&);
  void (*state_space)(const StateSpaceArgs&);
  void (*state_space_scores)(const StateSpaceScoresArgs&);
  void (*state_space_chunk)(const StateSpaceChunkArgs&);
  void (*short_conv)(const ShortConvArgs&);
  void (*kv_write)(const KvWriteArgs&);
  void (*attention)(const AttentionArgs&);
  void (*attention_merge)(const AttentionMergeArgs&);
};

// The table of one usable ISA; asking for one that is not in UsableIsas() aborts.
const Table& TableFor(Isa isa);

// ---- Choice of kernel ------------------------------------------------------------------------
// Caps oneDNN to `isa`. Must be called once per process before any Gemm; a second call with another
// ISA returns false (oneDNN's cap cannot change after first use).
bool LimitOneDnn(Isa isa);

// One thread's GEMM over its own column blocks, by the kernel that the table's rules (gemm_plan.h)
// name for this number of rows. oneDNN's primitives and scratch are kept per thread.
void Gemm(const Table& table, Dtype weights, const GemmArgs& args);
// How `rows` rows of `k_padded` columns are best cut into calls of Gemm.
ProductCut GemmCut(const Table& table, Dtype weights, size_t rows, size_t k_padded);
// The best x_stride for them: k_padded, or kSpreadGap more if rows as far apart as that would evict
// each other from L1. At most kSpreadColumns columns get more.
inline constexpr size_t kSpreadColumns = 4096, kSpreadGap = 32;
size_t GemmStride(const Table& table, Dtype weights, size_t rows, size_t k_padded);

}  // namespace pinion::kernels
