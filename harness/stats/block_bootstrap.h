#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "harness/stats/estimate.h"

// The error of a mean whose samples overlap: each was computed from a window of one recorded
// series, so neighbouring windows share rows and a thousand samples are not a thousand
// observations.

namespace pinion::harness {

// One sample, and the row of the series at which its window begins.
struct WindowValue {
  size_t offset = 0;
  double value = 0;
};

struct BlockMean {
  size_t n = 0;               // samples
  double stretches = 0;       // windows that fit into the series side by side
  double mean = 0;            // of the samples
  double standard_error = 0;  // of the mean, for another series of the same kind and length
};

inline constexpr int kBlockResamples = 2000;  // tells a standard error to 1/sqrt(2 * 2000) = 1.6 %

// Mean of `samples` with its error from a moving-block bootstrap: the series of `rows` rows is put
// together anew from blocks of `window_rows` rows that begin anywhere and wrap round at its end; a
// block brings all samples whose windows begin in it. The error is right for windows that resemble
// each other by the rows they share, and a fifth too large for independent ones. The same seed
// gives the same error. Every offset is below `rows`; window_rows >= 1. No samples: all zero.
// Source: Kuensch, The jackknife and the bootstrap for general stationary observations, Annals of
// Statistics 17 (1989); circular as Politis & Romano (1992).
BlockMean MeanByBlocks(std::span<const WindowValue> samples, size_t rows, double window_rows,
                       int resamples = kBlockResamples, uint64_t seed = 1);

// A share is the mean of zeros and ones. The rarer of the two must have come up this often before
// its spread over the series says anything.
inline constexpr double kMinOccurrences = 5;

// How many samples of a share say no more than one independent one: its variance over that of as
// many independent samples, at least 1. nullopt: the rarer value has come up too seldom to tell.
std::optional<double> DesignEffect(const BlockMean& share);

// Independent samples that say as much as these: n / effect, never fewer than the stretches, and no
// more than those if the effect is unknown.
double EffectiveSamples(const BlockMean& share, std::optional<double> design_effect);

// 95 % interval of a share of so many independent samples: Wilson's score interval, which has a
// width at 0 and 1 too. `coverage` is nominal.
// Source: Wilson, JASA 22 (1927); effective samples as Korn & Graubard, Survey Methodology 24
// (1998).
Interval ShareInterval(double share, double samples);

// 95 % interval of any other mean: 1.96 standard errors to each side.
Interval MeanInterval(const BlockMean& mean);

}  // namespace pinion::harness
