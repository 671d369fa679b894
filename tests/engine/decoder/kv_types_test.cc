// Every type of the KV cache in every architecture on every usable ISA. No bound here comes from
// the code's own output:
//
// - Every call of attention is compared with attention in double over keys and values that the test
//   has rounded itself, by the scheme of kernels.h. The bound is that of tests/kernels: float32
//   sums, and what the path rounds queries and weights to (attention_reference.h).
// - The logits are compared with those of the scalar path with attention by the test, in double,
//   over the same decoder's keys, values and queries, which the test rounds as the path is said to.
//   Two engines that round the same numbers alike differ by float32 arithmetic alone, each by at
//   most 3e-4 of the logits' RMS from the exact ones (as every engine from the reference,
//   golden_test.cc): every logit by at most 6e-4. If attention's weights are rounded too, some
//   fall the other way for the last bit of a float32, and the bound is the RMS error's.
// - Of each row that the reference takes from the other decoder it has computed its own, and the
// two
//   are the same row: another token's or head's would be off by the whole of its largest element.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <tuple>
#include <vector>

#include "tests/engine/decoder/golden.h"
#include "tests/engine/decoder/kv_watch.h"
#include "tests/engine/decoder/loaded.h"

namespace pinion {
namespace {

using kernels::Isa;
using kernels::KvDtype;
using testing::GoldenPrompt;
using testing::kShuffled;
using testing::Loaded;

constexpr double kFloat32 = 3e-4;
constexpr double kSameRow = 0.01;
constexpr size_t kChunk = 7;  // steps begin and end within blocks

struct Difference {
  double rms = 0, worst = 0;
};

Difference Between(const std::vector<float>& got, const std::vector<float>& want) {
  Difference found;
  for (size_t i = 0; i < want.size(); ++i) {
    const double error = std::abs(double{got[i]} - want[i]);
    found.worst = std::isnan(error) ? INFINITY : std::max(found.worst, error);
    found.rms += error * error / static_cast<double>(want.size());
  }
  found.rms = std::sqrt(found.rms);
  return found;
}

class KvTypes : public ::testing::TestWithParam<std::tuple<std::string, Isa>> {
 protected:
  static std::vector<float> Run(const GoldenPrompt& prompt, Isa isa, KvDtype dtype,
                                const kernels::Table* table) {
    DecoderOptions options = testing::Float32();
    options.isa = isa;
    options.kv_dtype = dtype;
    options.table = table;
    return Loaded(std::get<0>(GetParam()), testing::Unpinned({1}), options)
        .Run(prompt.input_ids, kChunk, kShuffled);
  }

  static void Check(const GoldenPrompt& prompt, KvDtype dtype) {
    const Isa isa = std::get<1>(GetParam());
    testing::CheckedAttention checked(isa, dtype);
    const auto got = Run(prompt, isa, dtype, checked.table());
    ASSERT_FALSE(checked.traffic().queries.empty());
    EXPECT_LE(checked.worst(), 1);

    testing::RoundedReference reference(isa, dtype, &checked.traffic());
    const auto want = Run(prompt, Isa::kScalar, KvDtype::kF32, reference.table());
    const Difference difference = Between(got, want);
    const bool rounds_weights = kernels::testing::OperandRoundoff(isa, dtype).rounds();
    EXPECT_LE(rounds_weights ? difference.rms : difference.worst, 2 * kFloat32 * prompt.logit_rms);
    EXPECT_LE(reference.farthest(), kSameRow);
  }
};

TEST_P(KvTypes, RoundAsStatedAndComputeAsTheScalarPathDoes) {
  auto prompts = testing::LoadGolden(std::get<0>(GetParam()));
  // Every row of a prompt sees the roundings of all earlier ones: the bounds above are for as many
  // as the first fixtures have.
  // Rows that choose their tokens attend to copies of keys, which the watch does not follow
  // (kv_gather_test.cc does).
  const int chosen =
      FindModel(testing::ModelFolder(std::get<0>(GetParam()))).value().spec.index.top_k;
  const size_t longest_kept = chosen > 0 ? static_cast<size_t>(chosen) : 128;
  std::erase_if(prompts,
                [&](const GoldenPrompt& prompt) { return prompt.input_ids.size() > longest_kept; });
  const GoldenPrompt& longest = *std::max_element(prompts.begin(), prompts.end(),
                                                  [](const GoldenPrompt& a, const GoldenPrompt& b) {
                                                    return a.input_ids.size() < b.input_ids.size();
                                                  });
  for (KvDtype dtype : kernels::kKvDtypes) {
    SCOPED_TRACE(kernels::Name(dtype));
    Check(longest, dtype);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, KvTypes,
                         ::testing::Combine(::testing::ValuesIn(tests::ModelFixtures()),
                                            ::testing::ValuesIn(kernels::UsableIsas())),
                         [](const auto& info) {
                           return tests::TestName(std::get<0>(info.param) + "_" +
                                                  Name(std::get<1>(info.param)));
                         });

}  // namespace
}  // namespace pinion
