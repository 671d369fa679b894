#pragma once

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "engine/checkpoint/model.h"
#include "engine/decoder/decoder.h"
#include "engine/spec/kv_tables.h"
#include "kernels/isa.h"
#include "tests/engine/decoder/golden.h"
#include "tests/watched.h"

namespace pinion::testing {

inline Plan Unpinned(const std::vector<int>& threads) {
  Plan plan;
  for (size_t rank = 0; rank < threads.size(); ++rank)
    plan.ranks.push_back({static_cast<int>(rank), {}, {}, threads[rank]});
  return plan;
}

// On the scalar path, but on the best one if a sanitizer watches: the decoder does the same there,
// in a fraction of the time. (Encoders run on every path, and test_kernels holds each to its
// memory.)
inline DecoderOptions Float32() {
  DecoderOptions options;
  if (tests::Watched()) options.isa = kernels::UsableIsas().back();
  options.formats = kernels::Dtype::kF32;
  options.max_rows = 128;
  options.block_tokens = 16;
  return options;
}

// Blocks of a sequence of up to 512 tokens.
inline const std::vector<int32_t> kShuffled = {41, 3,  60, 7,  22, 0,  13, 50, 28, 38, 2,
                                               52, 56, 5,  17, 58, 59, 6,  54, 29, 24, 49,
                                               51, 27, 12, 21, 35, 34, 4,  62, 20, 32};

// One model loaded for a test of the decoder, without scheduler and sampler.
struct Loaded {
  ModelFiles files;
  std::unique_ptr<Ranks> ranks;
  std::unique_ptr<Decoder> decoder;
  size_t block_tokens = 0, blocks = 0;  // the latter of each table

  Loaded(const std::string& model, const Plan& plan, const DecoderOptions& options)
      : Loaded(FindModel(ModelFolder(model)).value(), plan, options) {}

  Loaded(const ModelFiles& model, const Plan& plan, const DecoderOptions& options)
      : Loaded(model, OpenWeights(model).value(), plan, options) {}

  Loaded(ModelFiles model, std::unique_ptr<TensorSource> weights, const Plan& plan,
         const DecoderOptions& options)
      : Loaded(std::move(model), std::move(weights), *Ranks::Start(plan), options) {}

  // max_len: of the sequences together.
  Loaded(ModelFiles model, std::unique_ptr<TensorSource> weights, std::unique_ptr<Ranks> teams,
         const DecoderOptions& options, size_t max_len = 1024)
      : files(std::move(model)), ranks(std::move(teams)) {
    auto loaded = Decoder::Load(files.spec, std::move(weights), *ranks, options);
    CHECK(loaded) << loaded.error().message;
    decoder = *std::move(loaded);
    block_tokens = options.block_tokens;
    blocks = max_len / block_tokens;
    CHECK(decoder->AllocateKv(blocks * KvTables(files.spec), max_len, 4));
  }

  // The block tables of a sequence whose rows from `first` on are computed next: block i of table t
  // is table[i] of the t-th part of the cache, or none if no token from `first` on sees it.
  std::vector<std::vector<int32_t>> Tables(const std::vector<int32_t>& table, size_t first) const {
    std::vector<std::vector<int32_t>> tables;
    for (const Reach& reach : KvReaches(files.spec)) {
      std::vector<int32_t>& own = tables.emplace_back(table);
      for (int32_t& block : own) block += static_cast<int32_t>((tables.size() - 1) * blocks);
      const size_t gone = std::min(own.size(), reach.First(first) / block_tokens);
      std::fill_n(own.begin(), gone, -1);
    }
    return tables;
  }

  // Logits of rows [first, first + rows) of a sequence, the earlier ones of which are in the cache;
  // block i of the sequence lies in table[i].
  std::vector<float> Step(const std::vector<int32_t>& ids, size_t first, size_t rows,
                          const std::vector<int32_t>& table) {
    const auto vocabulary = static_cast<size_t>(files.spec.vocabulary);
    std::vector<float> all(rows * vocabulary);
    StepBatch batch;
    const auto begin = ids.begin() + static_cast<ptrdiff_t>(first);
    batch.tokens.assign(begin, begin + static_cast<ptrdiff_t>(rows));
    const auto tables = Tables(table, first);
    batch.slices = {{0, rows, first}};
    for (size_t i = 0; i < tables.size(); ++i) batch.slices[0].block_tables[i] = tables[i].data();
    for (size_t i = 0; i < rows; ++i) batch.logit_rows.push_back(static_cast<int32_t>(i));
    decoder->Forward(
        batch, [&](const Worker& worker, size_t at, size_t count, float* logits, size_t stride) {
          if (worker.thread != 0) return;
          for (size_t i = 0; i < count; ++i)
            std::copy_n(logits + i * stride, vocabulary, all.data() + (at + i) * vocabulary);
        });
    return all;
  }

  // Logits of all rows of a sequence computed in chunks.
  std::vector<float> Run(const std::vector<int32_t>& ids, size_t chunk,
                         const std::vector<int32_t>& table) {
    std::vector<float> all;
    for (size_t at = 0; at < ids.size(); at += chunk) {
      const auto logits = Step(ids, at, std::min(chunk, ids.size() - at), table);
      all.insert(all.end(), logits.begin(), logits.end());
    }
    return all;
  }
};

// The largest difference between the reference and the last rows of `logits`, in units of the
// reference's RMS.
inline double WorstError(const GoldenPrompt& golden, const std::vector<float>& logits) {
  CHECK(logits.size() >= golden.logits.size());
  const size_t first = logits.size() - golden.logits.size();
  double worst = 0;
  for (size_t i = 0; i < golden.logits.size(); ++i)
    worst =
        std::max(worst, std::abs(double{logits[first + i]} - golden.logits[i]) / golden.logit_rms);
  return worst;
}

}  // namespace pinion::testing
