#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "engine/base/result.h"

namespace pinion {

// Messages between the engine and its chat helper over a stream socket: four bytes of length,
// little-endian, then that many bytes of JSON.

inline constexpr size_t kMaxFrameBytes = size_t{64} << 20;

// `deadline_ns` in NowNs() time, 0 for none. Errors: kExhausted at the deadline or for a frame
// above kMaxFrameBytes, kIo if the other side is gone.
Status WriteFrame(int fd, std::string_view body, int64_t deadline_ns);
Result<std::string> ReadFrame(int fd, int64_t deadline_ns);

}  // namespace pinion
