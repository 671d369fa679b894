// Thousands of random requests through the scheduler with a made-up model, everything checked after
// every step. The made-up model's next token is a function of the tokens before it that it reads
// from the simulated KV cache: a wrong block, position or reuse changes what comes out.

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <numeric>
#include <random>
#include <set>

#include "engine/kv/table_blocks.h"
#include "engine/sched/scheduler.h"
#include "tests/watched.h"
#include "timed_bench.h"

namespace pinion {
namespace {

struct Shape {
  const char* name;
  size_t blocks, block_tokens, budget, seqs, length;
  bool caching;
  bool timed = false;  // steps of 50 ms with decodes, of up to 200 alone
  int priorities = 1;
  size_t states = 0;  // kept ones of a recurrent model, which reads nothing from the cache
  std::vector<Reach> reaches = {Reach{}};
  size_t steps = 1;  // in flight

  // Prompts are computed in order of arrival. One that ends a slice early to keep a state leaves
  // the rest of the step to the next; one that waits for blocks of a step in flight leaves all.
  bool in_order() const { return !timed && priorities == 1 && states == 0 && steps == 1; }
};
void PrintTo(const Shape& shape, std::ostream* out) { *out << shape.name; }

// The model: each position's "state" is a running hash over the tokens up to it, kept in the slot
// of its token, as a decoder keeps keys and values.
uint64_t NextState(uint64_t before, int32_t token) {
  uint64_t x = before * 0x9e3779b97f4a7c15 + static_cast<uint32_t>(token) + 1;
  x ^= x >> 29;
  return x * 0xbf58476d1ce4e5b9;
}

int32_t NextToken(uint64_t state) {
  const int32_t token = static_cast<int32_t>((state >> 33) % 50);
  return token == kEos && (state >> 20) % 4 != 0 ? 3 : token;  // EOS once in 200 tokens
}

// The model's own output, without blocks and batches.
std::vector<int32_t> Alone(const Sequence& sequence) {
  std::vector<int32_t> tokens(
      sequence.tokens.begin(),
      sequence.tokens.begin() + static_cast<ptrdiff_t>(sequence.prompt_tokens));
  uint64_t state = 0;
  for (const int32_t token : tokens) state = NextState(state, token);
  for (int i = 0; i < sequence.params.max_tokens; ++i) {
    tokens.push_back(NextToken(state));
    if (tokens.back() == kEos && i + 1 >= sequence.params.min_tokens) break;
    state = NextState(state, tokens.back());
  }
  return tokens;
}

class Simulation {
 public:
  Simulation(const Shape& shape, uint32_t seed)
      : shape_(shape),
        rng_(seed),
        pool_(shape.blocks, shape.block_tokens, shape.caching),
        kept_(static_cast<int32_t>(shape.seqs), shape.states),
        scheduler_(
            {shape.budget, shape.seqs, shape.length, {0.05, 0.05, 0}, shape.reaches, shape.steps},
            pool_, shape.timed ? &times_ : nullptr, clock_, shape.states > 0 ? &kept_ : nullptr),
        slots_(shape.blocks * shape.block_tokens),
        states_(shape.seqs + shape.states) {}

  // Requests arrive at random while others run; each must end as the model says on its own. Steps
  // are computed in the order in which they begin, and end when later ones have begun.
  void Run(size_t requests) {
    while (requests > 0 || !scheduler_.idle()) {
      for (size_t arrivals = requests > 0 ? rng_() % 4 : 0; arrivals > 0 && requests > 0;
           --arrivals, --requests)
        AddOne();
      if (rng_() % 50 == 0) AbortOne();
      while (open_.size() < shape_.steps && (open_.empty() || rng_() % 8 > 0) && Begin()) {
      }
      if (open_.size() == shape_.steps && shape_.steps > 1) ++full_;
      if (!open_.empty()) Finish();
      if (::testing::Test::HasFatalFailure()) return;
      ASSERT_LT(++steps_, 1000000u) << "it does not end";
    }
    EXPECT_EQ(pool_.used(), 0u) << "blocks leaked";
    EXPECT_TRUE(live_.empty());
    EXPECT_EQ(pool_.available(), shape_.blocks);
    for (size_t i = 0; i < shape_.states; ++i) EXPECT_TRUE(kept_.Reserve()) << "one is held";
  }

