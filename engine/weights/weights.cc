#include "engine/weights/weights.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "engine/base/check.h"
#include "engine/host/huge_pages.h"
#include "engine/spec/attention_spec.h"
#include "engine/spec/tensor_list.h"
#include "engine/weights/conv_packer.h"
#include "engine/weights/delta_packer.h"
#include "engine/weights/expert_packer.h"
#include "engine/weights/latent_packer.h"
#include "engine/weights/mamba_packer.h"
#include "engine/weights/stream_packer.h"
#include "engine/weights/weight_layout.h"
#include "engine/weights/weight_packer.h"

namespace pinion {
namespace {

using kernels::kBlockN;

// One worker's loading of one rank.
class Loader {
 public:
  Loader(const DecoderSpec& spec, const TensorSource& source, const Worker& worker,
         RankWeights& weights)
      : spec_(spec),
        names_(spec.names),
        source_(source),
        worker_(worker),
        weights_(weights),
        shard_(weights.shard),
        hidden_{0, static_cast<size_t>(spec.hidden)},
        packer_(source, worker) {}

  void Load() {
    for (int i = 0; i < spec_.layers; ++i) LoadLayer(i);
    LoadNorm(weights_.embedding_norm, names_.embedding_norm);
    LoadNorm(weights_.final_norm, names_.final_norm);
    LoadStreams(spec_, source_, worker_, weights_);
    if (!spec_.has_head()) return;
    const TensorInfo head = packer_.Find(spec_.tied_head ? names_.embedding : names_.head);
    const Range vocabulary = shard_.vocabulary;
    packer_.PackMatrix(weights_.head, {{&head, vocabulary.begin, vocabulary.size()}}, 0);
  }

 private:
  void LoadLayer(int index) {
    LayerWeights& layer = weights_.layers[static_cast<size_t>(index)];
    const LayerSpec& kinds = spec_.layer_specs[static_cast<size_t>(index)];
    if (kinds.mixer != MixerKind::kNone) {
      LoadNorm(layer.attention_norm, LayerTensor(names_.attention_norm, index));
      LoadMixer(layer, index);
      LoadNorm(layer.attention_post_norm, LayerTensor(names_.attention_post_norm, index));
    }
    LoadStreams(spec_, index, source_, worker_, layer);
    if (kinds.mlp == MlpKind::kNone) return;
    LoadNorm(layer.mlp_norm, LayerTensor(names_.mlp_norm, index));
    if (kinds.mlp == MlpKind::kExperts) {
      LoadExperts(layer, index);
    } else {
      LoadMlpIn(layer, index);
      LoadOutput(layer.down, layer.down_bias, LayerTensor(names_.down, index),
                 shard_.Intermediate(static_cast<size_t>(index)).begin);
    }
    LoadNorm(layer.mlp_post_norm, LayerTensor(names_.mlp_post_norm, index));
    packer_.FillVector(layer.scale, LayerTensor(names_.layer_scale, index), {0, 1});
  }

  void LoadMixer(LayerWeights& layer, int index) {
    const MixerKind mixer = spec_.layer_specs[static_cast<size_t>(index)].mixer;
    if (mixer == MixerKind::kShortConv) {
      LoadShortConv(spec_, index, source_, worker_, shard_, layer);
      return LoadOutput(layer.o, nullptr, LayerTensor(names_.conv_o, index),
                        shard_.conv_channels.begin);
    }
    if (HasMamba(mixer)) LoadMamba(spec_, index, source_, worker_, shard_, layer.mamba);
    if (mixer == MixerKind::kMamba) return;
    if (mixer == MixerKind::kDeltaNet) {
      LoadDeltaNet(spec_, index, source_, worker_, shard_, layer);
      const size_t values = static_cast<size_t>(spec_.delta.heads_per_key()) *
                            static_cast<size_t>(spec_.delta.value_dim);
      return LoadOutput(layer.o, nullptr, LayerTensor(names_.delta_o, index),
                        shard_.delta_heads.begin * values);
    }
    if (spec_.latent.kv_rank > 0) {
      LoadLatentAttention(spec_, index, source_, worker_, shard_, layer);
    } else {
      LoadQkv(layer, index);
      LoadHeadNorms(layer, index);
      packer_.FillVector(layer.sinks, LayerTensor(names_.sinks, index), HeadsOf(index).q_heads);
    }
    const size_t width =
        spec_.latent.kv_rank > 0 ? static_cast<size_t>(spec_.latent.value_dim) : HeadDim(index);
    LoadOutput(layer.o, layer.o_bias, LayerTensor(names_.o, index),
               HeadsOf(index).q_heads.begin * width);
  }

