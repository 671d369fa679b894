#include "engine/spec/spec_checks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/engine/spec/configs.h"

namespace pinion {
namespace {

using ::testing::HasSubstr;

// Why a spec is refused; empty if it is not.
std::string Refusal(const DecoderSpec& spec) {
  const Status checked = CheckShape(spec);
  return checked ? "" : checked.error().message;
}

DecoderSpec WithGates(const char* model) {
  DecoderSpec spec = SpecOf(model);
  spec.attention_gate = true;
  return spec;
}

// No published model combines them. Packed with queries, keys, values and gates in this order, the
// gates would be taken from behind the end of a row without values.
TEST(SpecChecks, RefuseGatesOfHeadsWhoseKeysAreValues) {
  EXPECT_EQ(Refusal(SpecOf("gemma4-dense")), "");
  EXPECT_THAT(Refusal(WithGates("gemma4-dense")), HasSubstr("keys of layer 2 are its values"));
}

TEST(SpecChecks, RefuseGatesOfHeadsThatSeeAnotherLayersKeys) {
  EXPECT_EQ(Refusal(SpecOf("gemma4-e")), "");
  EXPECT_THAT(Refusal(WithGates("gemma4-e")), HasSubstr("sees keys and values of layer"));
}

TEST(SpecChecks, RefuseGatesThatCannotBeToldFromOtherRows) {
  EXPECT_EQ(Refusal(WithGates("llama")), "");
  EXPECT_THAT(Refusal(WithGates("phi3")), HasSubstr("are one tensor"));
  EXPECT_THAT(Refusal(WithGates("deepseekv3")), HasSubstr("come from latents"));
}

// Configs with 'attention_bias' are refused by their architecture already.
TEST(SpecChecks, RefuseBiasesOfGatedAttention) {
  DecoderSpec spec = SpecOf("qwen3.5-text");
  EXPECT_EQ(Refusal(spec), "");
  spec.qkv_bias = true;
  EXPECT_THAT(Refusal(spec), HasSubstr("biases"));
}

}  // namespace
}  // namespace pinion
