#include "engine/serve/admission.h"

#include <algorithm>

#include "engine/base/strings.h"

namespace pinion {

Admission::Ticket& Admission::Ticket::operator=(Ticket&& other) noexcept {
  if (this == &other) return *this;
  GiveBack(choices_, tokens_);
  admission_ = std::exchange(other.admission_, nullptr);
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
  admission_->choices_ -= choices;
  admission_->tokens_ -= tokens;
}

tl::expected<Admission::Ticket, Admission::Rejection> Admission::Arrive() {
  if (choices_ > 0 && choices_ >= max_choices_) return tl::unexpected(TooMany());
  Ticket ticket(this);
  ticket.choices_ = 1;
  ++choices_;
  return ticket;
}

tl::expected<void, Admission::Rejection> Admission::Admit(Ticket& ticket, size_t choices,
                                                          size_t tokens) {
  const size_t others = choices_ - ticket.choices_;
  if (others > 0 && others + choices > max_choices_) return tl::unexpected(TooMany());
  if (tokens_ > 0 && tokens_ + tokens > max_tokens_)
    return tl::unexpected(Rejection{
        "max_num_queued_tokens",
        StrCat("the server is busy: ", tokens_, " prompt tokens wait and this request has ", tokens,
               " more, of ", max_tokens_, " (--max-num-queued-tokens); try again later")});
  choices_ = others + choices;
  ticket.choices_ = choices;
  tokens_ += tokens;
  ticket.tokens_ += tokens;
  return {};
}

Admission::Rejection Admission::TooMany() const {
  return {"max_num_queued_reqs",
          StrCat("the server is busy: ", choices_, " choices wait or run, of ", max_choices_,
                 " (--max-num-queued-reqs); try again later")};
}

}  // namespace pinion
