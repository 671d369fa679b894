#pragma once

#include <cstddef>
#include <string>
#include <utility>

#include "engine/base/result.h"
#include "engine/serve/options.h"

namespace pinion {

// Counts what waits or runs, from the moment it arrives, and refuses what would exceed the limits:
// a burst is turned away before any work goes into it. A request that finds no other there is
// always taken, so that no limit makes one impossible. Thread rule: one thread; tickets are
// destroyed there.
class Admission {
 public:
  struct Rejection {
    const char* reason;   // label of vllm:admission_rejections_total
    std::string message;  // one sentence
  };

  // A request's part of the counts; gives the rest back in the destructor. Must not outlive the
  // Admission that it came from.
  class Ticket {
   public:
    Ticket(Ticket&& other) noexcept { *this = std::move(other); }
    Ticket& operator=(Ticket&& other) noexcept;
    ~Ticket() { GiveBack(choices_, tokens_); }
    // A choice has its first token: its prompt's tokens do not wait any more.
    void FirstToken(size_t prompt_tokens) { GiveBack(0, prompt_tokens); }
    void ChoiceEnded() { GiveBack(1, 0); }

   private:
    friend class Admission;
    explicit Ticket(Admission* admission) : admission_(admission) {}
    void GiveBack(size_t choices, size_t tokens);

    Admission* admission_ = nullptr;
    size_t choices_ = 0, tokens_ = 0;
  };

  explicit Admission(const FrontLimits& limits)
      : max_choices_(limits.max_num_queued_reqs), max_tokens_(limits.max_num_queued_tokens) {}

  // A request arrives; it counts as one choice until its size is known.
  tl::expected<Ticket, Rejection> Arrive();
  // Its size: `choices`, whose prompts have `tokens` in all. After a rejection the ticket is as it
  // was.
  tl::expected<void, Rejection> Admit(Ticket& ticket, size_t choices, size_t tokens);

  size_t choices() const { return choices_; }
  size_t tokens() const { return tokens_; }

 private:
  Rejection TooMany() const;

  size_t max_choices_, max_tokens_;
  size_t choices_ = 0, tokens_ = 0;
};

}  // namespace pinion
