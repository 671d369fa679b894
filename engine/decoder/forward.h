#pragma once

#include <memory>
#include <vector>

#include "engine/decoder/decoder.h"
#include "engine/decoder/rank_exchange.h"
#include "engine/decoder/rank_model.h"
#include "engine/decoder/step.h"
#include "engine/host/team.h"
#include "engine/spec/spec.h"
#include "engine/weights/plain_experts.h"

namespace pinion {

// A rope for the sequences that are served: angle per position of each pair, [dim / 2].
struct RopeAngles {
  std::vector<float> frequencies;
  float scale = 1;  // multiplies cos and sin
};

// Everything a forward pass reads, and the buffers it writes: the shared ones, and those of each
// rank.
struct LoadedModel {
  DecoderSpec spec;
  DecoderOptions options;
  const kernels::Table* table = nullptr;
  const TensorSource* source = nullptr;
  ActivationObserver* observer = nullptr;  // of calibration; else null
  std::vector<RopeAngles> ropes;           // as the spec's
  std::vector<KvPlace> kv_places;          // [layers], of those that attend
  // Without a name if there is none.
  TensorInfo embedding, position_embedding, type_embedding, layer_input_table;
  std::vector<std::unique_ptr<PlainExperts>> plain_experts;  // [layers]; nothing if prepacked
  std::vector<RankModel> ranks;                              // of this process
  RankExchange exchange;
  float* logits = nullptr;  // [kLogitChunk][logits_stride], written by all ranks
  size_t logits_stride = 0;
};

// One thread's part of a step; called by every thread of every rank at once. Runs phase after phase
// (Phases): each reads what earlier ones wrote, on any thread.
void RunForward(LoadedModel& model, const Worker& worker, const StepBatch& batch,
                const Handover& handover, const LogitsSink& sink);

}  // namespace pinion
