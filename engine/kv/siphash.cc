#include "engine/kv/siphash.h"

#include <bit>

namespace pinion {
namespace {

struct State {
  uint64_t v0, v1, v2, v3;

  void Round() {
    v0 += v1;
    v2 += v3;
    v1 = std::rotl(v1, 13) ^ v0;
    v3 = std::rotl(v3, 16) ^ v2;
    v0 = std::rotl(v0, 32);
    v2 += v1;
    v0 += v3;
    v1 = std::rotl(v1, 17) ^ v2;
    v3 = std::rotl(v3, 21) ^ v0;
    v2 = std::rotl(v2, 32);
  }

  void Absorb(uint64_t word) {
    v3 ^= word;
    Round();
    Round();
    v0 ^= word;
  }

  uint64_t Squeeze() {
    for (int round = 0; round < 4; ++round) Round();
    return v0 ^ v1 ^ v2 ^ v3;
  }
};

}  // namespace

BlockHash SipHash128(const BlockHash& key, std::span<const uint64_t> words) {
  // "somepseudorandomlygeneratedbytes", the paper's constants; 0xee marks 128-bit output.
  State state{key.high ^ 0x736f6d6570736575, key.low ^ 0x646f72616e646f6d ^ 0xee,
              key.high ^ 0x6c7967656e657261, key.low ^ 0x7465646279746573};
  for (const uint64_t word : words) state.Absorb(word);
  state.Absorb(uint64_t{words.size() * 8} << 56);  // no bytes left over: the length alone
  BlockHash hash;
  state.v2 ^= 0xee;
  hash.low = state.Squeeze();
  state.v1 ^= 0xdd;
  hash.high = state.Squeeze();
  return hash;
}

}  // namespace pinion