  size_t finished() const { return finished_; }
  size_t refused() const { return refused_; }
  uint64_t preemptions() const { return scheduler_.stats().preemptions; }
  size_t full() const { return full_; }
  size_t aborted_in_flight() const { return aborted_in_flight_; }
  uint64_t hits() const { return pool_.stats().prefix_hit_tokens; }

 private:
  void AddOne() {
    auto sequence = std::make_unique<Sequence>();
    sequence->id = ++last_id_;
    // One of a few shared prefixes, so that the cache has hits, then a few tokens of its own.
    const size_t longest = shape_.length * 2 / 3;
    const size_t shared = rng_() % longest, own = rng_() % 8;
    const int32_t family = static_cast<int32_t>(rng_() % 3);
    for (size_t i = 0; i < shared; ++i)
      sequence->tokens.push_back(family + static_cast<int32_t>(i) * 3);
    for (size_t i = 0; i < own + 1; ++i)
      sequence->tokens.push_back(static_cast<int32_t>(rng_() % 20));
    sequence->params.max_tokens = 1 + static_cast<int>(rng_() % (shape_.length / 2));
    sequence->params.min_tokens =
        rng_() % 4 == 0 ? static_cast<int>(rng_() % sequence->params.max_tokens) : 0;
    sequence->eos_ids = {kEos};
    sequence->score = rng_() % 10 == 0;
    if (shape_.priorities > 1)
      sequence->priority = static_cast<int>(rng_() % static_cast<unsigned>(shape_.priorities));
    if (shape_.timed) sequence->group = rng_() % 4;
    Sequence* raw = sequence.get();
    const size_t prompt = raw->tokens.size();
    if (scheduler_.Add(std::move(sequence)))
      live_[last_id_] = raw;
    else
      ++refused_;
    // Never refused: what surely fits.
    if (prompt + shape_.length / 2 < shape_.blocks / shape_.reaches.size() * shape_.block_tokens &&
        prompt + shape_.length / 2 < shape_.length) {
      ASSERT_TRUE(live_.contains(last_id_)) << prompt;
    }
  }

  void AbortOne() {
    if (live_.empty()) return;
    auto place = live_.begin();
    std::advance(place, rng_() % live_.size());
    // Most of those that live wait.
    if (shape_.steps > 1 && rng_() % 2 > 0)
      place = std::find_if(live_.begin(), live_.end(),
                           [](const auto& one) { return one.second->steps_in_flight > 0; });
    if (place == live_.end()) return;
    const bool in_flight = place->second->steps_in_flight > 0;
    const auto aborted = scheduler_.Abort(place->first);
    ASSERT_EQ(aborted == nullptr, in_flight);
    if (in_flight) return static_cast<void>(++aborted_in_flight_);
    EXPECT_EQ(aborted->finish, FinishReason::kAborted);
    EXPECT_EQ(Held(*aborted), 0u);
    live_.erase(place);
  }

  // A step in flight: what was sampled, and how long it takes.
  struct OpenStep {
    std::vector<int32_t> sampled;
    double seconds = 0;
  };

  bool Begin() {
    const std::vector<Slice>& slices = scheduler_.Schedule();
    if (!slices.empty()) Compute(slices);
    return !slices.empty() && !::testing::Test::HasFatalFailure();
  }

