// Real vocabularies against thousands of encodings, decodings and streams of the reference library:
// those that the project ships and, if the reference data is available, the others.

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "engine/base/strings.h"
#include "tests/engine/text/text_cases.h"
#include "tests/test_data.h"

namespace pinion {
namespace {

std::string Report(const Tally& tally) {
  return StrCat(tally.differences.size(), " of ", tally.cases, " differ:\n",
                Join(tally.differences, "\n"));
}

void ExpectLikeTheReference(const std::string& folder) {
  const auto loaded = LoadPacked(folder);
  ASSERT_TRUE(loaded) << loaded.error().message;
  const Tokenizer& tokenizer = **loaded;
  const Tally written = CheckEncoding(tokenizer, folder, /*adversarial=*/false);
  EXPECT_GT(written.cases, 100u);
  EXPECT_TRUE(written.differences.empty()) << Report(written);
  const Tally adversarial = CheckEncoding(tokenizer, folder, /*adversarial=*/true);
  EXPECT_GT(adversarial.cases, 300u);
  EXPECT_TRUE(adversarial.differences.empty()) << Report(adversarial);
  const Tally decoded = CheckDecoding(tokenizer, folder);
  EXPECT_GT(decoded.cases, 50u);
  EXPECT_TRUE(decoded.differences.empty()) << Report(decoded);
  const Tally streams = CheckStreams(tokenizer, folder);
  EXPECT_GT(streams.cases, 80u);
  EXPECT_TRUE(streams.differences.empty()) << Report(streams);
}

class ShippedVocabulary : public testing::TestWithParam<const char*> {};

TEST_P(ShippedVocabulary, EncodesDecodesAndStreamsLikeTheReference) {
  ExpectLikeTheReference(StrCat(tests::TestData(), "/text/", GetParam()));
}

INSTANTIATE_TEST_SUITE_P(Mit, ShippedVocabulary, testing::Values("gpt2", "phi3"));

TEST(FixtureVocabularies, EncodeDecodeAndStreamLikeTheReference) {
  const std::string root = FixturesFolder() + "/text/tokenizers";
  if (!std::filesystem::exists(root)) GTEST_SKIP() << "no reference data in " << root;
  for (const auto& entry : std::filesystem::directory_iterator(root)) {
    const std::string name = entry.path().filename();
    if (name == "gpt2" || name == "phi3") continue;  // shipped: checked above
    SCOPED_TRACE(name);
    ExpectLikeTheReference(entry.path());
  }
}

}  // namespace
}  // namespace pinion
