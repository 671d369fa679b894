#pragma once

#include <cstdint>
#include <deque>
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
// A prompt and `count` choices for it: ids id, id + 1, ...; a seed grows by one with each.
struct SubmitMessage {
  uint64_t id = 0;
  uint32_t count = 1;
  int32_t priority = 0;      // lower goes first
  bool prompt_only = false;  // nothing is generated: the prompt alone is rated, once
  std::string cache_salt;
  SamplingParams params;  // without stop strings: the front end matches those
  std::vector<int32_t> prompt_ids;
  std::optional<Grammar> grammar = {};  // of the choices' output
  bool pool = false;                    // see Request
  std::vector<int32_t> types = {};      // likewise
};
struct AbortMessage {
  uint64_t id = 0;
  uint32_t count = 1;
};
struct PingMessage {  // answered between two steps by a PongMessage with the same number
  uint64_t number = 0;
};
struct ProfileMessage {  // starts recording spans for this file; empty: stops and writes them
  std::string path;
};
struct InfoRequestMessage {};  // answered by InfoMessage
struct ResetCacheMessage {};   // drops cached prefixes; answered by CacheResetMessage

// Engine -> front end.
struct ReadyMessage {
  uint64_t max_model_len = 0;
  uint64_t kv_tokens = 0;     // that the KV cache holds
  uint64_t max_num_seqs = 0;  // that run at once
  std::string server_info;    // JSON of /server_info
};
struct FailedMessage {  // the engine could not start; it exits after this
  ErrorCode code = ErrorCode::kFailed;
  std::string message;
};
struct RefusedMessage {  // a submitted prompt can never run: none of its choices lives
  uint64_t id = 0;
  std::string message;
};
struct EventsMessage {  // events of one step (Divide), and the statistics after it
  std::vector<TokenEvent> events;
  EngineStats stats;
};
struct PongMessage {
  uint64_t number = 0;
};
struct ProfiledMessage {  // the engine's spans are written, or why they are not
  std::string error;
};
struct InfoMessage {
  std::string server_info;
};

struct CacheResetMessage {
  bool whole = false;  // false: sequences that run keep their blocks, and others may find those
};

using LinkMessage =
    std::variant<SubmitMessage, AbortMessage, PingMessage, ProfileMessage, InfoRequestMessage,
                 ReadyMessage, FailedMessage, RefusedMessage, EventsMessage, PongMessage,
                 ProfiledMessage, InfoMessage, ResetCacheMessage, CacheResetMessage>;

// One frame, header included.
std::string EncodeFrame(const LinkMessage& message);
// A step's events in as many messages as it takes for none to have more than about so many bytes,
// unless a single event has: clients decide how many alternatives of each token are told.
std::vector<EventsMessage> Divide(EventsMessage step, size_t most_bytes);

// Cuts a byte stream into messages.
class FrameReader {
 public:
  void Append(std::string_view bytes) { buffer_.append(bytes); }
  // The next whole message; nullopt if more bytes are needed. kCorrupt: an unknown type, a payload
  // that does not decode exactly, or a length above kMaxPayloadBytes. After that the stream cannot
  // be used any more.
  Result<std::optional<LinkMessage>> Next();

  // Bytes that were copied to the front of the buffer so far: never more than were appended.
  size_t moved_bytes() const { return moved_bytes_; }

  // 32 MiB of JSON hold at most 16 M token ids of 4 bytes; far above any real message.
  static constexpr uint32_t kMaxPayloadBytes = 128u << 20;

 private:
  std::string buffer_;
  size_t consumed_ = 0, moved_bytes_ = 0;
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
  bool has_unsent() const { return !unsent_.empty(); }

 private:
  void DropSent(size_t bytes);

  int fd_;
  FrameReader reader_;
  std::deque<std::string> unsent_;  // frames, so that sending moves nothing
  size_t sent_ = 0;                 // bytes of the first one
};

// The two ends of a new link, both closed on exec.
Result<std::pair<int, int>> MakeLinkPair();

}  // namespace pinion