  void Compute(const std::vector<Slice>& slices) {
    std::vector<int32_t> sampled;
    size_t tokens = 0;
    uint64_t last_id = 0;
    std::set<const Sequence*> computed;
    for (const Slice& slice : slices)
      if (slice.begins_from >= 0) StateIn(slice.sequence->place) = StateIn(slice.begins_from);
    for (const Slice& slice : slices) {
      tokens += slice.count;
      ASSERT_TRUE(computed.insert(slice.sequence).second) << "two slices of one sequence";
      if (shape_.in_order()) {
        ASSERT_GT(slice.sequence->id, last_id) << "slices out of order of arrival";
      }
      last_id = slice.sequence->id;
      Compute(slice);
      if (::testing::Test::HasFatalFailure()) return;
      if (slice.samples) sampled.push_back(NextToken(StateAt(*slice.sequence, slice)));
    }
    std::set<int32_t> written;
    for (const Slice& slice : slices) {
      if (slice.keeps_in < 0) continue;
      ASSERT_TRUE(written.insert(slice.keeps_in).second) << "two states in one place";
      ASSERT_GE(slice.keeps_in, static_cast<int32_t>(shape_.seqs)) << "a running sequence's";
      StateIn(slice.keeps_in) = StateIn(slice.sequence->place);
    }
    ASSERT_LE(tokens, shape_.budget);
    ASSERT_LE(slices.size(), shape_.seqs);
    ASSERT_LE(scheduler_.stats().running, shape_.seqs);
    CheckReferences();
    const double seconds = times_.row_s * static_cast<double>(tokens);
    if (shape_.timed && Decodes(slices) > 0 && Decodes(slices) < 9) {
      ASSERT_LE(seconds, 0.05 + 16 * times_.row_s) << "the granule of every fourth step";
    }
    open_.push_back({std::move(sampled), seconds});
  }

  void Finish() {
    const OpenStep step = std::move(open_.front());
    open_.pop_front();
    clock_.now_ns +=
        static_cast<int64_t>(step.seconds * 1e9 * (0.5 + 0.01 * static_cast<double>(rng_() % 100)));
    uint64_t last_finished = 0;
    for (const auto& sequence : scheduler_.Commit(step.sampled)) {
      if (shape_.in_order()) {
        ASSERT_GT(sequence->id, last_finished) << "results out of order";
      }
      last_finished = sequence->id;
      Check(*sequence);
    }
  }

  static size_t Held(const Sequence& sequence) {
    size_t held = 0;
    for (const BlockTable& table : sequence.tables) held += table.held();
    return held;
  }

  // Throws if the table has no block for the position.
  uint64_t& Slot(const Sequence& sequence, size_t position, size_t table = 0) {
    const int32_t block = sequence.tables.at(table).blocks.at(position / shape_.block_tokens);
    return slots_.at(static_cast<size_t>(block) * shape_.block_tokens +
                     position % shape_.block_tokens);
  }
  uint64_t& StateIn(int32_t place) { return states_.at(static_cast<size_t>(place)); }
  uint64_t StateAt(const Sequence& sequence, const Slice& slice) {
    return Slot(sequence, slice.first + slice.count - 1);
  }

  // Runs the model over one slice, reading what came before from the cache.
  void Compute(const Slice& slice) {
    const Sequence& sequence = *slice.sequence;
    ASSERT_EQ(slice.first, sequence.computed);
    ASSERT_GT(slice.count, 0u);
    ASSERT_LE(slice.first + slice.count, sequence.tokens.size());
    ASSERT_EQ(sequence.tables.size(), shape_.reaches.size());
    for (const BlockTable& table : sequence.tables)
      ASSERT_EQ(table.blocks.size(),
                (slice.first + slice.count + shape_.block_tokens - 1) / shape_.block_tokens);
    ASSERT_EQ(slice.samples,
              !sequence.score && slice.first + slice.count == sequence.tokens.size());
    uint64_t state = 0;
    if (slice.first > 0)
      state = shape_.states > 0 ? StateIn(sequence.place) : Slot(sequence, slice.first - 1);
    for (size_t p = slice.first; p < slice.first + slice.count; ++p) {
      state = NextState(state, sequence.tokens[p]);
      for (size_t table = 0; table < shape_.reaches.size(); ++table)
        Slot(sequence, p, table) = state;
    }
    StateIn(sequence.place) = state;
    CheckSeen(slice);
  }

