#pragma once

#include <string>
#include <vector>

namespace pinion {

// How queries and keys are rotated by their position (Su et al., arXiv:2104.09864), as in
// config.json. Parameters that the type does not have keep neutral values.
struct RopeSpec {
  std::string type = "default";  // or linear, dynamic, llama3, yarn, longrope, proportional
  int dim = 0;                   // elements rotated at the head's beginning, even
  bool interleaved = false;      // pairs are (2i, 2i + 1), not (i, i + dim / 2)
  double theta = 10000;
  double factor = 1;              // longest sequence / longest one in training
  double original_positions = 0;  // longest sequence in training
  double part = 1;                // proportional: of the pairs, the first; the others have angle 0
  double low_freq_factor = 1, high_freq_factor = 1;  // llama3
  double beta_fast = 32, beta_slow = 1;              // yarn
  bool truncate = true;                              // yarn
  double scale = 1;                                  // multiplies cos and sin (attention factor)
  std::vector<double> wave_factors;  // [dim / 2] or none: each wave is slowed by its own (GGUF)
  double product_scale = 1;          // also multiplies attention's products (DeepSeek's yarn)
  std::vector<double> short_factors, long_factors;  // longrope, [dim / 2]
};

// Angle per position of each pair, [dim / 2], for sequences of up to `longest` tokens. Types that
// depend on the length of a sequence (dynamic, longrope) use the longest one that is served,
// because a cached key cannot be rotated again when its sequence grows.
std::vector<float> RopeFrequencies(const RopeSpec& rope, int longest);
// Which other lengths give the same: "any", "up to 4096", "above 4096", or one alone: "8192".
std::string SameFrequencies(const RopeSpec& rope, int longest);

}  // namespace pinion