  void LoadNorm(const NormWeights& norm, const std::string& name) {
    packer_.FillVector(norm.weight, name + ".weight", hidden_, spec_.norm_offset);
    packer_.FillVector(norm.bias, name + ".bias", hidden_);
  }

  const HeadShare& HeadsOf(int index) const { return shard_.Heads(static_cast<size_t>(index)); }
  size_t HeadDim(int index) const {
    return static_cast<size_t>(LayerHeads(spec_, static_cast<size_t>(index)).head_dim);
  }
  Range Elements(int index, Range heads) const {
    return {heads.begin * HeadDim(index), heads.end * HeadDim(index)};
  }
  Range QRows(int index) const { return Elements(index, HeadsOf(index).q_heads); }
  Range KvRows(int index) const { return Elements(index, HeadsOf(index).kv_heads); }

  void LoadHeadNorms(LayerWeights& layer, int index) {
    const bool whole = spec_.qk_norm == QkNorm::kWhole;
    const Range one{0, HeadDim(index)};
    if (spec_.qk_norm == QkNorm::kPerHead && names_.q_norm.empty()) {
      if (worker_.thread == 0)
        for (float* weight : {layer.q_norm, layer.k_norm})
          if (weight) std::fill_n(weight, one.size(), 1.0f);
      return;
    }
    packer_.FillVector(layer.q_norm, LayerTensor(names_.q_norm, index) + ".weight",
                       whole ? QRows(index) : one, spec_.norm_offset);
    packer_.FillVector(layer.k_norm, LayerTensor(names_.k_norm, index) + ".weight",
                       whole ? KvRows(index) : one, spec_.norm_offset);
  }

  std::vector<Module> SplitQkvModules(int index) const {
    const LayerSpec& kinds = spec_.layer_specs[static_cast<size_t>(index)];
    std::vector<Module> modules = {{LayerTensor(names_.q, index)}};
    if (!Caches(kinds)) return modules;
    modules.push_back({LayerTensor(names_.k, index)});
    if (!kinds.keys_as_values) modules.push_back({LayerTensor(names_.v, index)});
    return modules;
  }

  // The tensors of queries, keys and values, fused or not, and the first row of each.
  std::vector<Module> QkvModules(int index) const {
    if (names_.qkv.empty()) return SplitQkvModules(index);
    const std::string name = LayerTensor(names_.qkv, index);
    const HeadShape heads = LayerHeads(spec_, static_cast<size_t>(index));
    const auto q = static_cast<size_t>(heads.q()), kv = static_cast<size_t>(heads.kv());
    return {{name, 0}, {name, q}, {name, q + kv}};
  }

  // Each query head's rows are its query and its gate; packed are all queries, keys, values, gates.
  void LoadGatedQkv(LayerWeights& layer, int index) {
    const size_t head_dim = HeadDim(index);
    const Range heads = HeadsOf(index).q_heads;
    const TensorInfo q = packer_.Find(LayerTensor(names_.q, index) + ".weight");
    const TensorInfo k = packer_.Find(LayerTensor(names_.k, index) + ".weight");
    const TensorInfo v = packer_.Find(LayerTensor(names_.v, index) + ".weight");
    std::vector<Segment> segments;
    const auto add_part = [&](size_t part) {
      for (size_t head = heads.begin; head < heads.end; ++head)
        segments.push_back({&q, (2 * head + part) * head_dim, head_dim});
    };
    add_part(0);
    for (const TensorInfo* tensor : {&k, &v})
      segments.push_back({tensor, KvRows(index).begin, KvRows(index).size()});
    add_part(1);
    packer_.PackMatrix(layer.qkv, segments, 0);
  }

  void LoadQkv(LayerWeights& layer, int index) {
    if (spec_.attention_gate) return LoadGatedQkv(layer, index);
    const auto modules = QkvModules(index);
    const Range shares[] = {QRows(index), KvRows(index), KvRows(index)};
    std::vector<TensorInfo> tensors;
    for (const Module& module : modules) tensors.push_back(packer_.Find(module.name + ".weight"));
    std::vector<Segment> segments;
    float* bias = layer.qkv_bias;
    for (size_t i = 0; i < modules.size(); ++i) {
      const Range rows{modules[i].row + shares[i].begin, modules[i].row + shares[i].end};
      segments.push_back({&tensors[i], rows.begin, rows.size()});
      if (!layer.qkv_bias) continue;
      packer_.FillVector(bias, modules[i].name + ".bias", rows);
      bias += rows.size();
    }
    packer_.PackMatrix(layer.qkv, segments, 0);
  }