  // Everything that the slice's tokens see is in each table as this sequence, or one with the same
  // prefix, wrote it, and the tables hold no more than that takes.
  void CheckSeen(const Slice& slice) {
    const Sequence& sequence = *slice.sequence;
    std::vector<uint64_t> states;
    for (size_t p = 0; p < slice.first + slice.count; ++p)
      states.push_back(NextState(p == 0 ? 0 : states.back(), sequence.tokens[p]));
    for (size_t table = 0; table < shape_.reaches.size(); ++table) {
      const Reach& reach = shape_.reaches[table];
      for (size_t p = reach.First(slice.first); p < states.size(); ++p)
        ASSERT_EQ(Slot(sequence, p, table), states[p]) << "table " << table << ", position " << p;
      ASSERT_LE(sequence.tables[table].held(),
                MostBlocks(reach, states.size(), slice.count, shape_.block_tokens));
    }
  }

  // Every used block is held by at least one live sequence, and every holder counts.
  void CheckReferences() {
    std::map<int32_t, int> holders;
    for (const auto& [id, sequence] : live_)
      for (const BlockTable& table : sequence->tables)
        for (size_t i = table.gone; i < table.blocks.size(); ++i) ++holders[table.blocks[i]];
    ASSERT_EQ(holders.size(), pool_.used());
  }

  void Check(const Sequence& sequence) {
    ASSERT_EQ(live_.erase(sequence.id), 1u);
    EXPECT_EQ(Held(sequence), 0u);
    if (sequence.aborted) {
      EXPECT_EQ(sequence.finish, FinishReason::kAborted);
      EXPECT_EQ(sequence.steps_in_flight, 0);
      return;
    }
    ++finished_;
    if (sequence.score) {
      EXPECT_EQ(sequence.scored, sequence.prompt_tokens);
      EXPECT_EQ(sequence.output_tokens(), 0u);
      return;
    }
    ASSERT_EQ(sequence.tokens, Alone(sequence))
        << "id " << sequence.id << " after " << sequence.preemptions << " preemptions";
    EXPECT_EQ(sequence.finish,
              sequence.tokens.back() == kEos &&
                      static_cast<int>(sequence.output_tokens()) >= sequence.params.min_tokens
                  ? FinishReason::kStop
                  : FinishReason::kLength);
  }

  static size_t Decodes(const std::vector<Slice>& slices) {
    return static_cast<size_t>(std::count_if(slices.begin(), slices.end(), [](const Slice& slice) {
      return slice.sequence->output_tokens() > 0 && slice.count == 1;
    }));
  }

