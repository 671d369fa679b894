#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace pinion {

// Messages between two engines of which one computes prompts for the other. A frame is a header,
// the payload's length and its type, and the payload (engine/base/wire.h); both ends are the same
// binary on machines of the same byte order.

// Facts that both ends must have in common, by name: version, model, types, ranks.
using Facts = std::vector<std::pair<std::string, std::string>>;

// The engine that wants prompts computed -> the one that computes them.
struct HelloMessage {  // the first
  Facts facts;
};
// Compute the KV of all full blocks of `tokens`, whose last token stands behind the last of them.
struct OrderMessage {
  uint64_t id = 0;  // chosen by the sender
  std::vector<int32_t> tokens;
  std::string salt;          // of the prefix cache
  uint32_t first_block = 0;  // blocks before it are not wanted
  int32_t priority = 0;
};
struct CancelMessage {  // it is not wanted any more; nothing answers
  uint64_t id = 0;
};

// Back.
struct WelcomeMessage {      // answers Hello
  std::string refusal;       // why there can be no orders; empty: there can
  uint64_t most_tokens = 0;  // of an order
};
// Of blocks [first, first + n) of one of an order's tables: the bytes [at, at + bytes) of their
// images. Those before `at` have been sent.
struct BlocksMessage {
  uint64_t id = 0;
  uint32_t table = 0, first = 0, at = 0, bytes = 0;
  std::string images;  // [n][bytes]
};
struct StateMessage {  // behind the last full block
  uint64_t id = 0;
  std::string image;
};
struct DoneMessage {  // the last of an order
  uint64_t id = 0;
  std::string error;           // empty: everything has been sent
  uint64_t cached_tokens = 0;  // that it found computed
};

// Said again and again while nothing else is: a process that is stopped keeps its connections.
struct AliveMessage {};

using TransferMessage = std::variant<HelloMessage, OrderMessage, CancelMessage, WelcomeMessage,
                                     BlocksMessage, StateMessage, DoneMessage, AliveMessage>;

struct FrameHeader {
  static constexpr size_t kBytes = 8;
  uint32_t payload_bytes = 0;
  uint32_t type = 0;
};

std::string EncodeTransfer(const TransferMessage& message);  // a frame
FrameHeader DecodeHeader(const char* bytes);                 // FrameHeader::kBytes of them
// Nothing if the payload is not exactly one message of this type.
std::optional<TransferMessage> DecodePayload(uint32_t type, const std::string& payload);

}  // namespace pinion
