#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <random>

#include "engine/base/file.h"
#include "engine/base/strings.h"
#include "engine/checkpoint/safetensors_header.h"
#include "engine/checkpoint/tensors.h"
#include "tests/test_data.h"

namespace pinion {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string Length(uint64_t length) {
  std::string bytes(8, '\0');
  std::memcpy(bytes.data(), &length, 8);
  return bytes;
}

// A safetensors file of this header and this many bytes of data: 0, 1, 2, ...
std::string File(const std::string& header, size_t data_bytes) {
  std::string file = Length(header.size()) + header;
  for (size_t i = 0; i < data_bytes; ++i) file.push_back(static_cast<char>(i));
  return file;
}

class Safetensors : public ::testing::Test {
 protected:
  Safetensors() {
    std::string pattern = ::testing::TempDir() + "/pinion-safetensors-XXXXXX";
    folder_ = mkdtemp(pattern.data());
  }
  ~Safetensors() override { std::filesystem::remove_all(folder_); }

  void Put(const std::string& name, const std::string& bytes) {
    // Some file systems flush to the disk if a file replaces another, which takes milliseconds.
    std::filesystem::remove(folder_ + "/" + name);
    ASSERT_TRUE(WriteFile(folder_ + "/" + name, bytes));
  }
  std::string ErrorOfFolder() {
    const auto source = OpenSafetensors(folder_);
    return source ? "no error" : source.error().message;
  }
  std::string folder_;
};

TEST_F(Safetensors, ReadsEveryTensor) {
  Put("model.safetensors", File(R"({"__metadata__":{"format":"pt"},
               "b":{"dtype":"F32","shape":[1],"data_offsets":[16,20]},
               "a":{"dtype":"BF16","shape":[3,2],"data_offsets":[0,12]},
               "none":{"dtype":"F16","shape":[0,4],"data_offsets":[12,12]}})",
                                20));
  const auto source = OpenSafetensors(folder_).value();
  EXPECT_THAT(source->Names(), ElementsAre("a", "b", "none"));
  const TensorInfo a = source->Find("a").value();
  EXPECT_EQ(a.dtype, kernels::Dtype::kBf16);
  EXPECT_THAT(a.shape, ElementsAre(3, 2));
  EXPECT_EQ(a.file, folder_ + "/model.safetensors");
  std::vector<std::byte> scratch;
  const std::byte* rows = source->Rows(a, 1, 2, scratch);
  EXPECT_EQ(rows[0], std::byte{4});
  EXPECT_EQ(rows[7], std::byte{11});
  source->Release(a, 0, 3);
  EXPECT_EQ(source->Rows(a, 2, 1, scratch)[0], std::byte{8});
  EXPECT_THAT(source->Find("c").error().message,
              AllOf(HasSubstr("'c'"), HasSubstr("model.safetensors")));
}

TEST_F(Safetensors, CopiesMisalignedTensors) {
  for (const char* padding : {"", " ", "  ", "   "}) {
    Put("model.safetensors",
        File(StrCat(R"({"x":{"dtype":"F32","shape":[2,2],"data_offsets":[1,17]}})", padding), 17));
    const auto source = OpenSafetensors(folder_).value();
    std::vector<std::byte> scratch;
    const std::byte* row = source->Rows(source->Find("x").value(), 1, 1, scratch);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(row) % 4, 0u);
    EXPECT_EQ(row[0], std::byte{9});
    EXPECT_EQ(row[7], std::byte{16});
  }
}

TEST_F(Safetensors, OpensOneOfManyShards) {
  const auto source = OpenSafetensors(StrCat(tests::TestData(), "/models/llama")).value();
  EXPECT_EQ(source->Names().size(), 29u);
  EXPECT_THAT(source->Find("model.norm.weight")->file, HasSubstr("model-00004-of-00004"));
}

