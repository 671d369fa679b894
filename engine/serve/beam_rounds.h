#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "engine/serve/beam_search.h"
#include "engine/serve/link.h"

namespace pinion {

// The events that one event of a round makes for the choices, one after another: those of a search
// that has ended are made as they are asked for, because its answers together may be large.
class BeamEvents {
 public:
  BeamEvents() = default;
  explicit BeamEvents(TokenEvent only) : only_(std::move(only)) {}
  // All tokens of `found`, which `beams` has found. `like`: the common part of their events.
  BeamEvents(BeamSearch beams, std::vector<BeamSearch::Found> found, TokenEvent like)
      : beams_(std::move(beams)), found_(std::move(found)), like_(std::move(like)) {}

  std::optional<TokenEvent> Next();

 private:
  std::optional<TokenEvent> only_;
  std::optional<BeamSearch> beams_;
  std::vector<BeamSearch::Found> found_;
  TokenEvent like_;            // its request: the choice of found_[next_answer_]
  BeamSearch::Answer answer_;  // the one that is being told
  size_t next_answer_ = 0, next_token_ = 0;
};

// The beam searches in flight. To the front end each is a prompt with choices like any other; to
// the engine each of its steps, a round, is as many prompts as there are beams, of which each
// yields one token with its likeliest alternatives. The prefix cache has what they have in common.
// Thread rule: one thread.
class BeamRounds {
 public:
  // Which engine got the message.
  using Send = std::function<size_t(const LinkMessage&)>;
  explicit BeamRounds(Send send) : send_(std::move(send)) {}

  // Begins the search for the choices of `prompt`, whose number is its width. Returns which engine
  // the first round went to.
  size_t Begin(SubmitMessage prompt, const BeamRules& rules);
  // Ends the searches for these choices, if there are any.
  void Abort(uint64_t first_choice, size_t choices);
  // Forgets all: the engine has.
  void Clear() { rounds_.clear(); }

  // Whether the engine's `id` is of a round, and never of a choice.
  static bool Owns(uint64_t id) { return id >= kFirstId; }
  // The events that this one makes for the choices. The end of a search's first round tells the
  // first of them that its prompt is computed, by an event without a token; the last one tells all
  // tokens of all of them; one that ends the search with an error tells the first. Others tell
  // nothing.
  BeamEvents OnEvent(const TokenEvent& event);
  // The first choice of the search that a round's `id` belongs to, 0 if there is none any more; of
  // another id itself.
  uint64_t ChoiceOf(uint64_t id);

 private:
  static constexpr uint64_t kFirstId = uint64_t{1} << 63;

  struct Search {
    SubmitMessage prompt;  // with the parameters of the client
    BeamSearch beams;
    size_t waiting = 0;                // beams of the round whose token has not come
    std::vector<SampledToken> behind;  // those that have
    std::optional<TokenEvent> first;   // event of all: its times and cached tokens are the search's
    size_t preemptions = 0;
  };
  using Rounds = std::map<uint64_t, Search>;  // by the id of their first beam

  Rounds::iterator Find(uint64_t id);
  size_t Start(Search search);
  BeamEvents Fail(Rounds::iterator round, TokenEvent event);
  static BeamEvents End(Search search, int64_t now_ns);

  Send send_;
  Rounds rounds_;
  uint64_t next_id_ = kFirstId;
};

}  // namespace pinion
