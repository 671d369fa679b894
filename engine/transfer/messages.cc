#include "engine/transfer/messages.h"

#include <cstring>

#include "engine/base/wire.h"

namespace pinion {

// Found by argument-dependent look-up, hence outside the anonymous namespace.
template <typename Archive>
void Fields(Archive& archive, HelloMessage& m) {
  archive(m.facts);
}
template <typename Archive>
void Fields(Archive& archive, OrderMessage& m) {
  archive(m.id, m.tokens, m.salt, m.first_block, m.priority);
}
template <typename Archive>
void Fields(Archive& archive, CancelMessage& m) {
  archive(m.id);
}
template <typename Archive>
void Fields(Archive& archive, WelcomeMessage& m) {
  archive(m.refusal, m.most_tokens);
}
template <typename Archive>
void Fields(Archive& archive, BlocksMessage& m) {
  archive(m.id, m.table, m.first, m.at, m.bytes, m.images);
}
template <typename Archive>
void Fields(Archive& archive, StateMessage& m) {
  archive(m.id, m.image);
}
template <typename Archive>
void Fields(Archive& archive, DoneMessage& m) {
  archive(m.id, m.error, m.cached_tokens);
}
template <typename Archive>
void Fields(Archive&, AliveMessage&) {}

namespace {

// So that a stranger's bytes are told from ours: the upper half of every type.
constexpr uint32_t kMark = 0x504b0000;  // "PK"

template <size_t index = 0>
std::optional<TransferMessage> DecodeAs(size_t wanted, const std::string& payload) {
  if constexpr (index < std::variant_size_v<TransferMessage>) {
    if (wanted != index) return DecodeAs<index + 1>(wanted, payload);
    std::variant_alternative_t<index, TransferMessage> message;
    WireReader reader(payload);
    reader(message);
    if (!reader.ok() || !reader.at_end()) return std::nullopt;
    return message;
  } else {
    return std::nullopt;
  }
}

}  // namespace

std::string EncodeTransfer(const TransferMessage& message) {
  WireWriter writer;
  std::visit([&](const auto& one) { writer(one); }, message);
  const FrameHeader header{static_cast<uint32_t>(writer.bytes().size()),
                           kMark | static_cast<uint32_t>(message.index())};
  std::string frame(FrameHeader::kBytes, '\0');
  std::memcpy(frame.data(), &header, FrameHeader::kBytes);
  return frame += writer.bytes();
}

FrameHeader DecodeHeader(const char* bytes) {
  FrameHeader header;
  std::memcpy(&header, bytes, FrameHeader::kBytes);
  return header;
}

std::optional<TransferMessage> DecodePayload(uint32_t type, const std::string& payload) {
  if ((type & ~0xffffu) != kMark) return std::nullopt;
  return DecodeAs(type & 0xffff, payload);
}

}  // namespace pinion