TEST_F(Safetensors, KeepsUnusableDtypesUntilTheyAreAsked) {
  Put("model.safetensors", File(R"({"q":{"dtype":"I8","shape":[4],"data_offsets":[0,4]},
               "new":{"dtype":"F5","shape":[4],"data_offsets":[4,7]},
               "f4":{"dtype":"F4","shape":[6],"data_offsets":[7,10]}})",
                                10));
  const auto source = OpenSafetensors(folder_).value();
  EXPECT_THAT(source->Find("q").error().message,
              AllOf(HasSubstr("'q'"), HasSubstr("I8"), HasSubstr("model.safetensors")));
  EXPECT_THAT(source->Find("new").error().message, HasSubstr("F5"));
}

struct Hostile {
  const char *name, *header;
  size_t data_bytes;
  const char* says;
};

class HostileHeader : public ::testing::TestWithParam<Hostile> {};

TEST_P(HostileHeader, IsOneClearError) {
  const auto entries = ReadSafetensorsHeader(File(GetParam().header, GetParam().data_bytes));
  ASSERT_FALSE(entries);
  EXPECT_THAT(entries.error().message, HasSubstr(GetParam().says));
}

INSTANTIATE_TEST_SUITE_P(
    Safetensors, HostileHeader,
    ::testing::Values(
        Hostile{"NotJson", "{{{{", 0, "not valid JSON"},
        Hostile{"NotAnObject", "[]", 0, "want an object"},
        Hostile{"EntryNotAnObject", R"({"x":3})", 4, "tensor 'x': its entry is an integer"},
        Hostile{"NoDtype", R"({"x":{"shape":[1],"data_offsets":[0,4]}})", 4, "'dtype'"},
        Hostile{"NoShape", R"({"x":{"dtype":"F32","data_offsets":[0,4]}})", 4, "'shape'"},
        Hostile{"NoOffsets", R"({"x":{"dtype":"F32","shape":[1]}})", 4, "'data_offsets'"},
        Hostile{"OneOffset", R"({"x":{"dtype":"F32","shape":[1],"data_offsets":[0]}})", 4,
                "want 2"},
        Hostile{"NegativeDimension", R"({"x":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})",
                4, "tensor 'x': 'shape' holds -1"},
        Hostile{"RealDimension", R"({"x":{"dtype":"F32","shape":[1.5],"data_offsets":[0,4]}})", 4,
                "'shape' holds 1.5"},
        Hostile{"BeyondTheFile", R"({"x":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 4,
                "tensor 'x': its data is stated to be at [0, 8) of 4 bytes"},
        Hostile{"WrongWayRound", R"({"x":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}})", 4,
                "[4, 0)"},
        Hostile{"HugeOffset",
                R"({"x":{"dtype":"F32","shape":[1],"data_offsets":[0,18446744073709551615]}})", 4,
                "'data_offsets'"},
        Hostile{"WrongSize", R"({"x":{"dtype":"BF16","shape":[3],"data_offsets":[0,4]}})", 4,
                "takes 4 bytes, but BF16 of its shape takes 6"},
        Hostile{"OverflowingShape",
                R"({"x":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0]}})", 4,
                "overflows"},
        Hostile{"OverflowBeforeZero",
                R"({"x":{"dtype":"F32","shape":[4294967296,4294967296,0],"data_offsets":[0,0]}})",
                4, "overflows"},
        Hostile{"Overlap",
                R"({"x":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},
                    "y":{"dtype":"F32","shape":[1],"data_offsets":[3,7]}})",
                8, "tensor 'y' overlaps 'x'"},
        Hostile{"NameTwice",
                R"({"x":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},
                    "x":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
                8, "'x' occurs twice"},
        Hostile{"ManyDimensions",
                R"({"x":{"dtype":"F32","shape":[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1],
                    "data_offsets":[0,4]}})",
                4, "want at most 16"}),
    [](const auto& info) { return info.param.name; });

TEST_F(Safetensors, RefusesLengthsBeyondTheFile) {
  for (const std::string& file :
       {std::string(), std::string("abc"), Length(0), Length(1), Length(UINT64_MAX),
        Length(UINT64_MAX - 7) + "{}", Length(100'000'001) + "{}"}) {
    Put("model.safetensors", file);
    EXPECT_THAT(ErrorOfFolder(), AllOf(HasSubstr("model.safetensors"), HasSubstr("header")));
  }
}

