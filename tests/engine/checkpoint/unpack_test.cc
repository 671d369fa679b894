#include "engine/checkpoint/unpack.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <vector>

namespace pinion {
namespace {

// Words of any bits; their bytes begin at an odd address, as a file's may.
struct Words {
  explicit Words(size_t count) : bytes(count * 4 + 1) {
    std::mt19937 random(5);
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  }
  const std::byte* data() const { return bytes.data() + 1; }
  int Place(size_t word, int place, int bits) const {
    uint32_t value;
    std::memcpy(&value, data() + word * 4, sizeof(value));
    return static_cast<int>(value >> (place * bits) & ((1u << bits) - 1));
  }
  std::vector<std::byte> bytes;
};

TEST(Unpack, RowsOfAnyLength) {
  for (const int bits : {4, 8}) {
    const size_t in_word = static_cast<size_t>(32 / bits);
    for (const size_t count : {1, 3, 4, 8, 9, 31, 64, 77}) {
      for (const int bias : {0, bits == 4 ? 8 : 128}) {
        const Words words((count + in_word - 1) / in_word);
        std::vector<int8_t> codes(count + 1, 99);
        UnpackRow(words.data(), count, bits, bias, codes.data());
        for (size_t i = 0; i < count; ++i) {
          const int stored = words.Place(i / in_word, static_cast<int>(i % in_word), bits);
          ASSERT_EQ(codes[i], static_cast<int8_t>(stored - bias)) << bits << " " << i;
        }
        EXPECT_EQ(codes[count], 99) << "wrote past the end";
      }
    }
  }
}

TEST(Unpack, ColumnsThatShareWords) {
  constexpr size_t kRows = 21, kColumns = 136, kFirst = 5, kCount = 13;
  for (const int bits : {4, 8}) {
    const size_t in_word = static_cast<size_t>(32 / bits);
    const Words words(kColumns / in_word * kRows);
    for (const int bias : {0, 3, bits == 4 ? 15 : 128}) {
      std::vector<int8_t> codes(kCount * kColumns + 1, 99);
      UnpackColumns(words.data(), kRows, kColumns, kFirst, kCount, bits, bias, codes.data());
      for (size_t r = 0; r < kCount; ++r)
        for (size_t c = 0; c < kColumns; ++c) {
          const int place = static_cast<int>(c % in_word);
          const int stored = words.Place(c / in_word * kRows + kFirst + r, place, bits);
          ASSERT_EQ(codes[r * kColumns + c], static_cast<int8_t>(stored - bias)) << r << " " << c;
        }
      EXPECT_EQ(codes.back(), 99) << "wrote past the end";
    }
  }
}

TEST(Unpack, RowsThatAwqDealsOut) {
  constexpr size_t kRows = 32, kColumns = 75;
  const Words words(kColumns * kRows / 8);
  for (const auto& [first, count] : {std::pair<size_t, size_t>{0, 32}, {8, 8}, {3, 1}, {5, 14}}) {
    std::vector<int8_t> codes(count * kColumns + 1, 99);
    UnpackAwq(words.data(), kRows, kColumns, first, count, 2, codes.data());
    for (size_t r = 0; r < count; ++r)
      for (size_t c = 0; c < kColumns; ++c) {
        const size_t row = first + r;
        const int stored = words.Place(c * kRows / 8 + row / 8, kAwqPlace[row % 8], 4);
        ASSERT_EQ(codes[r * kColumns + c], stored - 2) << row << " " << c;
      }
    EXPECT_EQ(codes.back(), 99) << "wrote past the end";
  }
}

}  // namespace
}  // namespace pinion
