#pragma once

#include <random>
#include <string>

#include "engine/base/result.h"

namespace pinion::harness {

// The distribution of the number of tokens of prompts or answers.
struct Lengths {
  enum class Kind { kFixed, kLogNormal, kUniform };
  Kind kind = Kind::kFixed;
  double a = 256;  // fixed: the length; lognormal: the median; uniform: the least
  double b = 0;    // lognormal: the standard deviation of the logarithm; uniform: the most

  bool operator==(const Lengths&) const = default;
  static Lengths Fixed(int tokens) { return {Kind::kFixed, static_cast<double>(tokens), 0}; }
  int Draw(std::mt19937_64& random) const;  // from 1 to kMaxLength
  double Median() const;
  double High() const;       // few are longer: the 98th percentile at least
  std::string Text() const;  // in the form that ParseLengths reads
};

inline constexpr int kMaxLength = 1 << 20;  // tokens; catches mistaken units

// "256", "lognormal:256,0.5" (median, sigma of the logarithm) or "uniform:64,512"; the error
// (kUsage) names `what` and these forms.
Result<Lengths> ParseLengths(std::string_view text, std::string_view what);

}  // namespace pinion::harness
