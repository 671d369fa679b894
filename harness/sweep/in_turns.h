#pragma once

#include "harness/store/store.h"
#include "harness/trial/trial.h"

namespace pinion::harness {

// Whether both sides of a pair can be measured in turns (RunPair): both are Pinion's, and this
// machine's memory holds both servers by the engine's own count.
bool CanTakeTurns(const TrialRequest& first, const TrialRequest& second);

// How many waves of load each side has between a start and the next, after a trial of one side
// alone: as many as leave room for kTurnRounds rounds in the budget, from 2 to kMostWaves. More of
// them make a round more exact; more rounds, which start the servers anew, show the effect of a
// start.
inline constexpr int kTurnRounds = 14, kMostWaves = 8;
int WavesFor(const TrialRow& alone, double budget_s);

}  // namespace pinion::harness
