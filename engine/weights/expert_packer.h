#pragma once

#include "engine/host/team.h"
#include "engine/weights/plain_experts.h"
#include "engine/weights/weights.h"

namespace pinion {

// Packs one block of ExpertWeights::in or ::down, which need not be prepacked, to dst.
//   share  the rank's columns of every expert
//   block  within the whole matrix: expert * in_blocks + ..., expert * down_blocks + ...
void PackExpertIn(const PlainExperts& plain, Range share, const ExpertWeights& experts,
                  size_t block, std::byte* dst, ExpertScratch& scratch);
void PackExpertDown(const PlainExperts& plain, Range share, const ExpertWeights& experts,
                    size_t block, std::byte* dst, ExpertScratch& scratch);

// Packs this worker's part of all experts: as many blocks as every other thread of its rank.
void PackExperts(const PlainExperts& plain, Range share, const Worker& worker,
                 const ExpertWeights& experts);

// Fills in_bias and down_bias if there are any. Called by one thread.
void FillExpertBiases(const PlainExperts& plain, Range share, const ExpertWeights& experts);

}  // namespace pinion
