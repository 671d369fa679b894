#include "kernels/kv_gather.h"

#include <algorithm>
#include <cstring>

namespace pinion::kernels {
namespace {

// Most tokens of a block that are copied at a time; their sources lie in as many places.
constexpr size_t kSlots = 64;

// A layout stores `kUnit` bytes of each token side by side, for one step of the reduced dimension
// after the other.
template <size_t kUnit>
void CopyUnits(const std::byte* const* sources, size_t count, size_t steps, size_t step_bytes,
               std::byte* dst) {
  for (size_t step = 0; step < steps; ++step) {
    const size_t at = step * step_bytes;
    for (size_t i = 0; i < count; ++i) std::memcpy(dst + at + i * kUnit, sources[i] + at, kUnit);
  }
}

void CopyScales(const KvGatherArgs& args, const int32_t* positions, size_t count, size_t slot,
                std::byte* dst_block) {
  const size_t scales = args.block_tokens * args.key_dim;  // where they begin
  for (size_t i = 0; i < count; ++i) {
    const auto position = static_cast<size_t>(positions[i]);
    const auto block = static_cast<size_t>(args.block_table[position / args.block_tokens]);
    std::memcpy(
        dst_block + scales + (slot + i) * sizeof(Bf16),
        args.keys + args.strides.At(block) + scales + position % args.block_tokens * sizeof(Bf16),
        sizeof(Bf16));
  }
}

// Tokens `positions` into the slots from `slot` on of one block.
void GatherInto(const KvGatherArgs& args, const int32_t* positions, size_t count, size_t slot,
                std::byte* dst_block) {
  const size_t unit = args.dtype == KvDtype::kF16 ? 2 : 4;
  const size_t steps = args.key_dim * SizeOf(args.dtype) / unit;
  const std::byte* sources[kSlots];
  for (size_t i = 0; i < count; ++i) {
    const auto position = static_cast<size_t>(positions[i]);
    const auto block = static_cast<size_t>(args.block_table[position / args.block_tokens]);
    sources[i] = args.keys + args.strides.At(block) + position % args.block_tokens * unit;
  }
  std::byte* dst = dst_block + slot * unit;
  if (unit == 2)
    CopyUnits<2>(sources, count, steps, args.block_tokens * unit, dst);
  else
    CopyUnits<4>(sources, count, steps, args.block_tokens * unit, dst);
  if (IsScaled(args.dtype)) CopyScales(args, positions, count, slot, dst_block);
}

}  // namespace

void GatherKeys(const KvGatherArgs& args) {
  const size_t block_bytes = KvPlaneBlockBytes(args.dtype, args.block_tokens, args.key_dim);
  for (size_t done = 0; done < args.count;) {
    const size_t slot = done % args.block_tokens;
    const size_t count = std::min({kSlots, args.block_tokens - slot, args.count - done});
    GatherInto(args, args.positions + done, count, slot,
               args.dst + done / args.block_tokens * block_bytes);
    done += count;
  }
}

}  // namespace pinion::kernels
