#include "engine/weights/expert_packer.h"

#include <algorithm>

namespace pinion {
namespace {

using kernels::kBlockN;

// Outputs of block `index` of a matrix whose outputs are `all`.
Range BlockOf(Range all, size_t index) {
  const size_t begin = all.begin + index * kBlockN;
  return {begin, std::min(begin + kBlockN, all.end)};
}

// The expert, matrix and outputs that a block of `in` holds.
struct InBlock {
  size_t expert;
  ExpertMatrix matrix;  // even blocks are gate's, odd ones up's; without gates all are up's
  Range outputs;
};
InBlock Locate(const ExpertWeights& experts, Range share, size_t block) {
  const size_t within = block % experts.in_blocks;
  const bool is_gate = within % experts.unit + 1 < experts.unit;
  return {block / experts.in_blocks, is_gate ? ExpertMatrix::kGate : ExpertMatrix::kUp,
          BlockOf(share, within / experts.unit)};
}

Range DownOutputs(const ExpertWeights& experts, size_t block) {
  const Range hidden{0, experts.router.k};
  return BlockOf(hidden, block % experts.down_blocks);
}

}  // namespace

void PackExpertIn(const PlainExperts& plain, Range share, const ExpertWeights& experts,
                  size_t block, std::byte* dst, ExpertScratch& scratch) {
  const InBlock at = Locate(experts, share, block);
  const Range inputs{0, experts.in.k};
  if (experts.in.integers)
    plain.PackIntegers(at.matrix, at.expert, at.outputs, inputs, *experts.in.integers, dst,
                       scratch);
  else
    plain.Pack(at.matrix, at.expert, at.outputs, inputs, experts.in.dtype, dst, scratch);
}

void PackExpertDown(const PlainExperts& plain, Range share, const ExpertWeights& experts,
                    size_t block, std::byte* dst, ExpertScratch& scratch) {
  const size_t expert = block / experts.down_blocks;
  const Range outputs = DownOutputs(experts, block);
  if (experts.down.integers)
    plain.PackIntegers(ExpertMatrix::kDown, expert, outputs, share, *experts.down.integers, dst,
                       scratch);
  else
    plain.Pack(ExpertMatrix::kDown, expert, outputs, share, experts.down.dtype, dst, scratch);
}

void PackExperts(const PlainExperts& plain, Range share, const Worker& worker,
                 const ExpertWeights& experts) {
  if (share.size() == 0) return;
  ExpertScratch scratch;
  const auto [in_begin, in_end] = BlocksOf(worker, experts.in, experts.unit);
  for (size_t block = in_begin; block < in_end; ++block) {
    PackExpertIn(plain, share, experts, block, experts.in.data + block * experts.in.block_bytes(),
                 scratch);
    const InBlock at = Locate(experts, share, block);
    plain.Release(at.matrix, at.expert, at.outputs);
    progress::Advance();
  }
  const auto [begin, end] = BlocksOf(worker, experts.down);
  for (size_t block = begin; block < end; ++block) {
    PackExpertDown(plain, share, experts, block,
                   experts.down.data + block * experts.down.block_bytes(), scratch);
    plain.Release(ExpertMatrix::kDown, block / experts.down_blocks, DownOutputs(experts, block));
    progress::Advance();
  }
}

void FillExpertBiases(const PlainExperts& plain, Range share, const ExpertWeights& experts) {
  for (size_t expert = 0; expert < plain.count(); ++expert) {
    for (size_t b = 0; experts.in_bias && b < experts.in_blocks; ++b) {
      const size_t block = expert * experts.in_blocks + b;
      const InBlock at = Locate(experts, share, block);
      plain.ReadBias(at.matrix, expert, at.outputs, experts.in_bias + block * kBlockN);
    }
    const size_t hidden = experts.router.k;
    if (experts.down_bias)
      plain.ReadBias(ExpertMatrix::kDown, expert, {0, hidden}, experts.down_bias + expert * hidden);
  }
}

}  // namespace pinion