TEST_F(Safetensors, RefusesBrokenIndexes) {
  const std::string shard = File(R"({"x":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", 4);
  Put("a.safetensors", shard);
  const auto error_of = [&](const std::string& map) {
    Put("model.safetensors.index.json", map);
    return ErrorOfFolder();
  };
  EXPECT_EQ(error_of(R"({"weight_map":{"x":"a.safetensors"}})"), "no error");
  EXPECT_THAT(error_of("{"), HasSubstr("index.json"));
  EXPECT_THAT(error_of("{}"), HasSubstr("'weight_map'"));
  EXPECT_THAT(error_of(R"({"weight_map":{"x":3}})"), HasSubstr("tensor 'x'"));
  EXPECT_THAT(error_of(R"({"weight_map":{"x":"a.safetensors","x":"a.safetensors"}})"),
              HasSubstr("tensor 'x' occurs twice"));
  EXPECT_THAT(error_of(R"({"weight_map":{"x":"b.safetensors"}})"),
              AllOf(HasSubstr("index.json"), HasSubstr("b.safetensors")));
  EXPECT_THAT(error_of(R"({"weight_map":{"y":"a.safetensors"}})"),
              AllOf(HasSubstr("'y'"), HasSubstr("a.safetensors")));
  for (const char* name : {"../a.safetensors", "/etc/passwd", "..", "a.bin", ".a.safetensors", ""})
    EXPECT_THAT(error_of(StrCat(R"({"weight_map":{"x":")", name, R"("}})")),
                HasSubstr(StrCat("shard '", name, "'")));
}

TEST_F(Safetensors, LoadsNothingElseThanModelAndIndex) {
  const std::string header = R"({"x":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})";
  Put("golden.safetensors", "junk");
  EXPECT_THAT(ErrorOfFolder(), HasSubstr("neither model.safetensors nor"));
  Put("pytorch_model.bin", "junk");
  EXPECT_THAT(ErrorOfFolder(),
              AllOf(HasSubstr("pytorch_model.bin"), HasSubstr("safe_serialization")));
  Put("model.safetensors", File(header, 4));
  EXPECT_EQ(ErrorOfFolder(), "no error");
}

TEST_F(Safetensors, KnowsGitLfsPointers) {
  Put("model.safetensors", "version https://git-lfs.github.com/spec/v1\noid sha256:12\nsize 9\n");
  EXPECT_THAT(ErrorOfFolder(), HasSubstr("git lfs pull"));
}

// Truncated anywhere or with bytes flipped, a file is refused or read: it never crashes. Values
// are touched, so that a sanitizer sees reads beyond the file.
TEST_F(Safetensors, SurvivesTruncationAndFlippedBytes) {
  const std::string good = File(R"({"a":{"dtype":"BF16","shape":[3,2],"data_offsets":[0,12]},)"
                                R"("b":{"dtype":"F32","shape":[2],"data_offsets":[12,20]}})",
                                20);
  std::mt19937 random(20261120);
  int read = 0;
  for (int round = 0; round < 600; ++round) {
    std::string bytes = good;
    if (round % 3 == 0) bytes.resize(random() % (bytes.size() + 1));
    for (size_t flips = random() % 4; flips > 0 && !bytes.empty(); --flips)
      bytes[random() % bytes.size()] = static_cast<char>(random());
    Put("model.safetensors", bytes);
    const auto source = OpenSafetensors(folder_);
    if (!source) continue;
    ++read;
    std::vector<std::byte> scratch;
    for (const std::string& name : (*source)->Names()) {
      const auto info = (*source)->Find(name);
      if (!info) continue;
      const size_t rows = info->shape.empty() ? 1 : static_cast<size_t>(info->shape[0]);
      const size_t row_bytes = RowElements(info->shape) * kernels::SizeOf(info->dtype);
      const std::byte* data = (*source)->Rows(*info, 0, rows, scratch);
      std::vector<std::byte> touched(data, data + rows * row_bytes);
    }
  }
  EXPECT_GT(read, 50);  // flips in the data change nothing else
}

}  // namespace
}  // namespace pinion
