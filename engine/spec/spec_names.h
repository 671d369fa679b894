#pragma once

#include <string>
#include <vector>

#include "engine/spec/spec.h"

// What the text and the JSON of `pinion model info` call the parts of a spec.

namespace pinion {

const char* Name(kernels::Activation activation);
const char* Name(NormKind norm);
const char* Name(QkNorm norm);
const char* Name(MixerKind mixer);
const char* Name(MlpKind mlp);

std::string MlpName(const DecoderSpec& spec);  // "silu_gated"
// Which of two parts' norms there are: "before", "after" or "before_and_after".
std::string NormPlaces(const TensorNames& names);
std::vector<std::string> Biases(const DecoderSpec& spec);

// The numbers of a rope that its type reads.
struct RopeNumber {
  const char* name;
  double RopeSpec::*value;
  double neutral;
};
inline constexpr RopeNumber kRopeNumbers[] = {
    {"factor", &RopeSpec::factor, 1},
    {"part", &RopeSpec::part, 1},
    {"original_positions", &RopeSpec::original_positions, 0},
    {"low_freq_factor", &RopeSpec::low_freq_factor, 1},
    {"high_freq_factor", &RopeSpec::high_freq_factor, 1},
    {"beta_fast", &RopeSpec::beta_fast, 32},
    {"beta_slow", &RopeSpec::beta_slow, 1},
    {"product_scale", &RopeSpec::product_scale, 1},
    {"scale", &RopeSpec::scale, 1}};

// Factors of a spec, by their fields' names.
struct SpecMultiplier {
  const char* name;
  float DecoderSpec::*value;
  float neutral;
};
inline constexpr SpecMultiplier kSpecMultipliers[] = {
    {"embedding_multiplier", &DecoderSpec::embedding_multiplier, 1},
    {"residual_multiplier", &DecoderSpec::residual_multiplier, 1},
    {"logit_multiplier", &DecoderSpec::logit_multiplier, 1},
    {"attention_multiplier", &DecoderSpec::attention_multiplier, 1},
    {"mlp_multiplier", &DecoderSpec::mlp_multiplier, 1},
    {"mlp_gate_multiplier", &DecoderSpec::mlp_gate_multiplier, 1},
    {"attention_soft_cap", &DecoderSpec::attention_soft_cap, 0},
    {"logit_soft_cap", &DecoderSpec::logit_soft_cap, 0}};

}  // namespace pinion
