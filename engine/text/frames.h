#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "engine/base/result.h"

namespace pinion {

// Messages between the engine and its helpers over a stream socket: four bytes of length,
// little-endian, then that many bytes of JSON.

inline constexpr size_t kFrameHeaderBytes = 4;
inline constexpr size_t kMaxFrameBytes = size_t{64} << 20;

// One message, for senders and receivers that do not wait.
void AppendFrame(std::string_view body, std::string& dst);
// The length of the body that follows these first kFrameHeaderBytes.
size_t FrameBytes(std::string_view header);

// `deadline_ns` in NowNs() time, 0 for none. Errors: kExhausted at the deadline or for a frame
// above kMaxFrameBytes, kIo if the other side is gone.
Status WriteFrame(int fd, std::string_view body, int64_t deadline_ns);
Result<std::string> ReadFrame(int fd, int64_t deadline_ns);

}  // namespace pinion
