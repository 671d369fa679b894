#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <map>
#include <set>

#include "engine/base/file.h"
#include "engine/base/strings.h"
#include "engine/checkpoint/gguf_header.h"
#include "kernels/types.h"
#include "tests/test_data.h"

namespace pinion {
namespace {

using ::testing::HasSubstr;

// Builds a GGUF file value by value.
class Builder {
 public:
  Builder& Raw(std::string_view bytes) {
    file_ += bytes;
    return *this;
  }
  template <typename T>
  Builder& Number(T value) {
    return Raw({reinterpret_cast<const char*>(&value), sizeof(value)});
  }
  Builder& Text(std::string_view text) { return Number<uint64_t>(text.size()).Raw(text); }
  Builder& Head(uint64_t tensors, uint64_t values, uint32_t version = 3) {
    return Raw("GGUF").Number(version).Number(tensors).Number(values);
  }
  // A matrix [rows][columns].
  Builder& Tensor(std::string_view name, uint64_t rows, uint64_t columns, uint32_t type,
                  uint64_t offset) {
    return Text(name).Number<uint32_t>(2).Number(columns).Number(rows).Number(type).Number(offset);
  }
  Builder& Data(size_t bytes, size_t alignment = 32) {
    while (file_.size() % alignment != 0) file_ += '\0';
    return Raw(std::string(bytes, '\1'));
  }
  const std::string& file() const { return file_; }