  // A projection back to the residual stream: all rows, this rank's columns from `column` on.
  void LoadOutput(const PackedMatrix& matrix, float* bias, const std::string& name, size_t column) {
    const TensorInfo tensor = packer_.Find(name + ".weight");
    packer_.PackMatrix(matrix, {{&tensor, 0, hidden_.size()}}, column);
    packer_.FillVector(bias, name + ".bias", hidden_);
  }

  void LoadMlpIn(LayerWeights& layer, int index) {
    const Range middle = shard_.Intermediate(static_cast<size_t>(index));
    if (spec_.gated) return LoadGated(layer, GatedModules(index), middle);
    LoadUngated(layer, LayerTensor(names_.up, index), middle);
  }

  void LoadUngated(LayerWeights& layer, const std::string& up, Range middle) {
    const TensorInfo tensor = packer_.Find(up + ".weight");
    packer_.PackMatrix(layer.mlp_in, {{&tensor, middle.begin, middle.size()}}, 0);
    packer_.FillVector(layer.mlp_in_bias, up + ".bias", middle);
  }

  std::vector<Module> SharedModules(int index) const {
    if (names_.shared_gate_up.empty())
      return {{LayerTensor(names_.shared_gate, index)}, {LayerTensor(names_.shared_up, index)}};
    const std::string name = LayerTensor(names_.shared_gate_up, index);
    return {{name, 0}, {name, static_cast<size_t>(spec_.moe.shared_intermediate)}};
  }

  std::vector<Module> GatedModules(int index) const {
    if (names_.gate_up.empty())
      return {{LayerTensor(names_.gate, index)}, {LayerTensor(names_.up, index)}};
    const std::string name = LayerTensor(names_.gate_up, index);
    return {{name, 0}, {name, MlpWidth(spec_, static_cast<size_t>(index))}};
  }

  // Blocks of gate and up alternate; the last ones are padded with zeros.
  void LoadGated(LayerWeights& layer, const std::vector<Module>& modules, Range middle) {
    std::vector<TensorInfo> tensors;
    for (const Module& module : modules) tensors.push_back(packer_.Find(module.name + ".weight"));
    std::vector<Segment> segments;
    float* bias = layer.mlp_in_bias;
    for (size_t row = middle.begin; row < middle.end; row += kBlockN) {
      const size_t count = std::min(kBlockN, middle.end - row);
      for (size_t i = 0; i < modules.size(); ++i) {
        const Range rows{modules[i].row + row, modules[i].row + row + count};
        segments.push_back({&tensors[i], rows.begin, count});
        if (count < kBlockN) segments.push_back({nullptr, 0, kBlockN - count});
        if (!layer.mlp_in_bias) continue;
        packer_.FillVector(bias, modules[i].name + ".bias", rows);
        bias += kBlockN;
      }
    }
    packer_.PackMatrix(layer.mlp_in, segments, 0, 2);
  }

  // The router is whole on every rank; the experts, and the MLP beside them, are cut by columns.
  void LoadExperts(LayerWeights& layer, int index) {
    ExpertWeights& experts = layer.experts;
    const Range all{0, static_cast<size_t>(spec_.moe.router.experts)};
    const std::string router = LayerTensor(names_.router, index);
    const TensorInfo tensor = packer_.Find(router + ".weight");
    std::vector<Segment> routers = {{&tensor, 0, all.size()}};
    TensorInfo of_shared;
    if (spec_.moe.shared_router) {
      of_shared = packer_.Find(LayerTensor(names_.shared_router, index) + ".weight");
      routers.push_back({&of_shared, 0, 1});
    }
    packer_.PackMatrix(experts.router, routers, 0);
    packer_.FillVector(experts.router_bias, router + ".bias", all);
    packer_.FillVector(experts.correction, LayerTensor(names_.router_correction, index), all);
    if (spec_.moe.apart) LoadApart(experts, index);
    const Range share = shard_.expert_intermediate;
    const PlainExperts plain(spec_, index, source_);
    if (experts.prepacked()) PackExperts(plain, share, worker_, experts);
    if (worker_.thread == 0) FillExpertBiases(plain, share, experts);
    if (spec_.moe.shared_intermediate == 0) return;
    if (spec_.gated)
      LoadGated(layer, SharedModules(index), shard_.shared_intermediate);
    else
      LoadUngated(layer, LayerTensor(names_.shared_up, index), shard_.shared_intermediate);
    LoadOutput(layer.down, nullptr, LayerTensor(names_.shared_down, index),
               shard_.shared_intermediate.begin);
  }

