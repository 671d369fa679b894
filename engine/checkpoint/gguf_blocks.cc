#include "engine/checkpoint/gguf_blocks.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "engine/base/strings.h"
#include "engine/checkpoint/e2m1.h"
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

// Nibbles that stand for the values of a table.
void LookUpNibbles(const std::byte* src, const int8_t* table, int8_t* codes) {
  for (size_t i = 0; i < kHalfSmall; ++i) {
    codes[i] = table[Low(src + i)];
    codes[i + kHalfSmall] = table[High(src + i)];
  }
}

// The values of IQ4 types, denser around zero.
constexpr int8_t kUneven[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                1,    13,   25,  38,  53,  69,  89,  113};

void DecodeIq4Nl(const std::byte* block, int8_t* codes, float* scales, float* offsets) {
  *scales = Half(block);
  *offsets = 0;
  LookUpNibbles(block + 2, kUneven, codes);
}

constexpr int kE8M0Bias = 127;

void DecodeMxfp4(const std::byte* block, int8_t* codes, float* scales, float* offsets) {
  *scales = std::ldexp(0.5f, Byte(block) - kE8M0Bias);  // codes are twice the values
  *offsets = 0;
  LookUpNibbles(block + 1, kDoubledE2m1, codes);
}

// An e4m3 without its sign. e4m3's NaNs are numbers here: 0x7f is 0, and 0xff what its exponent and
// mantissa give.
float UnsignedE4m3(uint8_t byte) {
  const auto magnitude = static_cast<uint8_t>(byte & 0x7f);
  if (magnitude == 0x7f) return byte == 0x7f ? 0 : 480;
  return kernels::ToFloat(kernels::E4m3{magnitude});
}

// Four groups of 16 with a scale each.
void DecodeNvfp4(const std::byte* block, int8_t* codes, float* scales, float* offsets) {
  constexpr size_t kGroups = 4, kHalf = 8;
  for (size_t group = 0; group < kGroups; ++group) {
    scales[group] = UnsignedE4m3(Byte(block + group)) / 2;  // codes are twice the values
    offsets[group] = 0;
    const std::byte* nibbles = block + kGroups + group * kHalf;
    for (size_t i = 0; i < kHalf; ++i, ++codes) {
      codes[0] = kDoubledE2m1[Low(nibbles + i)];
      codes[kHalf] = kDoubledE2m1[High(nibbles + i)];
    }
    codes += kHalf;
  }
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

// Bit pairs of 256 weights, 128 at a time: byte i holds weights i, 32 + i, 64 + i and 96 + i.
void LargePairs(const std::byte* src, int8_t* codes) {
  for (size_t half = 0; half < 2; ++half, src += 32, codes += 128)
    for (size_t run = 0; run < 4; ++run)
      for (size_t i = 0; i < 32; ++i)
        codes[run * 32 + i] = static_cast<int8_t>(Byte(src + i) >> (2 * run) & 3);
}

// 16 groups of 16 weights, whose scales and minima have 4 bits each.
void DecodeQ2K(const std::byte* block, int8_t* codes, float* scales, float* offsets) {
  const float scale = Half(block + 80), min = Half(block + 82);
  for (size_t group = 0; group < 16; ++group) {
    scales[group] = scale * static_cast<float>(Low(block + group));
    offsets[group] = -(min * static_cast<float>(High(block + group)));
  }
  LargePairs(block + 16, codes);
}

// 16 groups of 16 weights. Scales have 6 bits less 32: eight bytes hold the low nibbles of all of
// them, four more the upper bit pairs. The third bit of weights 32 g + i is bit g of byte i.
void DecodeQ3K(const std::byte* block, int8_t* codes, float* scales, float* offsets) {
  const std::byte *high = block, *small = block + 96;
  const float scale = Half(block + 108);
  for (size_t group = 0; group < 16; ++group) {
    const int lower = group < 8 ? Low(small + group) : High(small + group - 8);
    const int upper = Byte(small + 8 + group % 4) >> (2 * (group / 4)) & 3;
    scales[group] = scale * static_cast<float>((lower | upper << 4) - 32);
    offsets[group] = 0;
  }
  LargePairs(block + 32, codes);
  for (size_t i = 0; i < kLarge; ++i) {
    const int third = Byte(high + i % 32) >> (i / 32) & 1;
    codes[i] = static_cast<int8_t>(codes[i] + 4 * third - 4);
  }
}

// 8 groups of 32 weights, whose scales have 6 bits less 32: low nibbles, and two bits each in a
// word of 16.
void DecodeIq4Xs(const std::byte* block, int8_t* codes, float* scales, float* offsets) {
  const float scale = Half(block);
  const int uppers = Byte(block + 2) | Byte(block + 3) << 8;
  for (size_t group = 0; group < kLargeGroups; ++group) {
    const std::byte* nibbles = block + 4 + group / 2;
    const int lower = group % 2 == 0 ? Low(nibbles) : High(nibbles);
    const int upper = uppers >> (2 * group) & 3;
    scales[group] = scale * static_cast<float>((lower | upper << 4) - 32);
    offsets[group] = 0;
    LookUpNibbles(block + 8 + group * kHalfSmall, kUneven, codes + group * kSmall);
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
    {10, "Q2_K", 256, 84, 16, 0, 3, true, DecodeQ2K},
    {11, "Q3_K", 256, 110, 16, -4, 3, false, DecodeQ3K},
    {12, "Q4_K", 256, 144, 32, 0, 15, true, DecodeQ4K},
    {13, "Q5_K", 256, 176, 32, 0, 31, true, DecodeQ5K},
    {14, "Q6_K", 256, 210, 16, -32, 31, false, DecodeQ6K},
    {20, "IQ4_NL", 32, 18, 32, -127, 113, false, DecodeIq4Nl},
    {23, "IQ4_XS", 256, 136, 32, -127, 113, false, DecodeIq4Xs},
    {30, "BF16", 1, 2},
    {39, "MXFP4", 32, 17, 32, -12, 12, false, DecodeMxfp4, true},
    {40, "NVFP4", 64, 36, 16, -12, 12, false, DecodeNvfp4},
};

// Types that Pinion does not read, for messages.
struct UnreadType {
  uint32_t id;
  std::string_view name;
};
constexpr UnreadType kUnreadTypes[] = {
    {9, "Q8_1"},   {15, "Q8_K"},  {16, "IQ2_XXS"}, {17, "IQ2_XS"}, {18, "IQ3_XXS"}, {19, "IQ1_S"},
    {21, "IQ3_S"}, {22, "IQ2_S"}, {24, "I8"},      {25, "I16"},    {26, "I32"},     {27, "I64"},
    {28, "F64"},   {29, "IQ1_M"}, {34, "TQ1_0"},   {35, "TQ2_0"},  {41, "Q1_0"},    {42, "Q2_0"}};

}  // namespace

const GgufType* FindGgufType(uint32_t id) {
  const auto* found =
      std::find_if(std::begin(kTypes), std::end(kTypes), [&](auto& type) { return type.id == id; });
  return found == std::end(kTypes) ? nullptr : found;
}

std::string GgufTypeName(uint32_t id) {
  if (const GgufType* type = FindGgufType(id)) return std::string(type->name);
  for (const UnreadType& each : kUnreadTypes)
    if (each.id == id) return std::string(each.name);
  return StrCat("type ", id);
}

std::string GgufTypeNames() {
  std::vector<std::string> names;
  for (const GgufType& type : kTypes) names.emplace_back(type.name);
  return Join(names, ", ");
}

}  // namespace pinion
