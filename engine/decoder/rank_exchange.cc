#include "engine/decoder/rank_exchange.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace pinion {
namespace {

bool Writes(TermKind kind, const LayerWeights& layer) {
  switch (kind) {
    case TermKind::kAttention:
      return layer.o.outputs > 0 || layer.mamba.out.outputs > 0;
    case TermKind::kMlp:
      return layer.down.outputs > 0 || layer.has_experts();
    case TermKind::kExperts:
      return layer.has_experts() && layer.experts.router_norm;
  }
  return false;
}

constexpr TermKind kKinds[] = {TermKind::kAttention, TermKind::kMlp, TermKind::kExperts};

// The last one only if there is anything to exchange.
size_t FetchedKinds(const DecoderSpec& spec) {
  return std::size(kKinds) - (spec.moe.apart ? 0 : 1);
}

float* BufferOf(TermKind kind, const Workspace& w) {
  switch (kind) {
    case TermKind::kAttention:
      return w.attention_partial;
    case TermKind::kMlp:
      return w.mlp_partial;
    case TermKind::kExperts:
      return w.experts.partial;
  }
  return nullptr;
}

}  // namespace

uint64_t RankExchange::Bytes(const DecoderSpec& spec, const DecoderOptions& options,
                             size_t local_ranks) {
  if (!options.communicator) return 0;
  const size_t processes = options.communicator->processes();
  const uint64_t term = options.max_rows * HiddenStride(spec) * kernels::SizeOf(options.wire);
  const uint64_t squares = options.max_rows * RowSums(spec).stride * sizeof(float);
  const bool rounds = options.wire != kernels::Dtype::kF32;  // then its own is copied, too
  return FetchedKinds(spec) * local_ranks * (processes + (rounds ? 1 : 0)) * term +
         processes * squares;
}

Result<RankExchange> RankExchange::Create(const DecoderSpec& spec, const DecoderOptions& options,
                                          std::span<const RankModel> ranks) {
  RankExchange exchange;
  Communicator* const communicator = options.communicator;
  exchange.communicator_ = communicator;
  exchange.wire_ = options.wire;
  const size_t processes = communicator ? communicator->processes() : 1;
  exchange.local_ranks_ = ranks.size();
  exchange.first_rank_ = communicator ? communicator->process() * ranks.size() : 0;
  exchange.hidden_ = static_cast<size_t>(spec.hidden);
  exchange.hidden_stride_ = HiddenStride(spec);
  exchange.row_sums_stride_ = RowSums(spec).stride;
  exchange.row_sums_ = ranks[0].workspace.row_sums;
  const size_t all = processes * ranks.size();
  const RankShares shares = options.SharesOf(static_cast<int>(all));
  for (size_t rank = 0; rank < all; ++rank)
    exchange.shards_.push_back(MakeShard(spec, shares, static_cast<int>(rank)));
  for (const TermKind kind : kKinds) {
    Terms& terms = exchange.terms_[static_cast<size_t>(kind)];
    for (const RankModel& rank : ranks) terms.mine.push_back(BufferOf(kind, rank.workspace));
    terms.of_rank.assign(all, nullptr);
    std::copy(terms.mine.begin(), terms.mine.end(),
              terms.of_rank.begin() + static_cast<ptrdiff_t>(exchange.first_rank_));
  }
  exchange.ShareWhoWrites(ranks);
  if (!communicator) return exchange;
  PINION_ASSIGN(exchange.storage_,
                Pages::Allocate(Bytes(spec, options, ranks.size()), options.memory_of(0)));
  exchange.LayOut(spec, options.max_rows);
  return exchange;
}

void RankExchange::LayOut(const DecoderSpec& spec, size_t max_rows) {
  std::byte* next = storage_.data();
  const size_t term = max_rows * wire_row_bytes();
  const auto take = [&](size_t bytes) { return std::exchange(next, next + bytes); };
  for (size_t kind = 0; kind < FetchedKinds(spec); ++kind) {
    Terms& terms = terms_[kind];
    if (rounds()) {
      terms.sent = take(local_ranks_ * term);
      terms.received = take(ranks() * term);
      continue;
    }
    for (size_t i = 0; i < local_ranks_; ++i)
      terms.fetched.push_back(reinterpret_cast<float*>(take(communicator_->processes() * term)));
  }
  fetched_sums_ = reinterpret_cast<float*>(next);
}

// Whether a rank has a share depends on its weights alone, so it is told once.
void RankExchange::ShareWhoWrites(std::span<const RankModel> here) {
  const size_t layers = here[0].weights.layers.size();
  for (const TermKind kind : kKinds) {
    std::vector<uint8_t> mine, all(layers * ranks());
    for (const RankModel& rank : here)
      for (const LayerWeights& layer : rank.weights.layers) mine.push_back(Writes(kind, layer));
    if (communicator_)
      communicator_->Gather(mine.data(), mine.size(), all.data());
    else
      all = mine;
    auto& written = terms_[static_cast<size_t>(kind)].written;
    written.resize(all.size());
    for (size_t rank = 0; rank < ranks(); ++rank)
      for (size_t layer = 0; layer < layers; ++layer)
        written[layer * ranks() + rank] = all[rank * layers + layer] != 0;
  }
}

