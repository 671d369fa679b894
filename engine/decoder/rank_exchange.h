#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/base/result.h"
#include "engine/comm/communicator.h"
#include "engine/decoder/decoder.h"
#include "engine/decoder/rank_model.h"
#include "engine/host/memory.h"
#include "engine/spec/spec.h"
#include "kernels/kernels.h"

namespace pinion {

// Terms that a layer adds to the residual stream, each a sum over all ranks: one for each part, and
// one of experts that stand apart from their layer's other MLP.
enum class TermKind { kAttention, kMlp, kExperts };

// The data that a process's ranks read of each other, and of those in other processes. Ranks of one
// process read each other's buffers where they are; the others' are fetched first, by one thread,
// in a phase that spans the process's ranks. If all ranks are in this process, nothing is fetched.
//
// If terms cross in a type narrower than float32, every rank's term is rounded to it, those of this
// process's ranks included: all processes add the same numbers.
class RankExchange {
 public:
  // options.communicator: null if this process is alone, else all its processes have as many ranks
  // each. ranks: of this process, with weights and workspaces, which stay where they are.
  static Result<RankExchange> Create(const DecoderSpec& spec, const DecoderOptions& options,
                                     std::span<const RankModel> ranks);
  // Bytes that it takes beside the workspaces, in the memory of this process's first rank.
  static uint64_t Bytes(const DecoderSpec& spec, const DecoderOptions& options, size_t local_ranks);

  bool spread() const { return communicator_ != nullptr; }  // over several processes
  bool rounds() const { return spread() && wire_ != kernels::Dtype::kF32; }
  bool leads() const { return !communicator_ || communicator_->process() == 0; }
  size_t ranks() const { return shards_.size(); }    // of all processes
  size_t first_rank() const { return first_rank_; }  // of this process
  const Shard& shard(size_t rank) const { return shards_[rank]; }

  const Pages& storage() const { return storage_; }  // of the fetched data, but logits

  // dst[hidden] += every rank's share of one row of a layer's term, in the order of ranks.
  void AddShares(const kernels::Table& table, TermKind kind, size_t layer, size_t row,
                 float* dst) const;
  // Workspace::row_sums: the buffer that this process's ranks write theirs to, and that of all
  // ranks.
  float* own_row_sums() const { return row_sums_; }
  const float* row_sums() const { return spread() ? fetched_sums_ : row_sums_; }

  // If it rounds, before FetchTerm: rows [begin, end) of the `rows` of the term of this process's
  // rank `local`, as they are sent.
  void RoundTerm(const kernels::Table& table, TermKind kind, size_t local, size_t rows,
                 size_t begin, size_t end);
  // Fetch what other processes' ranks have just written: `rows` of a term, of the sums of squares,
  // and, for process 0 alone, of the logits, [rows][stride]: each process has written its columns.
  void FetchTerm(TermKind kind, size_t rows);
  void FetchRowSums(size_t rows);
  void FetchLogits(float* logits, size_t rows, size_t stride);

 private:
  struct Terms {
    std::vector<bool> written;          // [layers][ranks]
    std::vector<const float*> mine;     // of this process's ranks
    std::vector<const float*> of_rank;  // of all; those of others lie in `fetched`
    std::vector<float*> fetched;        // by local rank: [processes][rows][hidden_stride]
    // If it rounds, in its place: this process's, [local ranks][rows][hidden_stride] of the wire's
    // type, and those of all, [ranks][rows][hidden_stride].
    std::byte *sent = nullptr, *received = nullptr;
    size_t rows = 0;  // of those
  };
  size_t wire_row_bytes() const { return hidden_stride_ * kernels::SizeOf(wire_); }
  // The columns of the vocabulary of one process.
  Range Columns(size_t process) const;
  void ShareWhoWrites(std::span<const RankModel> here);
  void LayOut(const DecoderSpec& spec, size_t max_rows);
  void AddRounded(const kernels::Table& table, const std::byte* share, float* dst) const;
  void UnpackLogits(float* logits, size_t rows, size_t stride) const;

  Communicator* communicator_ = nullptr;
  kernels::Dtype wire_ = kernels::Dtype::kF32;
  size_t local_ranks_ = 1, first_rank_ = 0, hidden_ = 0, hidden_stride_ = 0, row_sums_stride_ = 0;
  std::vector<Shard> shards_;  // of all ranks
  std::array<Terms, 3> terms_;
  Pages storage_;
  float *row_sums_ = nullptr, *fetched_sums_ = nullptr;
  std::vector<float> packed_logits_;
};

}  // namespace pinion
