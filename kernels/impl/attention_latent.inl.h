#pragma once

// Latent values are the first part of the keys. Before the second product a strip's are turned from
// the layout of keys, [dim / step][tokens][step], into that of values, [tokens / step][dim][step].

#include <emmintrin.h>

#include "kernels/impl/attention_strip.inl.h"

namespace pinion::kernels::impl {
namespace {

constexpr size_t kTurned = 4;  // tokens, and dimensions, that TurnFour takes

inline __m128i LoadTurned(const std::byte* p) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
}
inline void StoreTurned(std::byte* p, __m128i value) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), value);
}

// The rows of a square of 4 x 4 bytes, or of two squares of 2 x 2 words, become columns.
inline __m128i TurnBytes(__m128i square) {
  const __m128i halves = _mm_unpacklo_epi8(square, _mm_srli_si128(square, 8));
  return _mm_unpacklo_epi8(halves, _mm_srli_si128(halves, 8));
}
inline __m128i TurnWords(__m128i squares) {
  constexpr int kMiddle = _MM_SHUFFLE(3, 1, 2, 0);
  return _mm_shufflehi_epi16(_mm_shufflelo_epi16(squares, kMiddle), kMiddle);
}

// kTurned tokens by kTurned dimensions: from keys whose steps are key_step bytes apart to values
// whose steps are value_step bytes apart.
template <typename Operand>
[[gnu::always_inline]] inline void TurnFour(const std::byte* from, size_t key_step, std::byte* to,
                                            size_t value_step) {
  if constexpr (Operand::kStepK == 4) {
    StoreTurned(to, TurnBytes(LoadTurned(from)));
  } else if constexpr (Operand::kStepK == 2) {
    const __m128i first = TurnWords(LoadTurned(from));
    const __m128i second = TurnWords(LoadTurned(from + key_step));
    StoreTurned(to, _mm_unpacklo_epi64(first, second));
    StoreTurned(to + value_step, _mm_unpackhi_epi64(first, second));
  } else {
    for (size_t token = 0; token < kTurned; ++token) {
      for (size_t d = 0; d < kTurned; ++d)
        __builtin_memcpy(to + token * value_step + d * Operand::kBytes,
                         from + d * key_step + token * Operand::kBytes, Operand::kBytes);
    }
  }
}

// Turns a strip's values into `latent`, and points the strip to them.
template <typename Operand>
void TurnLatent(const AttentionArgs& args, Strip& strip, LatentValues<Operand>& latent) {
  constexpr size_t kStepK = Operand::kStepK;
  const size_t key_step = args.block_tokens * Operand::kBytes;
  const size_t value_step = args.value_dim * Operand::kBytes;
  // Tokens of a vector share a cache line of keys, so they are turned together.
  for (size_t first = 0; first < strip.tokens; first += kLanes) {
    for (size_t d = 0; d < args.value_dim; d += kTurned) {
      const std::byte* from = strip.keys[first / kLanes] + d / kStepK * key_step;
      std::byte* to = latent.strip + first / kStepK * value_step + d * Operand::kBytes;
#pragma GCC unroll 4
      for (size_t token = 0; token < kLanes; token += kTurned)
        TurnFour<Operand>(from + token * Operand::kBytes, key_step,
                          to + token / kStepK * value_step, value_step);
    }
  }
  strip.pieces = 1;
  strip.values[0] = latent.strip;
  strip.value_steps[0] = strip.tokens / kStepK;
}

}  // namespace
}  // namespace pinion::kernels::impl
