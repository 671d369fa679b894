#include "engine/decoder/forward.h"

#include "engine/base/trace.h"
#include "engine/decoder/forward_pass.h"

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

// dst += every rank's partial term of one row, and the bias. The order of ranks is always the same:
// float addition is not associative, and all ranks' residuals must stay equal to the bit.
void SumPartials(const ForwardPass& pass, size_t layer, const Term& term, size_t row, float* dst) {
  const RankExchange& exchange = pass.model.exchange;
  for (size_t rank = 0; rank < exchange.ranks(); ++rank)
    if (const float* share = exchange.Term(term.kind, layer, rank))
      pass.table.add(dst, share + row * pass.w.hidden_stride, pass.hidden);
  if (const float* bias = pass.weights.layers[layer].*term.bias)
    pass.table.add(dst, bias, pass.hidden);
}

// All-reduce: every rank adds all ranks' partial terms to its own residual, so that all copies stay
// equal. The phase that wrote the terms spans all ranks, and so does one of the layer's other part,
// which lies between this phase and the next write to the same buffer: nothing else has to be
// waited for.
void AddTerm(const ForwardPass& pass, size_t layer, const Term& term, size_t begin, size_t end) {
  const TraceSpan span("add");
  const NormWeights& post_norm = pass.weights.layers[layer].*term.post_norm;
  const float multiplier = pass.spec.residual_multiplier;
  for (size_t row = begin; row < end; ++row) {
    float* residual = pass.residual(row);
    if (!post_norm.weight && multiplier == 1) {
      SumPartials(pass, layer, term, row, residual);
      continue;
    }
    float* sum = pass.scratch.hidden_row;
    std::fill_n(sum, pass.hidden, 0.0f);
    SumPartials(pass, layer, term, row, sum);
    NormRow(pass, post_norm, sum, Dtype::kF32, sum);
    pass.table.add_scaled(residual, sum, multiplier, pass.hidden);
  }
}

// Fetches the shares of ranks of other processes; those of this one have just been written.
void FetchTerm(const ForwardPass& pass, const Term& term) {
  Fetch(pass, [&](RankExchange& exchange) { exchange.FetchTerm(term.kind, pass.rows); });
}

void RunMixer(const ForwardPass& pass, size_t layer) {
  const MixerKind mixer = pass.spec.layer_specs[layer].mixer;
  if (mixer == MixerKind::kDeltaNet)
    RunDeltaNet(pass, layer);
  else if (mixer == MixerKind::kShortConv)
    RunShortConv(pass, layer);
  else if (mixer == MixerKind::kMamba)
    RunMamba(pass, layer);
  else if (pass.spec.latent.kv_rank > 0)
    RunLatentAttention(pass, layer);
  else
    RunAttention(pass, layer);
}

void ScaleRows(const ForwardPass& pass, float scale, size_t begin, size_t end) {
  for (size_t row = begin; row < end; ++row)
    pass.table.scale(pass.residual(row), scale, pass.hidden);
}

// Takes the normed rows of this layer and leaves those of the next.
void RunLayer(const ForwardPass& pass, size_t index) {
  const auto& layers = pass.weights.layers;
  const LayerWeights& layer = layers[index];
  RunMixer(pass, index);
  FetchTerm(pass, kAttentionTerm);
  pass.worker.Share(pass.rows, [&](size_t begin, size_t end) {
    AddTerm(pass, index, kAttentionTerm, begin, end);
    if (pass.spec.parts_side_by_side) return;  // the MLP takes the rows that attention took
    NormRows(pass, layer.mlp_norm, begin, end);
    if (layer.has_experts()) NormForRouter(pass, layer, begin, end);
  });
  layer.has_experts() ? RunExperts(pass, index) : RunMlp(pass, index);
  FetchTerm(pass, kMlpTerm);
  pass.worker.Share(pass.rows, [&](size_t begin, size_t end) {
    AddTerm(pass, index, kMlpTerm, begin, end);
    if (layer.scale) ScaleRows(pass, *layer.scale, begin, end);
    if (index + 1 < layers.size()) NormRows(pass, layers[index + 1].attention_norm, begin, end);
  });
}

size_t Index(int i) { return static_cast<size_t>(i); }

}  // namespace

ForwardPass::ForwardPass(LoadedModel& model, const Worker& worker, const StepBatch& batch)
    : model(model),
      spec(model.spec),
      table(*model.table),
      integers(kernels::IntTableFor(model.table->isa)),
      worker(worker),
      batch(batch),
      weights(model.weights[Index(worker.rank)]),
      cache(model.caches[Index(worker.rank)]),
      states(model.states[Index(worker.rank)]),
      w(model.workspaces[Index(worker.rank)]),
      scratch(w.threads[Index(worker.thread)]),
      activation(kernels::ActivationType(model.options.dtype)),
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
                const LogitsSink& sink) {
  const ForwardPass pass(model, worker, batch);
  worker.Share(pass.rows, [&](size_t begin, size_t end) {
    Embed(pass, begin, end);
    NormRows(pass, pass.weights.layers[0].attention_norm, begin, end);
  });
  for (size_t layer = 0; layer < pass.weights.layers.size(); ++layer) RunLayer(pass, layer);
  ComputeLogits(pass, sink);
}

}  // namespace pinion
