#pragma once

#include <string>
#include <vector>

#include "engine/spec/spec.h"

// The names of a spec's parts in the text and the JSON of `pinion model info`.

namespace pinion {

const char* Name(kernels::Activation activation);
const char* Name(NormKind norm);
const char* Name(QkNorm norm);
const char* Name(MixerKind mixer);
const char* Name(MlpKind mlp);

std::string MlpName(const DecoderSpec& spec);   // "silu_gated"
std::string MlpWords(const DecoderSpec& spec);  // "gated SiLU"
// Which of two parts' norms there are: "before", "after" or "before_and_after".
std::string NormPlaces(const TensorNames& names);
std::vector<std::string> Biases(const DecoderSpec& spec);
// "in every layer", "in 1 of 2 layers".
std::string InLayers(const DecoderSpec& spec, size_t count);
// A number as people write it: "10,000,000", "0.176777".
std::string Plain(double number);

// The numbers that a rope's type reads, with their names in JSON and in text.
struct RopeNumber {
  const char *name, *words;
  double RopeSpec::*value;
  double neutral;
};
inline constexpr RopeNumber kRopeNumbers[] = {
    {"factor", "factor", &RopeSpec::factor, 1},
    {"part", "share of pairs that rotate", &RopeSpec::part, 1},
    {"original_positions", "original length", &RopeSpec::original_positions, 0},
    {"low_freq_factor", "low-frequency factor", &RopeSpec::low_freq_factor, 1},
    {"high_freq_factor", "high-frequency factor", &RopeSpec::high_freq_factor, 1},
    {"beta_fast", "beta fast", &RopeSpec::beta_fast, 32},
    {"beta_slow", "beta slow", &RopeSpec::beta_slow, 1},
    {"product_scale", "attention's factor includes", &RopeSpec::product_scale, 1},
    {"scale", "cos and sin times", &RopeSpec::scale, 1}};

// The factors of a spec, with their names in JSON and in text.
struct SpecMultiplier {
  const char *name, *words;
  float DecoderSpec::*value;
  float neutral;
};
inline constexpr SpecMultiplier kSpecMultipliers[] = {
    {"embedding_multiplier", "embeddings times", &DecoderSpec::embedding_multiplier, 1},
    {"residual_multiplier", "residual branches times", &DecoderSpec::residual_multiplier, 1},
    {"logit_multiplier", "logits times", &DecoderSpec::logit_multiplier, 1},
    {"attention_multiplier", "attention's output times", &DecoderSpec::attention_multiplier, 1},
    {"mlp_multiplier", "the MLP's output times", &DecoderSpec::mlp_multiplier, 1},
    {"mlp_gate_multiplier", "the MLP's gate times", &DecoderSpec::mlp_gate_multiplier, 1},
    {"attention_soft_cap", "attention scores capped at", &DecoderSpec::attention_soft_cap, 0},
    {"logit_soft_cap", "logits capped at", &DecoderSpec::logit_soft_cap, 0}};

}  // namespace pinion
