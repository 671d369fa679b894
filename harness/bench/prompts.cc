#include "harness/bench/prompts.h"

#include <cstddef>

namespace pinion::harness {
namespace {

// Steele et al., "Fast splittable pseudorandom number generators", OOPSLA 2014.
uint64_t SplitMix(uint64_t& state) {
  uint64_t z = state += 0x9e3779b97f4a7c15;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

}  // namespace

std::vector<int32_t> RandomPrompt(uint64_t seed, uint64_t stream, uint64_t index, int length,
                                  int vocabulary) {
  uint64_t state = seed;
  state = SplitMix(state) ^ (stream << 32) ^ index;
  std::vector<int32_t> tokens(static_cast<size_t>(length));
  for (int32_t& token : tokens)
    token = static_cast<int32_t>(SplitMix(state) % static_cast<uint64_t>(vocabulary));
  return tokens;
}

}  // namespace pinion::harness
