#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace pinion {

// Unpacks integers from the 32-bit little-endian words of published formats, `bits` (4 or 8) each,
// and subtracts `bias` (0 to 128); the results must fit an int8. Words need no alignment. Any
// thread; infallible.

inline uint32_t WordAt(const std::byte* words, size_t index) {
  uint32_t word;
  std::memcpy(&word, words + index * sizeof(word), sizeof(word));
  return word;
}

// Codes in order: word 0 holds the first ones, its lowest bits the very first.
//   codes   [count]
void UnpackRow(const std::byte* words, size_t count, int bits, int bias, int8_t* codes);

// GPTQ: a word holds neighbouring columns of one row.
//   words   [columns * bits / 32][rows_stored]
//   codes   [count][columns]: rows [row, row + count); columns are whole words
void UnpackColumns(const std::byte* words, size_t rows_stored, size_t columns, size_t row,
                   size_t count, int bits, int bias, int8_t* codes);

// AWQ: a word holds eight neighbouring rows of one column, interleaved as in kAwqPlace.
//   words   [columns][rows_stored / 8]
//   codes   [count][columns]: rows [row, row + count)
void UnpackAwq(const std::byte* words, size_t rows_stored, size_t columns, size_t row, size_t count,
               int bias, int8_t* codes);

// The nibble of a word that holds a row, by row % 8.
inline constexpr int kAwqPlace[8] = {0, 4, 1, 5, 2, 6, 3, 7};

}  // namespace pinion