  Shape shape_;
  std::mt19937 rng_;
  LinearTimes times_{0.002};
  HandClock clock_;
  BlockPool pool_;
  StatePool kept_;
  Scheduler scheduler_;
  std::vector<uint64_t> slots_;
  std::vector<uint64_t> states_;  // by place
  std::deque<OpenStep> open_;
  std::map<uint64_t, Sequence*> live_;
  uint64_t last_id_ = 0;
  size_t finished_ = 0, refused_ = 0, steps_ = 0, full_ = 0, aborted_in_flight_ = 0;
};

// Of a model with layers that see everything, some that see 20 tokens, and chunks of 24.
const std::vector<Reach> kMixed = {{}, {20, 0}, {20, 0}, {0, 24}};

class Schedules : public ::testing::TestWithParam<Shape> {};

TEST_P(Schedules, GiveEveryRequestTheTokensItGetsAlone) {
  const Shape& shape = GetParam();
  Simulation simulation(shape, 20261120);
  const size_t requests = tests::Watched() ? 500 : 2000;
  simulation.Run(requests);
  EXPECT_GT(simulation.finished(), requests / 2);
  // Each shape is there for a reason; were it not reached, the test would show less than it says.
  const bool tight = std::string(shape.name).starts_with("Tight");
  if (tight) {
    EXPECT_GT(simulation.preemptions(), requests / 40);
  }
  if (shape.caching) {
    EXPECT_GT(simulation.hits(), requests / 2);
  } else {
    EXPECT_EQ(simulation.hits(), 0u);
  }
  if (shape.steps > 1) {
    EXPECT_GT(simulation.full(), requests / 4);
    EXPECT_GT(simulation.aborted_in_flight(), requests / 200);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, Schedules,
    ::testing::Values(
        Shape{"Roomy", 400, 16, 64, 16, 120, true},
        Shape{"RoomyWithoutCache", 400, 16, 64, 16, 120, false},
        Shape{"Tight", 12, 16, 64, 16, 120, true},
        Shape{"TightWithoutCache", 12, 16, 64, 16, 120, false},
        Shape{"TightChunksOfSeven", 24, 4, 7, 8, 60, true},
        Shape{"OneTokenAStep", 24, 4, 1, 8, 40, true},
        Shape{"OneSequence", 8, 16, 64, 1, 120, true},
        Shape{"Timed", 400, 16, 64, 16, 120, true, true},
        Shape{"TightAndTimed", 12, 16, 64, 16, 120, true, true},
        Shape{"Priorities", 400, 16, 64, 16, 120, true, true, 3},
        Shape{"TightPriorities", 12, 16, 64, 16, 120, false, false, 3},
        Shape{"Recurrent", 400, 4, 64, 16, 120, true, false, 1, 9},
        Shape{"RecurrentOneKept", 400, 4, 64, 16, 120, true, false, 1, 1},
        Shape{"RecurrentAndTimed", 400, 4, 64, 16, 120, true, true, 3, 9},
        Shape{"TightAndRecurrent", 48, 4, 64, 16, 120, true, false, 1, 5},
        Shape{"Windows", 400, 4, 64, 16, 120, true, false, 1, 0, kMixed},
        Shape{"WindowsWithoutCache", 400, 4, 64, 16, 120, false, false, 1, 0, kMixed},
        Shape{"TightWindows", 100, 4, 32, 16, 120, true, false, 1, 0, kMixed},
        Shape{"WindowsOneTokenAStep", 60, 4, 1, 8, 60, true, false, 1, 0, kMixed},
        Shape{"TightWindowsAndTimed", 100, 4, 64, 16, 120, true, true, 3, 0, kMixed},
        Shape{"WindowsAndRecurrent", 400, 4, 64, 16, 120, true, false, 1, 9, kMixed},
        Shape{"OnlyWindows", 40, 4, 16, 8, 120, true, false, 1, 0, {{20, 0}}},
        Shape{"TightWindowsAlone", 14, 4, 16, 8, 120, true, false, 1, 0, {{20, 0}}},
        Shape{"TwoSteps", 400, 16, 64, 16, 120, true, false, 1, 0, {{}}, 2},
        Shape{"TightTwoSteps", 12, 16, 64, 16, 120, true, false, 1, 0, {{}}, 2},
        Shape{"TightFiveSteps", 24, 4, 7, 8, 60, false, false, 1, 0, {{}}, 5},
        Shape{"TwoTimedSteps", 400, 16, 64, 16, 120, true, true, 3, 0, {{}}, 2},
        Shape{"TightThreeTimedSteps", 12, 16, 64, 16, 120, true, true, 1, 0, {{}}, 3},
        Shape{"RecurrentTwoSteps", 400, 4, 64, 16, 120, true, false, 1, 9, {{}}, 2},
        Shape{"TightAndRecurrentThreeSteps", 48, 4, 64, 16, 120, true, false, 1, 5, {{}}, 3},
        Shape{"TightWindowsTwoSteps", 100, 4, 32, 16, 120, true, false, 1, 0, kMixed, 2}),
    [](const auto& info) { return std::string(info.param.name); });

TEST(Simulation, RefusesSequencesThatThePoolCannotHold) {
  Simulation simulation({"RefusesSome", 5, 16, 32, 8, 120, true}, 3);
  simulation.Run(500);
  EXPECT_GT(simulation.refused(), 50u);
}

}  // namespace
}  // namespace pinion
