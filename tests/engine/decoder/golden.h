#pragma once

#include <cmath>
#include <cstdlib>
#include <string>
#include <vector>

#include "engine/base/check.h"
#include "engine/base/json.h"
#include "engine/checkpoint/tensors.h"
#include "tests/test_data.h"

namespace pinion::testing {

// One prompt of a fixture's golden.json with the reference's float32 logits of its last rows.
struct GoldenPrompt {
  std::vector<int32_t> input_ids, greedy_ids;
  std::vector<std::vector<std::pair<int32_t, double>>> top_logprobs;  // a generated token
  double logit_rms = 0, bf16_rms_error = 0;
  std::vector<float> logits;  // [rows][vocabulary]
  size_t rows = 0, vocabulary = 0;
};

inline std::string ModelFolder(const std::string& name) {
  return tests::TestData() + "/models/" + name;
}

inline std::vector<int32_t> Ids(const Json& list) {
  std::vector<int32_t> ids;
  for (const Json& id : list.array()) ids.push_back(static_cast<int32_t>(id.integer()));
  return ids;
}

inline void ReadGenerated(const Json& entry, GoldenPrompt& prompt) {
  prompt.greedy_ids = Ids(*entry.Find("greedy_ids"));
  for (const Json& token : entry.Find("top5_logprobs")->array()) {
    prompt.top_logprobs.emplace_back();
    for (const Json& pair : token.array())
      prompt.top_logprobs.back().emplace_back(static_cast<int32_t>(pair.array()[0].integer()),
                                              pair.array()[1].number());
  }
  prompt.bf16_rms_error = entry.Find("bf16_rms_logit_error")->number();
}

// Of `stem`.json and `stem`.safetensors, which may leave out what was generated.
inline std::vector<GoldenPrompt> ReadGolden(const std::string& stem) {
  const auto json = Json::ParseFile(stem + ".json");
  CHECK(json) << json.error().message;
  const auto tensors = OpenSafetensorsFile(stem + ".safetensors");
  CHECK(tensors) << tensors.error().message;
  std::vector<GoldenPrompt> prompts;
  for (const Json& entry : json->Find("prompts")->array()) {
    GoldenPrompt prompt;
    prompt.input_ids = Ids(*entry.Find("input_ids"));
    if (entry.Find("greedy_ids")) ReadGenerated(entry, prompt);
    prompt.logit_rms = entry.Find("logit_rms")->number();
    const auto info =
        (*tensors)->Find("prompt" + std::to_string(prompts.size()) + ".logits.float32");
    CHECK(info) << info.error().message;
    prompt.rows = static_cast<size_t>(info->shape[0]);
    prompt.vocabulary = static_cast<size_t>(info->shape[1]);
    std::vector<std::byte> scratch;
    const auto* data =
        reinterpret_cast<const float*>((*tensors)->Rows(*info, 0, prompt.rows, scratch));
    prompt.logits.assign(data, data + prompt.rows * prompt.vocabulary);
    prompts.push_back(std::move(prompt));
  }
  return prompts;
}

inline std::vector<GoldenPrompt> LoadGolden(const std::string& name) {
  return ReadGolden(ModelFolder(name) + "/golden");
}

}  // namespace pinion::testing
