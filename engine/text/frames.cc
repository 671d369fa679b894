#include "engine/text/frames.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "engine/base/clock.h"
#include "engine/base/strings.h"

namespace pinion {
namespace {

// Waits until the socket is ready for `events`.
Status Await(int fd, short events, int64_t deadline_ns) {
  for (;;) {
    int timeout_ms = -1;
    if (deadline_ns > 0) {
      const int64_t left_ns = deadline_ns - NowNs();
      if (left_ns <= 0) return Fail(ErrorCode::kTimeout, "the other side took too long");
      timeout_ms = static_cast<int>(left_ns / 1'000'000 + 1);
    }
    pollfd ready{fd, events, 0};
    const int count = poll(&ready, 1, timeout_ms);
    if (count > 0) return {};
    if (count < 0 && errno != EINTR)
      return Fail(ErrorCode::kIo, StrCat("cannot poll: ", std::strerror(errno)));
  }
}

Status ReadExactly(int fd, char* dst, size_t size, int64_t deadline_ns) {
  while (size > 0) {
    PINION_TRY(Await(fd, POLLIN, deadline_ns));
    const ssize_t got = recv(fd, dst, size, MSG_DONTWAIT);
    if (got == 0) return Fail(ErrorCode::kIo, "the other side is gone");
    if (got < 0) {
      if (errno == EINTR || errno == EAGAIN) continue;
      return Fail(ErrorCode::kIo, StrCat("cannot read: ", std::strerror(errno)));
    }
    dst += got;
    size -= static_cast<size_t>(got);
  }
  return {};
}

}  // namespace

void AppendFrame(std::string_view body, std::string& dst) {
  for (int shift = 0; shift < 32; shift += 8)
    dst.push_back(static_cast<char>(body.size() >> shift & 0xFF));
  dst += body;
}

size_t FrameBytes(std::string_view header) {
  size_t size = 0;
  for (size_t i = 0; i < kFrameHeaderBytes; ++i)
    size |= size_t{static_cast<unsigned char>(header[i])} << (8 * i);
  return size;
}

Status WriteFrame(int fd, std::string_view body, int64_t deadline_ns) {
  if (body.size() > kMaxFrameBytes)
    return Fail(ErrorCode::kExhausted, StrCat("a message of ", FormatBytes(body.size()),
                                              " is above ", FormatBytes(kMaxFrameBytes)));
  std::string frame;
  AppendFrame(body, frame);
  for (size_t at = 0; at < frame.size();) {
    PINION_TRY(Await(fd, POLLOUT, deadline_ns));
    const ssize_t sent =
        send(fd, frame.data() + at, frame.size() - at, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent < 0) {
      if (errno == EINTR || errno == EAGAIN) continue;
      return Fail(ErrorCode::kIo, StrCat("cannot write: ", std::strerror(errno)));
    }
    at += static_cast<size_t>(sent);
  }
  return {};
}

Result<std::string> ReadFrame(int fd, int64_t deadline_ns) {
  std::array<char, kFrameHeaderBytes> header;
  PINION_TRY(ReadExactly(fd, header.data(), header.size(), deadline_ns));
  const size_t size = FrameBytes({header.data(), header.size()});
  if (size > kMaxFrameBytes)
    return Fail(ErrorCode::kExhausted, StrCat("a message of ", FormatBytes(size), " is above ",
                                              FormatBytes(kMaxFrameBytes)));
  // The buffer grows with the data: a claimed length alone must not cost memory.
  std::string body;
  while (body.size() < size) {
    const size_t at = body.size(), part = std::min<size_t>(size - at, 1 << 20);
    body.resize(at + part);
    PINION_TRY(ReadExactly(fd, body.data() + at, part, deadline_ns));
  }
  return body;
}

}  // namespace pinion
