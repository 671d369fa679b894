#include "engine/checkpoint/packed.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <map>

namespace pinion {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Tensors of one linear, "m".
class Packed : public ::testing::Test {
 protected:
  template <typename T>
  void Put(const std::string& name, const char* dtype, std::vector<int64_t> shape,
           const std::vector<T>& values) {
    std::vector<std::byte> bytes(values.size() * sizeof(T));
    std::memcpy(bytes.data(), values.data(), bytes.size());
    stored_["m." + name] = {dtype, std::move(shape), std::move(bytes)};
  }
  void PutWords(const std::string& name, std::vector<int64_t> shape, std::vector<uint32_t> words) {
    Put(name, "I32", std::move(shape), words);
  }
  void PutFloats(const std::string& name, std::vector<int64_t> shape, std::vector<float> values) {
    Put(name, "F32", std::move(shape), values);
  }

  Result<std::unique_ptr<QuantisedTensor>> Open() const {
    return OpenQuantised(scheme_, "m", [this](const std::string& name) { return Find(name); });
  }
  std::string ErrorOf() const {
    const auto opened = Open();
    return opened ? "no error" : opened.error().message;
  }
  // One row in float32.
  std::vector<float> Row(size_t row) const {
    const auto opened = Open();
    EXPECT_TRUE(opened) << opened.error().message;
    std::vector<float> values((*opened)->columns());
    Dequantise(**opened, row, 1, values.data());
    return values;
  }

  QuantScheme scheme_;

