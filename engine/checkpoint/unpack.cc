#include "engine/checkpoint/unpack.h"

#include <algorithm>
#include <cstring>

#include "kernels/integer.h"

namespace pinion {
namespace {

// Columns per tile: their words and codes stay in L1.
constexpr size_t kTile = kernels::kNibbleWords;

constexpr uint64_t kBytes = 0x0101010101010101;

// Spreads a word's codes over the bytes of the result, the first one lowest.
template <int kBits>
uint64_t Spread(uint32_t word) {
  uint64_t bytes = word;
  if constexpr (kBits == 4) {
    bytes = (bytes | bytes << 16) & 0x0000ffff0000ffff;
    bytes = (bytes | bytes << 8) & 0x00ff00ff00ff00ff;
    bytes = (bytes | bytes << 4) & 0x0f * kBytes;
  }
  return bytes;
}

// Subtracts the bytes of `bias` from those of `bytes`. With every high bit set first, no byte
// borrows from its neighbour; the xor then corrects the high bits.
uint64_t Less(uint64_t bytes, uint64_t bias) {
  constexpr uint64_t kHigh = 0x80 * kBytes;
  return ((bytes | kHigh) - (bias & ~kHigh)) ^ ((bytes ^ ~bias) & kHigh);
}

template <int kBits>
void Row(const std::byte* words, size_t count, uint64_t bias, int8_t* codes) {
  constexpr size_t kPlaces = 32 / kBits;
  for (size_t at = 0; at < count; at += kPlaces, words += sizeof(uint32_t)) {
    const uint64_t bytes = Less(Spread<kBits>(WordAt(words, 0)), bias);
    std::memcpy(codes + at, &bytes, std::min(kPlaces, count - at));
  }
}

template <int kBits>
void Columns(const std::byte* words, size_t rows_stored, size_t columns, size_t row, size_t count,
             uint64_t bias, int8_t* codes) {
  constexpr size_t kPlaces = 32 / kBits;
  for (size_t tile = 0; tile < columns; tile += kTile) {
    const size_t end = std::min(tile + kTile, columns);
    for (size_t r = 0; r < count; ++r)
      for (size_t column = tile; column < end; column += kPlaces) {
        const uint32_t word = WordAt(words, column / kPlaces * rows_stored + row + r);
        const uint64_t bytes = Less(Spread<kBits>(word), bias);
        std::memcpy(codes + r * columns + column, &bytes, kPlaces);
      }
  }
}

// Copies a tile's row of codes. Most tiles are whole: a memcpy of constant length becomes a few
// moves.
void CopyTile(int8_t* dst, const int8_t* src, size_t width) {
  if (width == kTile) {
    std::memcpy(dst, src, kTile);
  } else {
    std::memcpy(dst, src, width);
  }
}

}  // namespace

void UnpackRow(const std::byte* words, size_t count, int bits, int bias, int8_t* codes) {
  const uint64_t biases = static_cast<uint64_t>(bias) * kBytes;
  bits == 4 ? Row<4>(words, count, biases, codes) : Row<8>(words, count, biases, codes);
}

void UnpackColumns(const std::byte* words, size_t rows_stored, size_t columns, size_t row,
                   size_t count, int bits, int bias, int8_t* codes) {
  const auto unpack = bits == 4 ? Columns<4> : Columns<8>;
  unpack(words, rows_stored, columns, row, count, static_cast<uint64_t>(bias) * kBytes, codes);
}

void UnpackAwq(const std::byte* words, size_t rows_stored, size_t columns, size_t row, size_t count,
               int bias, int8_t* codes) {
  constexpr size_t kPlaces = 8, kWords = 8;  // of a column at a time: half a cache line
  const size_t in_column = rows_stored / kPlaces, end = row + count;
  uint32_t tile[kWords][kTile] = {};
  int8_t places[kPlaces * kTile];
  for (size_t word = row / kPlaces; word * kPlaces < end; word += kWords) {
    const size_t live = std::min(kWords, (end + kPlaces - 1) / kPlaces - word);
    for (size_t first = 0; first < columns; first += kTile) {
      const size_t width = std::min(kTile, columns - first);
      for (size_t c = 0; c < width; ++c) {
        const std::byte* column = words + ((first + c) * in_column + word) * sizeof(uint32_t);
        // Columns lie kilobytes apart, which the hardware does not prefetch.
        __builtin_prefetch(column + kTile * in_column * sizeof(uint32_t), 0, 2);
        for (size_t w = 0; w < live; ++w) tile[w][c] = WordAt(column, w);
      }
      for (size_t w = 0; w < live; ++w) {
        kernels::UnpackNibbles(tile[w], bias, places);
        const size_t begin = (word + w) * kPlaces;
        for (size_t r = std::max(row, begin); r < std::min(end, begin + kPlaces); ++r)
          CopyTile(codes + (r - row) * columns + first, places + kAwqPlace[r - begin] * kTile,
                   width);
      }
    }
  }
}

}  // namespace pinion
