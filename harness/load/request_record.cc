#include "harness/load/request_record.h"

#include "engine/base/check.h"
#include "engine/base/strings.h"

namespace pinion::harness {
namespace {

constexpr int64_t kNsPerUs = 1000;
constexpr int kBitsPerByte = 7, kMostBits = 63;  // of a number in a blob
constexpr unsigned kMore = 0x80;                 // another byte of the number follows

void AppendNumber(uint64_t number, std::string& packed) {
  for (; number >= kMore; number >>= kBitsPerByte)
    packed.push_back(static_cast<char>((number & (kMore - 1)) | kMore));
  packed.push_back(static_cast<char>(number));
}

}  // namespace

std::string PackTimes(std::span<const int64_t> times_ns, int64_t origin_ns) {
  std::string packed;
  int64_t before_us = 0;
  for (const int64_t time_ns : times_ns) {
    const int64_t time_us = (time_ns - origin_ns) / kNsPerUs;
    CHECK(time_us >= before_us) << time_ns << " ns after a later time, or before " << origin_ns;
    AppendNumber(static_cast<uint64_t>(time_us - before_us), packed);
    before_us = time_us;
  }
  return packed;
}

Result<std::vector<int64_t>> UnpackTimes(std::string_view packed, int64_t origin_ns) {
  std::vector<int64_t> times_ns;
  int64_t gap_us = 0, time_ns = origin_ns;
  int bits = 0;
  for (const char byte : packed) {
    const auto value = static_cast<unsigned char>(byte);
    // Ten bytes would be 70 bits.
    if (bits + kBitsPerByte > kMostBits)
      return Fail(ErrorCode::kFailed, "a time of a token has more than 63 bits");
    gap_us |= static_cast<int64_t>(value & (kMore - 1)) << bits;
    bits += kBitsPerByte;
    if (value & kMore) continue;
    if (__builtin_mul_overflow(gap_us, kNsPerUs, &gap_us) ||
        __builtin_add_overflow(time_ns, gap_us, &time_ns))
      return Fail(ErrorCode::kFailed, "a time of a token has more than 63 bits");
    times_ns.push_back(time_ns);
    gap_us = bits = 0;
  }
  if (bits != 0)
    return Fail(ErrorCode::kFailed, StrCat("the times of tokens break off after ", times_ns.size(),
                                           " tokens, within a number"));
  return times_ns;
}

}  // namespace pinion::harness
