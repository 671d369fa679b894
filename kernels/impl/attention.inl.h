#pragma once

// Paged attention as two small GEMMs per strip of tokens (scores = q K, out += p V) with a running
// softmax between them (Milakov & Gimelshein, arXiv:1805.02867; tiled as in Dao et al.,
// arXiv:2205.14135). Every key and value is read once for all rows. The layouts of kernels.h make
// both streamed operands look like packed weights, so both GEMMs use register tiles (tile.inl.h).

#include "kernels/impl/attention_latent.inl.h"
#include "kernels/impl/attention_scores.inl.h"
#include "kernels/impl/attention_softmax.inl.h"
#include "kernels/impl/attention_values.inl.h"

namespace pinion::kernels::impl {
namespace {

// Prepares one row of queries for keys of bytes.
template <typename Operand>
void StartScaledRow(const AttentionArgs& args, const float* q, size_t row,
                    Scratch<Operand>& scratch) {
  using Keys = KeyOperand<Operand>;
  Largest largest;
  for (size_t i = 0; i < args.key_dim; i += kLanes) {
    largest.Add(LoadUpTo(q + i, args.key_dim - i, Set(0)));
  }
  const RowScale<Keys> scale(largest.value());
  scratch.q_factors[row] = scale.back;
  for (size_t i = 0; i < args.key_dim; i += kLanes) {
    Keys::Put(scratch.q[row] + i, LoadUpTo(q + i, args.key_dim - i, Set(0)) * Set(scale.to));
  }
  scratch.q_starts[row] = Set(0);
  if constexpr (requires { Keys::Start(scratch.q[row], args.key_dim); }) {
    scratch.q_starts[row] = Keys::Start(scratch.q[row], args.key_dim);
  }
}

template <typename Operand>
void Start(const AttentionArgs& args, size_t rows, Scratch<Operand>& scratch) {
  for (size_t row = 0; row < rows; ++row) {
    const float* q = args.q[row / args.group] + row % args.group * args.key_dim;
    if constexpr (kIsScaled<Operand>) {
      StartScaledRow(args, q, row, scratch);
    } else {
      for (size_t i = 0; i < args.key_dim; i += kLanes) {
        Operand::Put(scratch.q[row] + i, LoadUpTo(q + i, args.key_dim - i, Set(0)));
      }
    }
    for (size_t i = 0; i < args.value_dim; i += kLanes) {
      Put(args.out, Dtype::kF32, row * args.value_dim + i, Set(0), args.value_dim - i);
    }
    args.max[row] = -kInfinity;
    args.sum[row] = 0;
  }
}

// The part of the context that at least one query token sees. A window may cut it anywhere; its
// begin is rounded down to a multiple of `step`, which divides block_tokens, so that strips start
// on a step of the layout. SeenBy masks the tokens that this adds.
struct Range {
  int64_t begin, end;
};
template <int64_t step>
Range SeenByAny(const AttentionArgs& args) {
  int64_t lowest = args.positions[0], highest = lowest;
  for (size_t token = 1; token < args.tokens; ++token) {
    const int64_t position = args.positions[token];
    if (position < lowest) lowest = position;
    if (position > highest) highest = position;
  }
  Range range = {args.context_begin, highest + 1};
  if (range.end > args.context_end) range.end = args.context_end;
  const int64_t first = FirstSeen(args, lowest);
  if (first > range.begin) range.begin = first / step * step;
  return range;
}

// The two products, on vectors.
template <typename Operand>
struct VectorProducts {
  static constexpr size_t kStep = kTokenStep;
  static bool InOrder(const AttentionArgs& args, size_t rows) {
    return ReadsInOrder<Operand>(args, rows);
  }
  void Scores(const AttentionArgs& args, const Strip& strip, const Strip& next, size_t rows,
              Scratch<Operand>& scratch) {
    impl::Scores(args, strip, next, rows, scratch);
  }
  void AddValues(const AttentionArgs& args, const Strip& strip, Seen seen, const Strip& next,
                 size_t first_row, size_t rows, Scratch<Operand>& scratch) {
    impl::AddValues(args, strip, seen, next, first_row, rows, scratch);
  }
};

template <typename Operand, typename Products>
void AttentionIn(const AttentionArgs& args, Scratch<Operand>& scratch) {
  const size_t rows = args.tokens * args.group;
  Start(args, rows, scratch);
  const Range range = SeenByAny<Products::kStep>(args);
  if (range.end <= range.begin) return;
  const auto end = static_cast<size_t>(range.end);
  constexpr auto kGather = Gather<Operand, Products::kStep>;
  const size_t shared = args.step_tokens * args.group;
  const bool in_order = Products::InOrder(args, shared > rows ? shared : rows);
  const size_t most = StripTokens(args, in_order);
  Products products;
  Strip strips[2];
  kGather(args, static_cast<size_t>(range.begin), end, most, strips[0]);
  for (size_t i = 0; strips[i].tokens > 0; i ^= 1) {
    Strip &strip = strips[i], &next = strips[i ^ 1];
    kGather(args, strip.begin + strip.tokens, end, most, next);
    next.sparse = in_order && next.follows;
    products.Scores(args, strip, next, rows, scratch);
    Softmax(args, strip, scratch);
    if (scratch.latent != nullptr) TurnLatent(args, strip, *scratch.latent);
    Values(args, strip, next, scratch, products);
  }
}

// A separate function, so that only latent attention pays the stack of a strip of latent values.
template <typename Operand, typename Products>
[[gnu::noinline]] void AttentionOfLatent(const AttentionArgs& args, Scratch<Operand>& scratch) {
  LatentValues<Operand> latent;
  scratch.latent = &latent;
  AttentionIn<Operand, Products>(args, scratch);
}

template <typename Operand, typename Products = VectorProducts<Operand>>
void AttentionAs(const AttentionArgs& args) {
  Scratch<Operand> scratch;
  if (args.values == nullptr) return AttentionOfLatent<Operand, Products>(args, scratch);
  scratch.latent = nullptr;
  AttentionIn<Operand, Products>(args, scratch);
}

// Attention over a cache of bytes. It is half of attention's code, so every ISA compiles it in a
// separate file. Operands: those for int8 and for the eight-bit floats.
template <typename Operands>
void AttentionOfBytes(const AttentionArgs& args) {
  switch (args.dtype) {
    case KvDtype::kI8:
      return AttentionAs<typename Operands::I8>(args);
    case KvDtype::kE5m2:
      return AttentionAs<typename Operands::E5m2>(args);
    default:
      return AttentionAs<typename Operands::E4m3>(args);
  }
}

// Attention over any cache, without instructions for bfloat16. of_bytes: the ISA's
// AttentionOfBytes.
template <void (*of_bytes)(const AttentionArgs&)>
void Attention(const AttentionArgs& args) {
  switch (args.dtype) {
    case KvDtype::kF32:
      return AttentionAs<OperandF32>(args);
    case KvDtype::kBf16:
      return AttentionAs<OperandBf16Widened>(args);
    case KvDtype::kF16:
      return AttentionAs<OperandF16>(args);
    default:
      return of_bytes(args);
  }
}

}  // namespace
}  // namespace pinion::kernels::impl