void RankExchange::AddShares(const kernels::Table& table, TermKind kind, size_t layer, size_t row,
                             float* dst) const {
  const Terms& terms = terms_[static_cast<size_t>(kind)];
  for (size_t rank = 0; rank < ranks(); ++rank) {
    if (!terms.written[layer * ranks() + rank]) continue;
    if (rounds())
      AddRounded(table, terms.received + (rank * terms.rows + row) * wire_row_bytes(), dst);
    else
      table.add(dst, terms.of_rank[rank] + row * hidden_stride_, hidden_);
  }
}

void RankExchange::AddRounded(const kernels::Table& table, const std::byte* share,
                              float* dst) const {
  constexpr size_t kPiece = 1024;  // 4 KiB: stays in L1
  std::array<float, kPiece> piece;
  for (size_t at = 0; at < hidden_; at += kPiece) {
    const size_t count = std::min(kPiece, hidden_ - at);
    table.convert(reinterpret_cast<std::byte*>(piece.data()), kernels::Dtype::kF32,
                  share + at * kernels::SizeOf(wire_), wire_, count);
    table.add(dst + at, piece.data(), count);
  }
}

void RankExchange::RoundTerm(const kernels::Table& table, TermKind kind, size_t local, size_t rows,
                             size_t begin, size_t end) {
  const Terms& terms = terms_[static_cast<size_t>(kind)];
  for (size_t row = begin; row < end; ++row)
    table.store(terms.sent + (local * rows + row) * wire_row_bytes(), wire_,
                terms.mine[local] + row * hidden_stride_, hidden_stride_);
}

void RankExchange::FetchTerm(TermKind kind, size_t rows) {
  Terms& terms = terms_[static_cast<size_t>(kind)];
  terms.rows = rows;
  const size_t floats = rows * hidden_stride_;
  if (rounds())
    return communicator_->Gather(terms.sent, local_ranks_ * rows * wire_row_bytes(),
                                 terms.received);
  for (size_t local = 0; local < local_ranks_; ++local) {
    float* fetched = terms.fetched[local];
    communicator_->Gather(terms.mine[local], floats * sizeof(float), fetched);
    for (size_t process = 0; process < communicator_->processes(); ++process)
      if (process != communicator_->process())
        terms.of_rank[process * local_ranks_ + local] = fetched + process * floats;
  }
}

// Each head and each block of gates is counted by one rank; elsewhere its place in the buffer is 0.
// So the sums of the processes' values are the values themselves, to the bit.
void RankExchange::FetchRowSums(size_t rows) {
  const size_t floats = rows * row_sums_stride_;
  communicator_->Gather(row_sums_, floats * sizeof(float), fetched_sums_);
  for (size_t process = 1; process < communicator_->processes(); ++process)
    for (size_t i = 0; i < floats; ++i) fetched_sums_[i] += fetched_sums_[process * floats + i];
}

Range RankExchange::Columns(size_t process) const {
  return {shards_[process * local_ranks_].vocabulary.begin,
          shards_[(process + 1) * local_ranks_ - 1].vocabulary.end};
}

void RankExchange::FetchLogits(float* logits, size_t rows, size_t stride) {
  std::vector<size_t> bytes;
  for (size_t process = 0; process < communicator_->processes(); ++process)
    bytes.push_back(rows * Columns(process).size() * sizeof(float));
  bytes[0] = 0;  // the leader's are in place
  packed_logits_.resize(std::accumulate(bytes.begin(), bytes.end(), size_t{0}) / sizeof(float));
  if (leads()) {
    communicator_->GatherAtLeader(nullptr, bytes, packed_logits_.data());
    return UnpackLogits(logits, rows, stride);
  }
  const Range mine = Columns(communicator_->process());
  for (size_t row = 0; row < rows; ++row)
    std::copy_n(logits + row * stride + mine.begin, mine.size(),
                packed_logits_.data() + row * mine.size());
  communicator_->GatherAtLeader(packed_logits_.data(), bytes, nullptr);
}

void RankExchange::UnpackLogits(float* logits, size_t rows, size_t stride) const {
  const float* from = packed_logits_.data();
  for (size_t process = 1; process < communicator_->processes(); ++process) {
    const Range columns = Columns(process);
    for (size_t row = 0; row < rows; ++row, from += columns.size())
      std::copy_n(from, columns.size(), logits + row * stride + columns.begin);
  }
}

}  // namespace pinion
