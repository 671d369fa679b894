#pragma once

// The texts of embedders and rerankers, and what the reference and an engine make of them.

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <string>
#include <vector>

#include "engine/base/check.h"
#include "engine/run/engine.h"
#include "engine/run/pooler.h"
#include "tests/engine/decoder/golden.h"
#include "tests/engine/run/test_target.h"
#include "tests/test_data.h"

namespace pinion {

inline constexpr double kPoolingBound = 3e-4;  // of the reference's RMS (the fixtures' README)

inline std::string PoolingFolder(const std::string& name) {
  return tests::TestData() + "/embedders/" + name;
}

inline EngineOptions PoolingOptions(const std::string& name) {
  EngineOptions options;
  options.model = PoolingFolder(name);
  options.dtype = "float32";
  options.kv_cache_bytes = 16 << 20;
  options.threads_bind = "nobind";
  setenv("OMP_NUM_THREADS", "1", 1);
  options.pools = true;
  if (name == "qwen3-reranker") options.task = "score";
  testing::SetTestTarget(options);
  return options;
}

// The texts of a golden, and what the reference makes of them: embeddings or logits.
struct PoolingGolden {
  Json json;
  std::vector<std::vector<float>> wanted;
  double rms = 0;  // of all that is wanted

  explicit PoolingGolden(const std::string& name)
      : json(Json::ParseFile(PoolingFolder(name) + "/golden.json").value()) {
    const auto source = OpenSafetensorsFile(PoolingFolder(name) + "/golden.safetensors").value();
    const size_t count = json.Find("prompts")->array().size();
    const bool scores = source->Find("logits.float32").has_value();
    std::vector<std::byte> scratch;
    double squares = 0, values = 0;
    for (size_t i = 0; i < count; ++i) {
      const auto info = source
                            ->Find(scores ? "logits.float32"
                                          : "prompt" + std::to_string(i) + ".embedding.float32")
                            .value();
      const auto rows = scores ? size_t{1} : static_cast<size_t>(info.shape[0]);
      const auto* data =
          reinterpret_cast<const float*>(source->Rows(info, scores ? i : 0, rows, scratch));
      wanted.emplace_back(data, data + rows);
      for (const float x : wanted.back()) squares += double{x} * x, ++values;
    }
    rms = std::sqrt(squares / values);
  }

  std::vector<int32_t> Ids(size_t i, const char* key) const {
    const Json* list = json.Find("prompts")->array()[i].Find(key);
    return list ? testing::Ids(*list) : std::vector<int32_t>();
  }
};

inline std::vector<std::vector<float>> PoolGolden(Engine& engine, const PoolingGolden& golden) {
  const PoolingFacts facts = FactsOf(engine.model(), engine.info().task);
  for (size_t i = 0; i < golden.wanted.size(); ++i) {
    Request request;
    request.id = i;
    request.pool = true;
    request.prompt_ids = golden.Ids(i, "input_ids");
    if (facts.has_types) request.types = golden.Ids(i, "token_type_ids");
    CHECK(engine.Add(std::move(request)));
  }
  std::vector<std::vector<float>> pooled(golden.wanted.size());
  std::vector<TokenEvent> events;
  while (!engine.idle()) engine.Step(events);
  for (const TokenEvent& event : events)
    pooled[event.request] = facts.task == ModelTask::kEmbed
                                ? FinishEmbedding(event.pooled, 0, facts.normalises)
                                : event.pooled;
  return pooled;
}

// Of what is the golden's, or another result of its texts, as a part of the golden's RMS.
inline double WorstPoolingError(const PoolingGolden& golden,
                                const std::vector<std::vector<float>>& wanted,
                                const std::vector<std::vector<float>>& got) {
  double worst = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    CHECK(got[i].size() == wanted[i].size()) << got[i].size();
    for (size_t j = 0; j < got[i].size(); ++j)
      worst = std::max(worst, std::abs(double{got[i][j]} - wanted[i][j]) / golden.rms);
  }
  return worst;
}
inline double WorstPoolingError(const PoolingGolden& golden,
                                const std::vector<std::vector<float>>& got) {
  return WorstPoolingError(golden, golden.wanted, got);
}

}  // namespace pinion