 private:
  struct Entry {
    std::string dtype;
    std::vector<int64_t> shape;
    std::vector<std::byte> bytes;
  };
  std::optional<StoredTensor> Find(const std::string& name) const {
    const auto found = stored_.find(name);
    if (found == stored_.end()) return {};
    const Entry& entry = found->second;
    return StoredTensor{entry.dtype, entry.shape, entry.bytes.data()};
  }
  std::map<std::string, Entry> stored_;
};

// Two inputs and eight outputs: each word holds the outputs in the order 0 2 4 6 1 3 5 7.
TEST_F(Packed, AwqDealsOutputsOverAWord) {
  scheme_ = {QuantMethod::kAwq, 4, -1, false, ActivationRounding::kNone};
  PutWords("qweight", {2, 1}, {0x76543210, 0xfedcba98});
  PutWords("qzeros", {1, 1}, {0x00000001});  // of output 0
  PutFloats("scales", {1, 8}, {0.5f, 1, 1, 1, 1, 1, 1, 2});
  EXPECT_THAT(Row(0), ElementsAre(-0.5f, 3.5f));
  EXPECT_THAT(Row(1), ElementsAre(4, 12));
  EXPECT_THAT(Row(2), ElementsAre(1, 9));
  EXPECT_THAT(Row(7), ElementsAre(14, 30));
}

// Eight inputs and one output.
TEST_F(Packed, GptqPacksInputsAndOrdersGroups) {
  scheme_ = {QuantMethod::kGptq, 4, 4, true, ActivationRounding::kNone};
  PutWords("qweight", {1, 1}, {0x76543210});
  PutWords("qzeros", {2, 1}, {0x0000000f, 0x00000001});  // version 1: 0 and 2
  PutFloats("scales", {2, 1}, {1, 10});
  EXPECT_THAT(Row(0), ElementsAre(0, 1, 2, 3, 20, 30, 40, 50));
  PutWords("g_idx", {8}, {0, 1, 0, 1, 0, 1, 0, 1});
  EXPECT_THAT(Row(0), ElementsAre(0, -10, 2, 10, 4, 30, 6, 50));
  scheme_.gptq_v1 = false;
  EXPECT_THAT(Row(0), ElementsAre(-15, 0, -13, 20, -11, 40, -9, 60));
  PutWords("g_idx", {8}, {0, 1, 0, 1, 0, 1, 0, 2});
  EXPECT_THAT(ErrorOf(), HasSubstr("'m.g_idx' holds 2, want 0 to 1"));
}

TEST_F(Packed, GptqOfEightBitsKeepsItsZeros) {
  scheme_ = {QuantMethod::kGptq, 8, -1, true, ActivationRounding::kNone};
  PutWords("qweight", {1, 1}, {0xff807f00});
  PutWords("qzeros", {1, 1}, {0x0000007f});
  PutFloats("scales", {1, 1}, {2});
  EXPECT_THAT(Row(0), ElementsAre(-256, -2, 0, 254));
}

TEST_F(Packed, SymmetricGptqKeepsNoOffsets) {
  scheme_ = {QuantMethod::kGptq, 4, 4, true, ActivationRounding::kNone};
  PutWords("qweight", {1, 1}, {0x76543210});
  PutWords("qzeros", {2, 1}, {0x00000007, 0x00000007});  // version 1: 8
  PutFloats("scales", {2, 1}, {1, 10});
  const CodeRange range = Open().value()->range();
  EXPECT_FALSE(range.has_offsets);
  EXPECT_EQ(range.lowest, -8);
  EXPECT_EQ(range.highest, 7);
  EXPECT_THAT(Row(0), ElementsAre(-8, -7, -6, -5, -40, -30, -20, -10));
  PutWords("qzeros", {2, 1}, {0x00000007, 0x00000008});
  EXPECT_TRUE(Open().value()->range().has_offsets);
}

TEST_F(Packed, CompressedTensorsPackAlongInputsAndZerosAlongOutputs) {
  scheme_ = {QuantMethod::kPackQuantized, 4, 4, false, ActivationRounding::kNone};
  PutWords("weight_packed", {2, 1}, {0x76543210, 0xfedcba98});
  Put<int64_t>("weight_shape", "I64", {2}, {2, 8});
  PutFloats("weight_scale", {2, 2}, {1, 2, 3, 4});
  EXPECT_THAT(Row(0), ElementsAre(-8, -7, -6, -5, -8, -6, -4, -2));
  EXPECT_THAT(Row(1), ElementsAre(0, 3, 6, 9, 16, 20, 24, 28));
  PutWords("weight_zero_point", {1, 2}, {0x00000098, 0x00000088});  // 0 and 1; 0 and 0
  EXPECT_THAT(Row(1), ElementsAre(-3, 0, 3, 6, 16, 20, 24, 28));
  Put<int8_t>("weight_zero_point", "I8", {2, 2}, {0, 0, 1, 0});
  EXPECT_THAT(Row(1), ElementsAre(-3, 0, 3, 6, 16, 20, 24, 28));
}

TEST_F(Packed, CompressedTensorsPackFourCodesOfEightBits) {
  scheme_ = {QuantMethod::kPackQuantized, 8, -1, false, ActivationRounding::kNone};
  PutWords("weight_packed", {1, 2}, {0xff807f00, 0x00000081});
  Put<int64_t>("weight_shape", "I64", {2}, {1, 5});
  PutFloats("weight_scale", {1, 1}, {2});
  EXPECT_THAT(Row(0), ElementsAre(-256, -2, 0, 254, 2));
  PutWords("weight_zero_point", {1, 1}, {0x0000007f});  // -1
  EXPECT_THAT(Row(0), ElementsAre(-254, 0, 2, 256, 4));
}

TEST_F(Packed, PlainLinearsStayPlain) {
  for (const QuantMethod method : {QuantMethod::kAwq, QuantMethod::kGptq,
                                   QuantMethod::kPackQuantized, QuantMethod::kIntQuantized}) {
    scheme_.method = method;
    PutFloats("weight", {1, 1}, {1});
    EXPECT_EQ(Open().value(), nullptr) << Name(method);
  }
}

TEST_F(Packed, NamesTensorsThatDoNotFit) {
  scheme_ = {QuantMethod::kAwq, 4, 32, false, ActivationRounding::kNone};
  EXPECT_THAT(ErrorOf(), HasSubstr("'m' has no 'qweight'"));
  PutFloats("qweight", {64, 1}, std::vector<float>(64));
  EXPECT_THAT(ErrorOf(), HasSubstr("'m.qweight' is F32, want I32"));
  PutWords("qweight", {64}, std::vector<uint32_t>(64));
  EXPECT_THAT(ErrorOf(), HasSubstr("want a matrix"));
  PutWords("qweight", {64, 1}, std::vector<uint32_t>(64));
  PutFloats("scales", {2, 7}, std::vector<float>(14));
  EXPECT_THAT(ErrorOf(), HasSubstr("'m.scales' has shape [2, 7], want [2, 8]"));
  PutFloats("scales", {2, 8}, std::vector<float>(16));
  PutWords("qzeros", {1, 1}, {0});
  EXPECT_THAT(ErrorOf(), HasSubstr("'m.qzeros' has shape [1, 1], want [2, 1]"));
  scheme_ = {QuantMethod::kPackQuantized, 4, -1, false, ActivationRounding::kNone};
  PutWords("weight_packed", {2, 1}, {0, 0});
  Put<int64_t>("weight_shape", "I64", {2}, {2, 9});
  EXPECT_THAT(ErrorOf(), HasSubstr("does not pack into [2, 1]"));
}

// By compressed-tensors' name it divides: 1e-39 is above 0, but its inverse is above all floats.
TEST_F(Packed, Nvfp4WantsAFiniteFactor) {
  scheme_.method = QuantMethod::kNvfp4;
  Put<uint8_t>("weight_packed", "U8", {1, 8}, std::vector<uint8_t>(8, 0x22));
  Put<uint8_t>("weight_scale", "F8_E4M3", {1, 1}, {0x38});
  for (const float broken : {0.0f, 1e-39f, -1.0f, INFINITY, NAN}) {
    PutFloats("weight_global_scale", {1}, {broken});
    EXPECT_THAT(ErrorOf(), HasSubstr("want a positive number with a finite inverse")) << broken;
  }
  PutFloats("weight_global_scale", {1}, {4});
  EXPECT_EQ(Row(0), std::vector<float>(16, 0.25f));
}

// Scales divided by their unit are the file's numbers of e4m3.
TEST_F(Packed, Nvfp4ScalesAreE4m3InUnits) {
  scheme_.method = QuantMethod::kNvfp4;
  Put<uint8_t>("weight_packed", "U8", {1, 16}, std::vector<uint8_t>(16, 0x22));
  Put<uint8_t>("weight_scale", "F8_E4M3", {1, 2}, {0x39, 0x81});
  PutFloats("weight_global_scale", {1}, {4});
  const auto tensor = Open().value();
  EXPECT_EQ(tensor->range().scale_type, kernels::ScaleType::kE4m3);
  EXPECT_EQ(tensor->scale_unit(), 0.125f);
  std::vector<int8_t> codes(32);
  std::vector<float> scales(2), offsets(2);
  tensor->Read(0, 1, codes.data(), scales.data(), offsets.data());
  EXPECT_EQ(scales, (std::vector<float>{1.125f * 0.125f, -0x1p-9f * 0.125f}));
}

TEST_F(Packed, StaticRoundingIsChecked) {
  const auto read = [&](float scale) {
    return ReadStaticRounding("m", [&](const std::string& name) -> std::optional<StoredTensor> {
      if (name != "m.input_scale") return {};
      return StoredTensor{"F32", {1}, reinterpret_cast<const std::byte*>(&scale)};
    });
  };
  EXPECT_EQ(read(0.5f).value().scale, 0.5f);
  EXPECT_THAT(read(0).error().message, HasSubstr("want a positive number"));
  EXPECT_THAT(read(NAN).error().message, HasSubstr("want a positive number"));
}

}  // namespace
}  // namespace pinion
