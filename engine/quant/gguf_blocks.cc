#include "engine/quant/gguf_blocks.h"

#include <algorithm>
#include <cstring>

#include "kernels/types.h"

namespace pinion {
namespace {

uint8_t Byte(const std::byte* p) { return std::to_integer<uint8_t>(*p); }
uint8_t Low(const std::byte* p) { return Byte(p) & 0xf; }
uint8_t High(const std::byte* p) { return Byte(p) >> 4; }

float Half(const std::byte* p) {
  kernels::F16 half;
  std::memcpy(&half.bits, p, sizeof(half.bits));
  return kernels::ToFloat(half);
}

uint32_t Word(const std::byte* p) {
  uint32_t word;
  std::memcpy(&word, p, sizeof(word));
  return word;
}

// ---- Blocks of 32 weights: low nibbles are the first 16, high ones the rest.
constexpr size_t kSmall = 32, kHalfSmall = 16;

void Nibbles(const std::byte* src, int zero, int8_t* codes) {
  for (size_t i = 0; i < kHalfSmall; ++i) {
    codes[i] = static_cast<int8_t>(Low(src + i) - zero);
    codes[i + kHalfSmall] = static_cast<int8_t>(High(src + i) - zero);
  }
}

// Nibbles with a fifth bit each, bit i of `high` being that of weight i.
void FiveBits(const std::byte* src, uint32_t high, int zero, int8_t* codes) {
  Nibbles(src, zero, codes);
  for (size_t i = 0; i < kSmall; ++i)
    codes[i] = static_cast<int8_t>(codes[i] + static_cast<int>((high >> i & 1) << 4));
}

void DecodeQ40(const std::byte* block, int8_t* codes, float* scales, float* offsets) {
  *scales = Half(block);
  *offsets = 0;
  Nibbles(block + 2, 8, codes);
}

void DecodeQ41(const std::byte* block, int8_t* codes, float* scales, float* offsets) {
  *scales = Half(block);
  *offsets = Half(block + 2);
  Nibbles(block + 4, 0, codes);
}

void DecodeQ50(const std::byte* block, int8_t* codes, float* scales, float* offsets) {
  *scales = Half(block);
  *offsets = 0;
  FiveBits(block + 6, Word(block + 2), 16, codes);
}

void DecodeQ51(const std::byte* block, int8_t* codes, float* scales, float* offsets) {
  *scales = Half(block);
  *offsets = Half(block + 2);
  FiveBits(block + 8, Word(block + 4), 0, codes);
}

void DecodeQ80(const std::byte* block, int8_t* codes, float* scales, float* offsets) {
  *scales = Half(block);
  *offsets = 0;
  std::memcpy(codes, block + 2, kSmall);
}

// ---- Blocks of 256 weights in 8 groups of 32, whose scales and minima have 6 bits each.
constexpr size_t kLarge = 256, kLargeGroups = 8;

struct SixBitPair {
  uint8_t scale, min;
};
// The twelve bytes hold four scales, four minima (6 bits), then the low nibbles of four more of
// each, whose upper two bits lie on top of the first eight bytes.
SixBitPair UnpackSixBits(const std::byte* packed, size_t group) {
  if (group < 4)
    return {static_cast<uint8_t>(Byte(packed + group) & 63),
            static_cast<uint8_t>(Byte(packed + group + 4) & 63)};
  const std::byte* nibbles = packed + group + 4;
  return {static_cast<uint8_t>(Low(nibbles) | (Byte(packed + group - 4) >> 6 << 4)),
          static_cast<uint8_t>(High(nibbles) | (Byte(packed + group) >> 6 << 4))};
}

void SixBitScales(const std::byte* block, float* scales, float* offsets) {
  const float scale = Half(block), min = Half(block + 2);
  for (size_t group = 0; group < kLargeGroups; ++group) {
    const SixBitPair pair = UnpackSixBits(block + 4, group);
    scales[group] = scale * static_cast<float>(pair.scale);
    // ggml subtracts the minimum; offsets are added.
    offsets[group] = -(min * static_cast<float>(pair.min));
  }
}

// 64 weights lie in 32 bytes: the low nibbles of all of them first.
void LargeNibbles(const std::byte* src, int8_t* codes) {
  for (size_t pair = 0; pair < kLarge; pair += 64, src += 32)
    for (size_t i = 0; i < 32; ++i) {
      codes[pair + i] = static_cast<int8_t>(Low(src + i));
      codes[pair + 32 + i] = static_cast<int8_t>(High(src + i));
    }
}

void DecodeQ4K(const std::byte* block, int8_t* codes, float* scales, float* offsets) {
  SixBitScales(block, scales, offsets);
  LargeNibbles(block + 16, codes);
}

void DecodeQ5K(const std::byte* block, int8_t* codes, float* scales, float* offsets) {
  SixBitScales(block, scales, offsets);
  LargeNibbles(block + 48, codes);
  const std::byte* high = block + 16;  // bit g of byte i: weight i of group g
  for (size_t group = 0; group < kLargeGroups; ++group)
    for (size_t i = 0; i < 32; ++i)
      codes[group * 32 + i] =
          static_cast<int8_t>(codes[group * 32 + i] | (Byte(high + i) >> group & 1) << 4);
}

// 16 groups of 16 weights with signed scales of 8 bits. Each half of the block has 64 bytes of
// nibbles and 32 bytes of upper bit pairs for its four runs of 32 weights.
void DecodeQ6K(const std::byte* block, int8_t* codes, float* scales, float* offsets) {
  const std::byte *low = block, *high = block + 128, *small = block + 192;
  const float scale = Half(block + 208);
  for (size_t group = 0; group < 16; ++group) {
    scales[group] = scale * static_cast<float>(static_cast<int8_t>(Byte(small + group)));
    offsets[group] = 0;
  }
  for (size_t half = 0; half < 2; ++half, low += 64, high += 32, codes += 128)
    for (size_t run = 0; run < 4; ++run)
      for (size_t i = 0; i < 32; ++i) {
        const std::byte* nibble = low + (run % 2) * 32 + i;
        const int upper = Byte(high + i) >> (2 * run) & 3;
        const int lower = run < 2 ? Low(nibble) : High(nibble);
        codes[run * 32 + i] = static_cast<int8_t>((lower | upper << 4) - 32);
      }
}

constexpr GgufType kTypes[] = {
    {0, "F32", 1, 4},
    {1, "F16", 1, 2},
    {2, "Q4_0", 32, 18, 32, -8, 7, false, DecodeQ40},
    {3, "Q4_1", 32, 20, 32, 0, 15, true, DecodeQ41},
    {6, "Q5_0", 32, 22, 32, -16, 15, false, DecodeQ50},
    {7, "Q5_1", 32, 24, 32, 0, 31, true, DecodeQ51},
    {8, "Q8_0", 32, 34, 32, -128, 127, false, DecodeQ80},
    {12, "Q4_K", 256, 144, 32, 0, 15, true, DecodeQ4K},
    {13, "Q5_K", 256, 176, 32, 0, 31, true, DecodeQ5K},
    {14, "Q6_K", 256, 210, 16, -32, 31, false, DecodeQ6K},
    {30, "BF16", 1, 2},
};

}  // namespace

const GgufType* FindGgufType(uint32_t id) {
  const auto* found =
      std::find_if(std::begin(kTypes), std::end(kTypes), [&](auto& type) { return type.id == id; });
  return found == std::end(kTypes) ? nullptr : found;
}

std::string_view GgufTypeNames() {
  return "F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q4_K, Q5_K or Q6_K";
}

}  // namespace pinion
