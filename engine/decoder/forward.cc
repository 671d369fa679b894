#include "engine/decoder/forward.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "engine/base/trace.h"
#include "engine/decoder/forward_pass.h"
#include "engine/spec/stage.h"

namespace pinion {
namespace {

using kernels::Dtype;

void NormRows(const ForwardPass& pass, const NormWeights& norm, size_t begin, size_t end) {
  const TraceSpan span("norm");
  for (size_t row = begin; row < end; ++row)
    NormRow(pass, norm, pass.normed(row), pass.activation, pass.residual(row));
}

// One of the two terms that a layer adds to the residual stream.
struct Term {
  TermKind kind;
  NormWeights LayerWeights::*post_norm;
  float* LayerWeights::*bias;
};
constexpr Term kAttentionTerm = {TermKind::kAttention, &LayerWeights::attention_post_norm,
                                 &LayerWeights::o_bias};
constexpr Term kMlpTerm = {TermKind::kMlp, &LayerWeights::mlp_post_norm, &LayerWeights::down_bias};

// dst += every rank's share of one row. The order of ranks is always the same: float addition is
// not associative, and all ranks' residuals must stay equal to the bit.
void AddShares(const ForwardPass& pass, size_t layer, TermKind kind, size_t row, float* dst) {
  pass.model.exchange.AddShares(pass.table, kind, layer, row, dst);
}

// dst += both MLPs' results for one row, each through its norm, if experts stand apart.
void SumApart(const ForwardPass& pass, size_t layer, size_t row, float* dst) {
  const ExpertWeights& experts = pass.weights.layers[layer].experts;
  float* sum = pass.scratch.apart_row;
  for (const auto& [kind, norm] : {std::pair(TermKind::kMlp, &experts.shared_post_norm),
                                   std::pair(TermKind::kExperts, &experts.post_norm)}) {
    std::fill_n(sum, pass.hidden, 0.0f);
    AddShares(pass, layer, kind, row, sum);
    NormRow(pass, *norm, sum, Dtype::kF32, sum);
    pass.table.add(dst, sum, pass.hidden);
  }
}

// dst += a term of one row, and the bias.
void SumPartials(const ForwardPass& pass, size_t layer, const Term& term, size_t row, float* dst) {
  const LayerWeights& weights = pass.weights.layers[layer];
  if (term.kind == TermKind::kMlp && weights.experts.router_norm)
    return SumApart(pass, layer, row, dst);
  AddShares(pass, layer, term.kind, row, dst);
  if (const float* bias = pass.weights.layers[layer].*term.bias)
    pass.table.add(dst, bias, pass.hidden);
}

// The multiplier of a term, apart from that of all terms.
float OwnMultiplier(const DecoderSpec& spec, size_t layer, TermKind term) {
  if (term == TermKind::kMlp) return spec.mlp_multiplier;
  const MixerKind mixer = spec.layer_specs[layer].mixer;
  if (mixer == MixerKind::kAttention) return spec.attention_multiplier;
  return mixer == MixerKind::kMamba ? spec.mamba.multipliers.out : 1;
}

// All-reduce: every rank adds all ranks' partial terms to its own residual, so that all copies stay
// equal. The phase that wrote the terms spans all ranks, and so does one of the layer's other part,
// which lies between this phase and the next write to the same buffer: nothing else has to be
// waited for.
void AddTerm(const ForwardPass& pass, size_t layer, const Term& term, size_t begin, size_t end) {
  const TraceSpan span("add");
  const NormWeights& post_norm = pass.weights.layers[layer].*term.post_norm;
  const float multiplier = pass.spec.residual_multiplier;
  const float own = OwnMultiplier(pass.spec, layer, term.kind);
  for (size_t row = begin; row < end; ++row) {
    float* residual = pass.residual(row);
    if (pass.spec.post_norms_of_sums) {
      SumPartials(pass, layer, term, row, residual);
      NormRow(pass, post_norm, residual, Dtype::kF32, residual);
      continue;
    }
    if (!post_norm.weight && multiplier == 1 && own == 1) {
      SumPartials(pass, layer, term, row, residual);
      continue;
    }
    float* sum = pass.scratch.hidden_row;
    std::fill_n(sum, pass.hidden, 0.0f);
    SumPartials(pass, layer, term, row, sum);
    if (own != 1) pass.table.scale(sum, own, pass.hidden);
    NormRow(pass, post_norm, sum, Dtype::kF32, sum);
    pass.table.add_scaled(residual, sum, multiplier, pass.hidden);
  }
}

// Rounds, for ranks of other processes, a term that this rank has just written, in a phase of its
// own: one thread alone would round longer than the link takes.
void RoundTerm(const ForwardPass& pass, const Term& term) {
  RankExchange& exchange = pass.model.exchange;
  if (!exchange.rounds()) return;
  const auto local = static_cast<size_t>(pass.worker.rank);
  const bool apart = term.kind == TermKind::kMlp && pass.spec.moe.apart;
  const auto round = [&](size_t begin, size_t end) {
    const TraceSpan span("round");
    exchange.RoundTerm(pass.table, term.kind, local, pass.rows, begin, end);
    if (apart) exchange.RoundTerm(pass.table, TermKind::kExperts, local, pass.rows, begin, end);
  };
  pass.worker.Share(pass.rows, round, PhaseScope::kRanks);
}

// Fetches the shares of ranks of other processes; those of this one have just been written.
void FetchTerm(const ForwardPass& pass, const Term& term) {
  RoundTerm(pass, term);
  Fetch(pass, [&](RankExchange& exchange) {
    exchange.FetchTerm(term.kind, pass.rows);
    if (term.kind == TermKind::kMlp && pass.spec.moe.apart)
      exchange.FetchTerm(TermKind::kExperts, pass.rows);
  });
}

void RunAttending(const ForwardPass& pass, size_t layer) {
  pass.spec.latent.kv_rank > 0 ? RunLatentAttention(pass, layer) : RunAttention(pass, layer);
}

void ScaleRows(const ForwardPass& pass, float scale, size_t begin, size_t end) {
  for (size_t row = begin; row < end; ++row)
    pass.table.scale(pass.residual(row), scale, pass.hidden);
}

void RunMixer(const ForwardPass& pass, size_t layer) {
  switch (pass.spec.layer_specs[layer].mixer) {
    case MixerKind::kNone:
      return;
    case MixerKind::kAttention:
      return RunAttending(pass, layer);
    case MixerKind::kDeltaNet:
      return RunDeltaNet(pass, layer);
    case MixerKind::kShortConv:
      return RunShortConv(pass, layer);
    case MixerKind::kMamba:
      return RunMamba(pass, layer);
    case MixerKind::kAttentionAndMamba:
      RunAttending(pass, layer);
      RunMamba(pass, layer);
      return AddMamba(pass, layer);
  }
}

void NormForMlp(const ForwardPass& pass, const LayerWeights& layer, size_t begin, size_t end) {
  NormRows(pass, layer.mlp_norm, begin, end);
  if (layer.has_experts()) NormForRouter(pass, layer, begin, end);
}

// Leaves what the layer's first part reads.
void NormForLayer(const ForwardPass& pass, size_t index, size_t begin, size_t end) {
  const auto& layers = pass.weights.layers;
  if (index == EndOfLayers(pass.spec)) return;
  if (pass.spec.alt_up.streams > 0) PredictStreams(pass, index, begin, end);
  if (pass.spec.layer_specs[index].mixer == MixerKind::kNone)
    NormForMlp(pass, layers[index], begin, end);
  else
    NormRows(pass, layers[index].attention_norm, begin, end);
}

// Leaves in normed what the layer makes of its input.
void BeginInput(const ForwardPass& pass, size_t index, size_t begin, size_t end) {
  const bool streams = pass.spec.alt_up.streams > 0;
  const float* scale = pass.weights.layers[index].alt_up.scale;
  if (streams) CorrectStreams(pass, index, begin, end);
  for (size_t row = begin; row < end; ++row) {
    const float* from = streams ? pass.stream(0, row) : pass.residual(row);
    if (scale) {
      std::copy_n(from, pass.hidden, pass.scratch.hidden_row);
      pass.table.weigh(pass.scratch.hidden_row, scale, 1, pass.hidden);
      from = pass.scratch.hidden_row;
    }
    pass.table.store(pass.normed(row), pass.activation, from, pass.hidden);
  }
}

void AddInput(const ForwardPass& pass, size_t index, size_t begin, size_t end) {
  const NormWeights& norm = pass.weights.layers[index].input.post_norm;
  const auto streams = static_cast<size_t>(pass.spec.alt_up.streams);
  for (size_t row = begin; row < end; ++row) {
    float* term = pass.w.streams.term + row * pass.w.hidden_stride;
    NormRow(pass, norm, term, Dtype::kF32, term);
    if (streams == 0) pass.table.add(pass.residual(row), term, pass.hidden);
    for (size_t stream = 1; stream < streams; ++stream)
      pass.table.add(pass.stream(stream, row), term, pass.hidden);
  }
}

// Takes the normed rows of this layer and leaves those of the next. If it has one part alone, the
// next layer may be of the same kind: no phase of another part then lies between reading the terms
// and overwriting them, and all ranks wait here.
void RunLayer(const ForwardPass& pass, size_t index) {
  const LayerWeights& layer = pass.weights.layers[index];
  const LayerSpec& kinds = pass.spec.layer_specs[index];
  const bool has_mixer = kinds.mixer != MixerKind::kNone, has_mlp = kinds.mlp != MlpKind::kNone;
  const PhaseScope scope = has_mixer && has_mlp ? PhaseScope::kTeam : PhaseScope::kRanks;
  const auto add = [&](const Term& term, const auto& then) {
    FetchTerm(pass, term);
    const auto body = [&](size_t begin, size_t end) {
      AddTerm(pass, index, term, begin, end);
      then(begin, end);
    };
    pass.worker.Share(pass.rows, body, scope);
  };
  const auto norm_next = [&](size_t begin, size_t end) {
    NormForLayer(pass, index + 1, begin, end);
  };
  if (has_mixer) {
    RunMixer(pass, index);
    if (pass.spec.laurel_rank > 0) RunLaurel(pass, index);
    if (!has_mlp) return add(kAttentionTerm, norm_next);
    add(kAttentionTerm, [&](size_t begin, size_t end) {
      if (pass.spec.laurel_rank > 0) AddLaurel(pass, index, begin, end);
      // Side by side, the MLP takes the rows that attention took.
      if (!pass.spec.parts_side_by_side) NormForMlp(pass, layer, begin, end);
    });
  }
  layer.has_experts() ? RunExperts(pass, index) : RunMlp(pass, index);
  const auto finish = [&](size_t begin, size_t end) {
    if (layer.scale) ScaleRows(pass, *layer.scale, begin, end);
    norm_next(begin, end);
  };
  if (pass.spec.layer_inputs.size == 0) return add(kMlpTerm, finish);
  add(kMlpTerm, [&](size_t begin, size_t end) { BeginInput(pass, index, begin, end); });
  RunLayerInput(pass, index);
  pass.worker.Share(pass.rows, [&](size_t begin, size_t end) {
    AddInput(pass, index, begin, end);
    finish(begin, end);
  });
}

// Copies the states of slices from one place to another; those that name none have nothing to copy.
void CopyStates(const ForwardPass& pass, int32_t StepBatch::Slice::*from,
                int32_t StepBatch::Slice::*to) {
  std::vector<std::pair<int32_t, int32_t>> copies;
  for (const StepBatch::Slice& slice : pass.batch.slices)
    if (slice.*from >= 0 && slice.*to >= 0) copies.emplace_back(slice.*from, slice.*to);
  if (copies.empty()) return;
  const TraceSpan span("copy states", "copies", copies.size());
  constexpr size_t kPieces = 64;  // of a state, for many threads
  pass.worker.Share(copies.size() * kPieces, [&](size_t begin, size_t end) {
    for (size_t item = begin; item < end; ++item) {
      const auto [source, target] = copies[item / kPieces];
      const auto [first, last] = SliceOf(pass.states.floats_per_place(), item % kPieces, kPieces);
      std::copy_n(pass.states.All(source) + first, last - first, pass.states.All(target) + first);
    }
  });
}

// Every rank has all of the residual streams: one hands them over.
void GiveRows(const ForwardPass& pass, float* dst) {
  const auto streams = static_cast<size_t>(pass.spec.alt_up.streams);
  const size_t floats = HandoverFloats(pass.spec);
  pass.worker.Share(pass.worker.rank == 0 ? pass.rows : 0, [&](size_t begin, size_t end) {
    for (size_t row = begin; row < end; ++row) {
      if (streams == 0) std::copy_n(pass.residual(row), pass.hidden, dst + row * floats);
      for (size_t stream = 0; stream < streams; ++stream)
        std::copy_n(pass.stream(stream, row), pass.hidden,
                    dst + row * floats + stream * pass.hidden);
    }
  });
}

void TakeRow(const ForwardPass& pass, const float* src, size_t row) {
  src += row * HandoverFloats(pass.spec);
  const auto streams = static_cast<size_t>(pass.spec.alt_up.streams);
  if (streams == 0) std::copy_n(src, pass.hidden, pass.residual(row));
  for (size_t stream = 0; stream < streams; ++stream)
    std::copy_n(src + stream * pass.hidden, pass.hidden, pass.stream(stream, row));
}

// Computes the input of the stage's first layer. taken: the streams of the stage before; null: the
// tokens' embeddings. Inputs of layers, and further streams, are made of embeddings.
void BeginLayers(const ForwardPass& pass, const float* taken) {
  const size_t first = FirstLayer(pass.spec);
  const bool inputs = pass.spec.layer_inputs.size > 0;
  const bool spreads = pass.spec.alt_up.streams > 0 && !taken;
  const bool prepares = inputs || spreads;
  const auto begin_layer = [&](size_t begin, size_t end) {
    for (size_t row = begin; taken && row < end; ++row) TakeRow(pass, taken, row);
    NormForLayer(pass, first, begin, end);
  };
  pass.worker.Share(pass.rows, [&](size_t begin, size_t end) {
    Embed(pass, inputs || !taken, begin, end);
    if (!prepares) return begin_layer(begin, end);
    for (size_t row = begin; row < end; ++row)
      pass.table.store(pass.normed(row), pass.activation, pass.residual(row), pass.hidden);
  });
  if (inputs) ComputeLayerInputs(pass);
  if (spreads) SpreadStreams(pass);
  if (prepares) pass.worker.Share(pass.rows, begin_layer);
}

size_t Index(int i) { return static_cast<size_t>(i); }

}  // namespace

ForwardPass::ForwardPass(LoadedModel& model, const Worker& worker, const StepBatch& batch)
    : model(model),
      spec(model.spec),
      table(*model.table),
      integers(kernels::IntTableFor(model.table->isa)),
      e4m3(kernels::E4m3TableFor(model.table->isa)),
      worker(worker),
      batch(batch),
      weights(model.ranks[Index(worker.rank)].weights),
      cache(model.ranks[Index(worker.rank)].cache),
      states(model.ranks[Index(worker.rank)].states),
      w(model.ranks[Index(worker.rank)].workspace),
      scratch(w.threads[Index(worker.thread)]),
      activation(kernels::ActivationType(model.options.formats.dtype)),
      rows(batch.tokens.size()),
      hidden(static_cast<size_t>(spec.hidden)) {}

void NormRow(const ForwardPass& pass, const NormWeights& norm, void* dst, Dtype dst_type,
             const float* src) {
  const float eps = pass.spec.norm_eps;
  if (!norm.weight) {
    if (dst != src) pass.table.store(dst, dst_type, src, pass.hidden);
  } else if (pass.spec.norm == NormKind::kRms) {
    pass.table.rms_norm(dst, dst_type, src, norm.weight, pass.hidden, eps);
  } else {
    pass.table.layer_norm(dst, dst_type, src, norm.weight, norm.bias, pass.hidden, eps);
  }
}

void RunForward(LoadedModel& model, const Worker& worker, const StepBatch& batch,
                const Handover& handover, const LogitsSink& sink) {
  const ForwardPass pass(model, worker, batch);
  CopyStates(pass, &StepBatch::Slice::begins_from, &StepBatch::Slice::place);
  BeginLayers(pass, handover.taken);
  for (size_t layer = FirstLayer(pass.spec); layer < EndOfLayers(pass.spec); ++layer) {
    RunLayer(pass, layer);
    // No phase: no thread waits for it. All ranks have met since they wrote the layer's keys.
    if (batch.written && worker.rank == 0 && worker.thread == 0) (*batch.written)(layer + 1);
  }
  CopyStates(pass, &StepBatch::Slice::place, &StepBatch::Slice::keeps_in);
  if (handover.given) return GiveRows(pass, handover.given);
  if (pass.spec.alt_up.streams > 0) GatherStreams(pass);
  ComputeLogits(pass, sink);
}

}  // namespace pinion
