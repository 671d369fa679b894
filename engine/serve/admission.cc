#include "engine/serve/admission.h"

#include <algorithm>

#include "engine/base/strings.h"

namespace pinion {
namespace {

using Room = SharedCount::Room;

Admission::Rejection TooManyChoices(const SharedCount& choices, const std::string& client,
                                    Room room) {
  return {"max_num_queued_reqs",
          room == Room::kNone
              ? StrCat("the server is busy: ", choices.total(), " choices wait or run, of ",
                       choices.limit(), " (--max-num-queued-reqs); try again later")
              : StrCat("this client has ", choices.of(client), " choices that wait or run, of ",
                       choices.client_limit(), " for one client, half of all ", choices.limit(),
                       " (--max-num-queued-reqs); try again later")};
}

Admission::Rejection TooManyTokens(const SharedCount& tokens, const std::string& client, Room room,
                                   size_t more) {
  return {
      "max_num_queued_tokens",
      room == Room::kNone
          ? StrCat("the server is busy: ", tokens.total(),
                   " prompt tokens wait and this request has ", more, " more, of ", tokens.limit(),
                   " (--max-num-queued-tokens); try again later")
          : StrCat(tokens.of(client), " prompt tokens of this client wait and this request has ",
                   more, " more, of ", tokens.client_limit(), " for one client, half of all ",
                   tokens.limit(), " (--max-num-queued-tokens); try again later")};
}

}  // namespace

SharedCount::Room SharedCount::RoomFor(const std::string& client, size_t more) const {
  const size_t own = of(client);
  if (own > 0 && own + more > client_limit_) return Room::kClientHasEnough;
  if (counted_ > 0 && counted_ + more > limit_) return Room::kNone;
  return Room::kYes;
}

void SharedCount::Add(const std::string& client, size_t count) {
  if (count == 0) return;
  size_t& own = of_[client];
  counted_ += std::min(own + count, client_limit_) - std::min(own, client_limit_);
  own += count;
  total_ += count;
}

void SharedCount::Remove(const std::string& client, size_t count) {
  if (count == 0) return;
  const auto found = of_.find(client);
  size_t& own = found->second;
  counted_ -= std::min(own, client_limit_) - std::min(own - count, client_limit_);
  own -= count;
  total_ -= count;
  if (own == 0) of_.erase(found);
}

size_t SharedCount::of(const std::string& client) const {
  const auto found = of_.find(client);
  return found == of_.end() ? 0 : found->second;
}

Admission::Ticket& Admission::Ticket::operator=(Ticket&& other) noexcept {
  if (this == &other) return *this;
  GiveBack(choices_, tokens_);
  admission_ = std::exchange(other.admission_, nullptr);
  client_ = std::move(other.client_);
  choices_ = std::exchange(other.choices_, 0);
  tokens_ = std::exchange(other.tokens_, 0);
  return *this;
}

void Admission::Ticket::GiveBack(size_t choices, size_t tokens) {
  if (!admission_) return;
  choices = std::min(choices, choices_);
  tokens = std::min(tokens, tokens_);
  choices_ -= choices;
  tokens_ -= tokens;
  admission_->choices_.Remove(client_, choices);
  admission_->tokens_.Remove(client_, tokens);
}

tl::expected<Admission::Ticket, Admission::Rejection> Admission::Arrive(const std::string& client) {
  if (const Room room = choices_.RoomFor(client, 1); room != Room::kYes)
    return tl::unexpected(TooManyChoices(choices_, client, room));
  Ticket ticket(this, client);
  ticket.choices_ = 1;
  choices_.Add(client, 1);
  return ticket;
}

tl::expected<void, Admission::Rejection> Admission::Admit(Ticket& ticket, size_t choices,
                                                          size_t tokens) {
  const std::string& client = ticket.client_;
  choices_.Remove(client, ticket.choices_);
  const Room room = choices_.RoomFor(client, choices);
  choices_.Add(client, ticket.choices_);
  if (room != Room::kYes) return tl::unexpected(TooManyChoices(choices_, client, room));
  if (const Room left = tokens_.RoomFor(client, tokens); left != Room::kYes)
    return tl::unexpected(TooManyTokens(tokens_, client, left, tokens));
  choices_.Add(client, choices - ticket.choices_);
  ticket.choices_ = choices;
  tokens_.Add(client, tokens);
  ticket.tokens_ += tokens;
  return {};
}

}  // namespace pinion
