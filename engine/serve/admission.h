#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <utility>

#include "engine/base/result.h"
#include "engine/serve/options.h"

namespace pinion {

// A count that all clients share up to a limit. One client may have half of it, so that its
// requests alone never keep the others out. No limit makes a request impossible: a client's only
// one may exceed the half, and the only one of all the limit; the excess over the half does not
// count against the others. Thread rule: one thread.
class SharedCount {
 public:
  explicit SharedCount(size_t limit) : limit_(limit), client_limit_((limit + 1) / 2) {}

  enum class Room { kYes, kClientHasEnough, kNone };
  Room RoomFor(const std::string& client, size_t more) const;
  void Add(const std::string& client, size_t count);
  void Remove(const std::string& client, size_t count);

  size_t total() const { return total_; }
  size_t of(const std::string& client) const;
  size_t limit() const { return limit_; }
  size_t client_limit() const { return client_limit_; }

 private:
  size_t limit_, client_limit_;
  size_t total_ = 0;
  size_t counted_ = 0;                // of each client at most its half
  std::map<std::string, size_t> of_;  // clients that have some
};

// Counts what waits or runs, from the moment it arrives, and refuses what would exceed the limits:
// a burst is turned away before any work goes into it. Thread rule: one thread; tickets are
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
    Ticket(Admission* admission, std::string client)
        : admission_(admission), client_(std::move(client)) {}
    void GiveBack(size_t choices, size_t tokens);

    Admission* admission_ = nullptr;
    std::string client_;
    size_t choices_ = 0, tokens_ = 0;
  };

  explicit Admission(const FrontLimits& limits)
      : choices_(limits.max_num_queued_reqs), tokens_(limits.max_num_queued_tokens) {}

  // A client's request arrives; it counts as one choice until its size is known.
  tl::expected<Ticket, Rejection> Arrive(const std::string& client);
  // Its size: `choices`, whose prompts have `tokens` in all. After a rejection the ticket is as it
  // was.
  tl::expected<void, Rejection> Admit(Ticket& ticket, size_t choices, size_t tokens);

  size_t choices() const { return choices_.total(); }
  size_t tokens() const { return tokens_.total(); }

 private:
  SharedCount choices_, tokens_;
};

}  // namespace pinion
