#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "engine/base/result.h"
#include "engine/run/engine.h"

namespace pinion {

// The link: messages between the front end and the engine process over a unix socket pair, as
// frames of a 32-bit payload length, a type byte and the payload (wire.h).

// Front end -> engine.
struct SubmitMessage {
  uint64_t id = 0;
  SamplingParams params;  // without stop strings: the front end matches those
  std::vector<int32_t> prompt_ids;
};
struct AbortMessage {
  uint64_t id = 0;
};

// Engine -> front end.
struct ReadyMessage {
  uint64_t max_model_len = 0;
  std::string server_info;  // JSON of /server_info
};
struct FailedMessage {  // the engine could not start; it exits after this
  ErrorCode code = ErrorCode::kFailed;
  std::string message;
};
struct RefusedMessage {  // a submitted request can never run
  uint64_t id = 0;
  std::string message;
};
struct EventsMessage {  // all events of one step, and the statistics after it
  std::vector<TokenEvent> events;
  EngineStats stats;
};

using LinkMessage = std::variant<SubmitMessage, AbortMessage, ReadyMessage, FailedMessage,
                                 RefusedMessage, EventsMessage>;

// One frame, header included.
std::string EncodeFrame(const LinkMessage& message);

// Cuts a byte stream into messages.
class FrameReader {
 public:
  void Append(std::string_view bytes) { buffer_.append(bytes); }
  // The next whole message; nullopt if more bytes are needed. kCorrupt: an unknown type, a payload
  // that does not decode exactly, or a length above kMaxPayloadBytes. After that the stream cannot
  // be used any more.
  Result<std::optional<LinkMessage>> Next();

  // 32 MiB of JSON hold at most 16 M token ids of 4 bytes; far above any real message.
  static constexpr uint32_t kMaxPayloadBytes = 128u << 20;

 private:
  std::string buffer_;
  size_t consumed_ = 0;
};

// One end of the link: a non-blocking stream socket with buffers on both sides, so that neither
// process ever waits for the other to read. Owns the descriptor.
// Thread rule: one thread.
class LinkSocket {
 public:
  explicit LinkSocket(int fd);
  ~LinkSocket();
  LinkSocket(const LinkSocket&) = delete;
  LinkSocket& operator=(const LinkSocket&) = delete;

  int fd() const { return fd_; }
  // Reads all bytes that have arrived. False once the other end is gone.
  bool Receive();
  Result<std::optional<LinkMessage>> Next() { return reader_.Next(); }

  // Queues a message and writes as much as the socket takes now. False once the other end is gone.
  bool Send(const LinkMessage& message);
  bool Flush();
  bool has_unsent() const { return sent_ < unsent_.size(); }

 private:
  int fd_;
  FrameReader reader_;
  std::string unsent_;
  size_t sent_ = 0;
};

// The two ends of a new link, both closed on exec.
Result<std::pair<int, int>> MakeLinkPair();

}  // namespace pinion
