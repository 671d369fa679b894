#include "engine/sample/random.h"

namespace pinion {
namespace {

constexpr uint64_t kIncrement = 0x9e3779b97f4a7c15;  // 2^64 / golden ratio, odd

uint64_t Mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

uint64_t At(uint64_t seed, uint64_t index) {
  return Mix(Mix(seed + kIncrement) + kIncrement * (index + 1));
}

}  // namespace

double UniformAt(uint64_t seed, uint64_t index) {
  return static_cast<double>(At(seed, index) >> 11) * 0x1p-53;
}

uint64_t RequestSeed(uint64_t engine_seed, uint64_t request) {
  // Another constant than UniformAt's, so that a request's seed is not one of its own numbers.
  return At(engine_seed ^ 0xd1b54a32d192ed03, request);
}

}  // namespace pinion