  void LoadApart(const ExpertWeights& experts, int index) {
    const Range all{0, static_cast<size_t>(spec_.moe.router.experts)};
    packer_.FillVector(experts.router_norm, LayerTensor(names_.router_norm, index), hidden_);
    packer_.FillVector(experts.weight_scale, LayerTensor(names_.router_expert_scale, index), all);
    const float scale = 1 / std::sqrt(static_cast<float>(spec_.hidden));
    for (size_t i = 0; worker_.thread == 0 && i < hidden_.size(); ++i)
      experts.router_norm[i] *= scale;
    LoadNorm(experts.norm, LayerTensor(names_.expert_norm, index));
    LoadNorm(experts.post_norm, LayerTensor(names_.expert_post_norm, index));
    LoadNorm(experts.shared_post_norm, LayerTensor(names_.shared_post_norm, index));
  }

  const DecoderSpec& spec_;
  const TensorNames& names_;
  const TensorSource& source_;
  const Worker& worker_;
  RankWeights& weights_;
  const Shard& shard_;
  const Range hidden_;
  WeightPacker packer_;
};

// A rank's memory: its own, or its part of the shared copy.
Result<Pages> StorageFor(uint64_t bytes, size_t rank, const std::vector<MemoryPolicy>& memory,
                         const SharedShards& shared) {
  const MemoryPolicy policy = memory.empty() ? MemoryPolicy{} : memory.at(rank);
  if (!shared.all) return Pages::Allocate(bytes, policy);
  PINION_ASSIGN(Pages pages, shared.all->Map(shared.first + rank, policy));
  CHECK(pages.size_bytes() == bytes) << "the shared part has " << pages.size_bytes() << " bytes";
  return pages;
}

// Before anything is there, so that nothing is copied. A shared copy's ranks are on one node each,
// so that any of their threads may touch any part.
void MakeSharesHuge(Ranks& ranks, const std::vector<RankWeights>& all) {
  ranks.Run([&](const Worker& worker) {
    const Pages& storage = all[static_cast<size_t>(worker.rank)].storage;
    const auto [begin, end] = worker.Slice(storage.size_bytes() / kHugePageBytes);
    MakeHuge(storage.data() + begin * kHugePageBytes, (end - begin) * kHugePageBytes);
  });
}

}  // namespace

size_t ChunkBlocks(const PackedMatrix& matrix, size_t rows, size_t unit) {
  constexpr size_t kBytes = 2'000'000, kFlops = 40'000'000;
  if (matrix.k == 0) return unit;
  const size_t by_bytes = kBytes / matrix.block_bytes();
  const size_t by_flops = kFlops / (2 * kBlockN * matrix.k_padded() * std::max<size_t>(1, rows));
  return std::max(std::min(by_bytes, by_flops) / unit * unit, unit);
}

uint64_t ShardWeightBytes(const DecoderSpec& spec, const FormatPlan& formats, bool moe_prepack,
                          const RankShares& shares, int rank) {
  RankWeights weights;
  weights.shard = MakeShard(spec, shares, rank);
  return LayOutWeights(spec, formats, moe_prepack, nullptr, weights);
}

Result<std::vector<RankWeights>> LoadWeights(const DecoderSpec& spec, const FormatPlan& formats,
                                             bool moe_prepack, const TensorSource& source,
                                             Ranks& ranks, const RankSpan& span,
                                             const std::vector<MemoryPolicy>& memory,
                                             const SharedShards& shared) {
  const RankShares shares = span.all.value_or(ranks.count());
  std::vector<RankWeights> all(static_cast<size_t>(ranks.count()));
  for (int rank = 0; rank < ranks.count(); ++rank) {
    RankWeights& weights = all[static_cast<size_t>(rank)];
    weights.shard = MakeShard(spec, shares, span.first + rank);
    const uint64_t bytes = ShardWeightBytes(spec, formats, moe_prepack, shares, span.first + rank);
    PINION_ASSIGN(weights.storage, StorageFor(bytes, static_cast<size_t>(rank), memory, shared));
    LayOutWeights(spec, formats, moe_prepack, weights.storage.data(), weights);
  }
  if (shared.all && shared.all->packed()) return all;
  if (shared.all) MakeSharesHuge(ranks, all);
  ranks.Run([&](const Worker& worker) {
    Loader(spec, source, worker, all[static_cast<size_t>(worker.rank)]).Load();
  });
  if (shared.all)
    for (const RankWeights& weights : all) weights.storage.MakeReadOnly();
  return all;
}

}  // namespace pinion