 private:
  std::string file_;
};

std::string ErrorOf(const Builder& builder) {
  const auto header = ReadGgufHeader(builder.file());
  return header ? "no error" : header.error().message;
}

constexpr uint32_t kF32 = 0, kQ40 = 2;
constexpr uint32_t kTypeUint32 = 4, kTypeString = 8, kTypeArray = 9;

TEST(GgufHeader, ReadsMetadataAndTensors) {
  Builder builder;
  builder.Head(2, 2).Text("name").Number(kTypeString).Text("x").Text("list").Number(kTypeArray);
  builder.Number(kTypeUint32).Number<uint64_t>(2).Number<uint32_t>(5).Number<uint32_t>(6);
  builder.Tensor("a", 3, 64, kQ40, 0).Tensor("b", 1, 2, kF32, 128).Data(136);
  const GgufHeader header = ReadGgufHeader(builder.file()).value();
  EXPECT_EQ(header.metadata.Dump(), R"({"name":"x","list":[5,6]})");
  EXPECT_EQ(header.tensors[0].shape, (std::vector<int64_t>{3, 64}));
  EXPECT_EQ(header.tensors[0].bytes, 3 * 2 * 18u);
  EXPECT_EQ(header.tensors[1].begin + header.tensors[1].bytes, builder.file().size());
}

TEST(GgufHeader, RefusesFilesThatAreNotGguf) {
  EXPECT_THAT(ErrorOf(Builder().Raw("GG")), HasSubstr("truncated"));
  EXPECT_THAT(ErrorOf(Builder().Raw("GGML").Number(3)), HasSubstr("not a GGUF file"));
  EXPECT_THAT(ErrorOf(Builder().Head(0, 0, 1)), HasSubstr("version is 1, want 2 or 3"));
  EXPECT_THAT(ErrorOf(Builder().Head(0, 0, 0x03000000)), HasSubstr("little-endian"));
}

TEST(GgufHeader, RefusesCountsThatTheFileCannotHold) {
  EXPECT_THAT(ErrorOf(Builder().Head(0, uint64_t{1} << 60)), HasSubstr("truncated"));
  EXPECT_THAT(ErrorOf(Builder().Head(uint64_t{1} << 60, 0)), HasSubstr("truncated"));
  EXPECT_THAT(ErrorOf(Builder().Head(0, 1).Number(~uint64_t{0})), HasSubstr("truncated"));
  Builder array;
  array.Head(0, 1).Text("list").Number(kTypeArray).Number(kTypeUint32).Number(uint64_t{1} << 62);
  EXPECT_THAT(ErrorOf(array), HasSubstr("'list' is stated to have 4611686018427387904 values"));
}

TEST(GgufHeader, RefusesBrokenMetadata) {
  EXPECT_THAT(ErrorOf(Builder().Head(0, 1).Text("k").Number<uint32_t>(13)), HasSubstr("'k'"));
  Builder nested;
  nested.Head(0, 1).Text("k").Number(kTypeArray).Number(kTypeArray).Number<uint64_t>(0);
  EXPECT_THAT(ErrorOf(nested), HasSubstr("array of type 9"));
  Builder twice;
  twice.Head(0, 2);
  for (int i = 0; i < 2; ++i) twice.Text("k").Number(kTypeUint32).Number<uint32_t>(1);
  EXPECT_THAT(ErrorOf(twice), HasSubstr("'k' occurs twice"));
  Builder flag;
  flag.Head(0, 1).Text("k").Number<uint32_t>(7).Number<uint8_t>(2);
  EXPECT_THAT(ErrorOf(flag), HasSubstr("want 0 or 1"));
  for (const uint32_t alignment : {0u, 24u, 1u << 20}) {
    Builder odd;
    odd.Head(0, 1).Text("general.alignment").Number(kTypeUint32).Number(alignment);
    EXPECT_THAT(ErrorOf(odd), HasSubstr("power of two")) << alignment;
  }
}

TEST(GgufHeader, RefusesBrokenTensors) {
  const auto one = [](uint64_t rows, uint64_t columns, uint32_t type, uint64_t offset) {
    return ErrorOf(Builder().Head(1, 0).Tensor("t", rows, columns, type, offset).Data(64));
  };
  EXPECT_EQ(one(1, 16, kF32, 0), "no error");
  EXPECT_THAT(one(1, 17, kF32, 0), HasSubstr("truncated"));
  EXPECT_THAT(one(1, 8, kF32, 16), HasSubstr("multiple of 32"));
  EXPECT_THAT(one(1, 8, kF32, 96), HasSubstr("truncated"));
  EXPECT_THAT(one(1, 8, kF32, ~uint64_t{31}), HasSubstr("truncated"));
  EXPECT_THAT(one(1, 33, kQ40, 0), HasSubstr("multiple of Q4_0's 32"));
  EXPECT_THAT(one(1, 8, 99, 0), HasSubstr("type 99, want F32"));
  EXPECT_EQ(one(1, 256, 16, 0), StrCat("tensor 't': it is IQ2_XXS, want ", GgufTypeNames(),
                                       "; use a file whose tensors have these types"));
  EXPECT_THAT(one(0, 8, kF32, 0), HasSubstr("a dimension is 0"));
  EXPECT_THAT(one(uint64_t{1} << 40, uint64_t{1} << 40, kF32, 0), HasSubstr("overflows"));
  EXPECT_THAT(one(uint64_t{1} << 41, 8, kF32, 0), HasSubstr("a dimension is"));
  EXPECT_THAT(ErrorOf(Builder().Head(1, 0).Text("t").Number<uint32_t>(5)),
              HasSubstr("5 dimensions"));
  Builder twice;
  twice.Head(2, 0).Tensor("t", 1, 8, kF32, 0).Tensor("t", 1, 8, kF32, 32).Data(64);
  EXPECT_THAT(ErrorOf(twice), HasSubstr("'t' occurs twice"));
  Builder overlap;
  overlap.Head(2, 0).Tensor("t", 1, 16, kF32, 0).Tensor("u", 1, 8, kF32, 32).Data(64);
  EXPECT_THAT(ErrorOf(overlap), HasSubstr("'u' overlaps 't'"));
}

// Errors quote names: a tensor's are short and printable, keys are shown so.
TEST(GgufHeader, NamesFitInOneLine) {
  const auto named = [](const std::string& name) {
    return ErrorOf(Builder().Head(1, 0).Tensor(name, 1, 8, kF32, 0).Data(64));
  };
  EXPECT_EQ(named(std::string(256, 'n')), "no error");
  EXPECT_EQ(named(""),
            "the name of tensor 0 is '' of 0 bytes, want 1 to 256 printable ASCII characters");
  EXPECT_THAT(named("two\nlines"), HasSubstr("is 'two?lines' of 9 bytes, want"));
  EXPECT_THAT(named(std::string(257, 'n')), HasSubstr(std::string(80, 'n') + "' of 257 bytes"));
  Builder key;
  key.Head(0, 1).Text("two\nlines").Number<uint32_t>(13);
  EXPECT_EQ(ErrorOf(key), "'two?lines' has type 13, want 0 to 12");
}

TEST(GgufHeader, EveryTruncationIsAnError) {
  const std::string file = ReadFile(tests::TestData() + "/quantised/llama-q4_0.gguf").value();
  ASSERT_TRUE(ReadGgufHeader(file));
  for (size_t size = 0; size < file.size(); size = size * 5 / 4 + 1)
    EXPECT_FALSE(ReadGgufHeader(std::string_view(file).substr(0, size))) << size;
}

// ---- Blocks. `Put` writes a float16 that is exact.
void Put(std::vector<std::byte>& block, size_t at, float value) {
  const uint16_t bits = kernels::ToF16(value).bits;
  std::memcpy(block.data() + at, &bits, sizeof(bits));
}

struct Decoded {
  std::vector<int8_t> codes;
  std::vector<float> scales, offsets;
  float Weight(size_t i) const {
    const size_t group = i / (codes.size() / scales.size());
    return scales[group] * codes[i] + offsets[group];
  }
};
Decoded Decode(const GgufType& type, const std::vector<std::byte>& block) {
  Decoded decoded{std::vector<int8_t>(type.elements),
                  std::vector<float>(type.elements / type.group),
                  std::vector<float>(type.elements / type.group)};
  type.decode(block.data(), decoded.codes.data(), decoded.scales.data(), decoded.offsets.data());
  return decoded;
}

TEST(GgufBlocks, CodesStayInTheirRangeAndUseAllOfIt) {
  for (uint32_t id = 0; id < 64; ++id) {
    const GgufType* type = FindGgufType(id);
    if (!type || !type->decode) continue;
    const bool has_signs = type->name == "Q8_0" || type->name.ends_with("FP4");  // in its codes
    std::set<int> seen;
    for (const int fill : {0x00, 0xff, 0x80, 0x7f}) {
      const Decoded decoded = Decode(*type, std::vector<std::byte>(type->bytes, std::byte(fill)));
      seen.insert(decoded.codes.begin(), decoded.codes.end());
      if (!has_signs && (fill == 0x00 || fill == 0xff)) {
        EXPECT_THAT(decoded.codes, ::testing::Each(fill == 0xff ? type->highest : type->lowest))
            << type->name;
      }
      if (!type->has_offsets) {
        EXPECT_THAT(decoded.offsets, ::testing::Each(0)) << type->name;
      }
    }
    EXPECT_EQ(*seen.begin(), type->lowest) << type->name;
    EXPECT_EQ(*seen.rbegin(), type->highest) << type->name;
  }
}

// By the `gguf` package: tests/data/gguf/make_blocks.py.
TEST(GgufBlocks, ValuesAreThoseOfASecondImplementation) {
  const std::string file = ReadFile(tests::TestData() + "/gguf/blocks.gguf").value();
  const GgufHeader header = ReadGgufHeader(file).value();
  const auto* data = reinterpret_cast<const std::byte*>(file.data());
  std::map<std::string, const GgufTensor*> tensors;
  for (const GgufTensor& tensor : header.tensors) tensors[tensor.name] = &tensor;
  for (uint32_t id = 0; id < 64; ++id) {
    const GgufType* type = FindGgufType(id);
    if (!type || !type->decode) continue;
    const std::string name(type->name);
    ASSERT_TRUE(tensors.count(name)) << name;
    const GgufTensor& blocks = *tensors[name];
    const std::byte* want = data + tensors.at(name + ".values")->begin;
    for (uint64_t at = 0; at < blocks.bytes; at += type->bytes) {
      const std::byte* begin = data + blocks.begin + at;
      const Decoded decoded = Decode(*type, std::vector<std::byte>(begin, begin + type->bytes));
      for (size_t i = 0; i < type->elements; ++i, want += sizeof(float)) {
        float value;
        std::memcpy(&value, want, sizeof(value));
        ASSERT_EQ(decoded.Weight(i), value) << name << " byte " << at << " weight " << i;
      }
    }
  }
}

// The values of the `gguf` package, which reads 0x7f as 0 and no other byte as e4m3's NaN.
TEST(GgufBlocks, Nvfp4ScalesHaveNoSignAndNoNan) {
  for (int byte = 0; byte < 256; ++byte) {
    std::vector<std::byte> block(36, std::byte{0x22});  // weights of 1
    block[0] = std::byte(byte);
    const int exponent = byte >> 3 & 15, mantissa = byte & 7;
    const double want = byte == 0x7f    ? 0
                        : exponent == 0 ? mantissa * 0x1p-9
                                        : std::ldexp(1 + mantissa / 8.0, exponent - 7);
    EXPECT_EQ(Decode(*FindGgufType(40), block).Weight(0), want) << byte;
  }
}

TEST(GgufBlocks, HalvesOfASmallBlockAreLowAndHighNibbles) {
  std::vector<std::byte> block(18, std::byte{0x88});
  Put(block, 0, 0.5f);
  block[2 + 3] = std::byte{0xf1};
  const Decoded decoded = Decode(*FindGgufType(kQ40), block);
  EXPECT_EQ(decoded.Weight(3), 0.5f * (1 - 8));
  EXPECT_EQ(decoded.Weight(19), 0.5f * (15 - 8));
  EXPECT_EQ(decoded.Weight(4), 0);
}

TEST(GgufBlocks, FifthBitsComeFromTheirWord) {
  std::vector<std::byte> block(24, std::byte{0});
  Put(block, 0, 1), Put(block, 2, -4);
  block[4 + 2] = std::byte{0x02};  // bit 17
  const Decoded decoded = Decode(*FindGgufType(7), block);
  EXPECT_EQ(decoded.Weight(17), 16 - 4);
  EXPECT_EQ(decoded.Weight(1), -4);
}

TEST(GgufBlocks, KTypesScaleEachGroupByItself) {
  std::vector<std::byte> block(144, std::byte{0});
  Put(block, 0, 2), Put(block, 2, 1);
  block[4 + 1] = std::byte{0x80 | 5};  // group 1: scale 5; upper bits of group 5's scale: 2
  block[4 + 5] = std::byte{0x40 | 7};  // group 1: min 7; upper bits of group 5's min: 1
  block[4 + 9] = std::byte{0x21};      // group 5: scale 1 | 2 << 4, min 2 | 1 << 4
  block[16 + 3] = std::byte{0x90};     // weight 3 of group 1 is 9
  const Decoded decoded = Decode(*FindGgufType(12), block);
  EXPECT_EQ(decoded.Weight(32 + 3), 2 * 5 * 9 - 7);
  EXPECT_EQ(decoded.scales[5], 2 * (1 | 2 << 4));
  EXPECT_EQ(decoded.offsets[5], -(2 | 1 << 4));
}

TEST(GgufBlocks, Q6KScalesAreSigned) {
  std::vector<std::byte> block(210, std::byte{0});
  Put(block, 208, 0.5f);
  block[192 + 11] = std::byte{0xfd};  // group 11: -3
  block[64 + 32 + 20] =
      std::byte{0x05};  // second half, run 1, weight 20: low bits of 128 + 32 + 20
  block[128 + 32 + 20] = std::byte{0x08};  // its upper bits: 2
  const Decoded decoded = Decode(*FindGgufType(14), block);
  EXPECT_EQ(decoded.Weight(128 + 32 + 20), 0.5f * -3 * ((5 | 2 << 4) - 32));
}

}  // namespace
}  // namespace pinion
