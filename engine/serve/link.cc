#include "engine/serve/link.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "engine/base/strings.h"
#include "engine/sample/wire.h"

namespace pinion {

// Found by argument-dependent look-up from wire.h's templates, hence outside the anonymous
// namespace. `archive` reads or writes.
template <typename Archive>
void Fields(Archive& archive, TokenEvent& e) {
  archive(e.request, e.has_token, e.finish, e.prompt_tokens, e.cached_tokens, e.output_tokens,
          e.preemptions, e.arrived_ns, e.scheduled_ns, e.first_token_ns, e.now_ns, e.rated_prompt);
  if (e.has_token) archive(e.token);
  if (e.finish == FinishReason::kAborted) archive(e.error);
  if (e.finish == FinishReason::kLength) archive(e.pooled);
}
template <typename Archive>
void Fields(Archive& archive, Traffic& t) {
  archive(t.calls, t.delays, t.bytes, t.seconds);
}
template <typename Archive>
void Fields(Archive& archive, StepWork& w) {
  archive(w.tokens, w.seconds, w.least.weight_bytes, w.least.kv_bytes, w.least.flops,
          w.least.int8_ops, w.steps, w.exchanged);
}
template <typename Archive>
void Fields(Archive& archive, EngineStats& s) {
  archive(s.scheduler.waiting, s.scheduler.running, s.scheduler.preemptions, s.scheduler.finished,
          s.scheduler.steps_over_bound, s.scheduler.bounded_steps, s.scheduler.bound_s,
          s.kv.prefix_query_tokens, s.kv.prefix_hit_tokens, s.kv.evictions, s.blocks_used,
          s.blocks_total, s.steps, s.prompt_tokens, s.output_tokens, s.prefill, s.decode,
          s.shared_kv_bytes, s.waited_s, s.traffic, s.transfer.orders, s.transfer.failed,
          s.transfer.given_tokens, s.transfer.taken_tokens, s.transfer.bytes);
}
template <typename Archive>
void Fields(Archive& archive, Grammar& grammar) {
  archive(grammar.kind, grammar.text);
}
template <typename Archive>
void Fields(Archive& archive, SubmitMessage& m) {
  archive(m.id, m.count, m.priority, m.prompt_only, m.cache_salt, m.params, m.prompt_ids, m.grammar,
          m.pool, m.types);
}
template <typename Archive>
void Fields(Archive& archive, AbortMessage& m) {
  archive(m.id, m.count);
}
template <typename Archive>
void Fields(Archive& archive, PingMessage& m) {
  archive(m.number);
}
template <typename Archive>
void Fields(Archive& archive, ProfileMessage& m) {
  archive(m.path);
}
template <typename Archive>
void Fields(Archive&, InfoRequestMessage&) {}
template <typename Archive>
void Fields(Archive&, ResetCacheMessage&) {}
template <typename Archive>
void Fields(Archive& archive, CacheResetMessage& m) {
  archive(m.whole);
}
template <typename Archive>
void Fields(Archive& archive, ReadyMessage& m) {
  archive(m.max_model_len, m.kv_tokens, m.max_num_seqs, m.server_info);
}
template <typename Archive>
void Fields(Archive& archive, FailedMessage& m) {
  archive(m.code, m.message);
}
template <typename Archive>
void Fields(Archive& archive, RefusedMessage& m) {
  archive(m.id, m.message);
}
template <typename Archive>
void Fields(Archive& archive, EventsMessage& m) {
  archive(m.events, m.stats);
}
template <typename Archive>
void Fields(Archive& archive, PongMessage& m) {
  archive(m.number);
}
template <typename Archive>
void Fields(Archive& archive, ProfiledMessage& m) {
  archive(m.error);
}
template <typename Archive>
void Fields(Archive& archive, InfoMessage& m) {
  archive(m.server_info);
}

namespace {

constexpr size_t kHeaderBytes = sizeof(uint32_t) + 1;

// An enumeration that came over the wire may hold any bits.
bool InRange(const LinkMessage& message) {
  if (const auto* failed = std::get_if<FailedMessage>(&message))
    return failed->code >= ErrorCode::kUsage && failed->code <= ErrorCode::kFailed;
  if (const auto* batch = std::get_if<EventsMessage>(&message)) {
    for (const TokenEvent& event : batch->events)
      if (event.finish < FinishReason::kNone || event.finish > FinishReason::kAborted) return false;
  }
  return true;
}

Result<LinkMessage> Finish(LinkMessage message, const WireReader& reader) {
  if (!reader.ok() || !reader.at_end() || !InRange(message))
    return Fail(ErrorCode::kCorrupt, StrCat("link message of type ", message.index(),
                                            " does not decode; the link is broken"));
  return message;
}

template <size_t I>
Result<LinkMessage> DecodeAs(std::string_view payload) {
  std::variant_alternative_t<I, LinkMessage> message;
  WireReader reader(payload);
  Fields(reader, message);
  return Finish(std::move(message), reader);
}

template <size_t... I>
Result<LinkMessage> Decode(size_t type, std::string_view payload, std::index_sequence<I...>) {
  static constexpr std::array kDecoders = {&DecodeAs<I>...};
  if (type >= kDecoders.size())
    return Fail(ErrorCode::kCorrupt, StrCat("link message has type ", type, ", want at most ",
                                            kDecoders.size() - 1, "; the link is broken"));
  return kDecoders[type](payload);
}

}  // namespace

std::string EncodeFrame(const LinkMessage& message) {
  WireWriter writer;
  writer(uint32_t{0}, static_cast<uint8_t>(message.index()));
  std::visit([&](const auto& alternative) { writer(alternative); }, message);
  std::string frame = writer.bytes();
  const auto payload = static_cast<uint32_t>(frame.size() - kHeaderBytes);
  std::memcpy(frame.data(), &payload, sizeof payload);
  return frame;
}

std::vector<EventsMessage> Divide(EventsMessage step, size_t most_bytes) {
  const auto bytes_of_token = [](const SampledToken& token) {
    return 32 + token.top.size() * (sizeof(int32_t) + sizeof(double));
  };
  std::vector<EventsMessage> parts;
  size_t bytes = 0;
  for (TokenEvent& event : step.events) {
    size_t more = 128 + bytes_of_token(event.token) + event.pooled.size() * sizeof(float);
    for (const SampledToken& token : event.rated_prompt) more += bytes_of_token(token);
    if (parts.empty() || bytes + more > most_bytes) {
      parts.push_back({{}, step.stats});
      bytes = 0;
    }
    parts.back().events.push_back(std::move(event));
    bytes += more;
  }
  if (parts.empty()) parts.push_back(std::move(step));
  return parts;
}

Result<std::optional<LinkMessage>> FrameReader::Next() {
  const std::string_view rest = std::string_view(buffer_).substr(consumed_);
  if (rest.size() < kHeaderBytes) return std::nullopt;
  uint32_t payload = 0;
  std::memcpy(&payload, rest.data(), sizeof payload);
  if (payload > kMaxPayloadBytes)
    return Fail(ErrorCode::kCorrupt,
                StrCat("link message claims ", payload, " bytes; the link is broken"));
  if (rest.size() < kHeaderBytes + payload) return std::nullopt;
  auto message =
      Decode(static_cast<uint8_t>(rest[sizeof payload]), rest.substr(kHeaderBytes, payload),
             std::make_index_sequence<std::variant_size_v<LinkMessage>>());
  consumed_ += kHeaderBytes + payload;
  // Erased once they are the larger half, consumed bytes cost at most as many moved ones.
  if (consumed_ > buffer_.size() / 2) {
    moved_bytes_ += buffer_.size() - consumed_;
    buffer_.erase(0, consumed_);
    consumed_ = 0;
  }
  if (!message) return Unexpected(std::move(message).error());
  return std::optional<LinkMessage>(std::move(*message));
}

LinkSocket::LinkSocket(int fd) : fd_(fd) {
  fcntl(fd_, F_SETFL, fcntl(fd_, F_GETFL) | O_NONBLOCK);
  fcntl(fd_, F_SETFD, FD_CLOEXEC);
}

LinkSocket::~LinkSocket() { close(fd_); }

bool LinkSocket::Receive() {
  char chunk[64 << 10];
  for (;;) {
    const ssize_t got = recv(fd_, chunk, sizeof chunk, 0);
    if (got > 0) {
      // A short read means the socket is empty for now: no second call just to see EAGAIN.
      reader_.Append({chunk, static_cast<size_t>(got)});
      if (static_cast<size_t>(got) < sizeof chunk) return true;
    } else if (got == 0 || (errno != EINTR && errno != EAGAIN)) {
      return false;
    } else if (errno == EAGAIN) {
      return true;
    }
  }
}

bool LinkSocket::Send(const LinkMessage& message) {
  unsent_.push_back(EncodeFrame(message));
  return Flush();
}

bool LinkSocket::Flush() {
  // EAGAIN keeps the rest for the next Flush, so that a slow reader never blocks this process.
  while (has_unsent()) {
    std::array<iovec, 16> parts;  // that many frames a call: one step's events are one frame
    const size_t count = std::min(parts.size(), unsent_.size());
    for (size_t i = 0; i < count; ++i) parts[i] = {unsent_[i].data(), unsent_[i].size()};
    parts[0] = {unsent_[0].data() + sent_, unsent_[0].size() - sent_};
    msghdr call{};
    call.msg_iov = parts.data();
    call.msg_iovlen = count;
    const ssize_t put = sendmsg(fd_, &call, MSG_NOSIGNAL);
    if (put >= 0)
      DropSent(static_cast<size_t>(put));
    else if (errno == EAGAIN)
      break;
    else if (errno != EINTR)
      return false;
  }
  return true;
}

void LinkSocket::DropSent(size_t bytes) {
  sent_ += bytes;
  while (has_unsent() && sent_ >= unsent_.front().size()) {
    sent_ -= unsent_.front().size();
    unsent_.pop_front();
  }
}

Result<std::pair<int, int>> MakeLinkPair() {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
    return Fail(ErrorCode::kIo, StrCat("cannot make a socket pair: ", std::strerror(errno)));
  return std::pair{ends[0], ends[1]};
}

}  // namespace pinion
