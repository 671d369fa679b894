#include "engine/run/step_layout.h"

#include <algorithm>
#include <optional>

#include "engine/sample/random.h"

namespace pinion {
namespace {

// The use of a row from which no token is chosen; nothing if it has none.
std::optional<RowUse> UseOf(const Sequence& sequence, size_t position, bool takes_scores) {
  if (sequence.pool || (sequence.score && takes_scores)) return RowUse::kItself;
  const bool rates = sequence.params.prompt_logprobs >= 0 && position + 1 < sequence.prompt_tokens;
  return rates ? std::optional(RowUse::kRating) : std::nullopt;
}

void LaySlice(const Slice& slice, StepInput& input, StepInput::Slice& to) {
  const Sequence& sequence = *slice.sequence;
  to.first_row = input.tokens.size();
  to.rows = slice.count;
  to.first_position = slice.first;
  to.place = sequence.place;
  to.begins_from = slice.begins_from;
  to.keeps_in = slice.keeps_in;
  to.block_tables.resize(sequence.tables.size());
  for (size_t table = 0; table < sequence.tables.size(); ++table)
    to.block_tables[table] = sequence.tables[table].blocks;
  const auto from = sequence.tokens.begin() + static_cast<ptrdiff_t>(slice.first);
  input.tokens.insert(input.tokens.end(), from, from + static_cast<ptrdiff_t>(slice.count));
}

}  // namespace

void StepLayout::Lay(const std::vector<Slice>& slices, bool takes_scores, LaidStep& step) {
  StepInput& input = step.input;
  input.tokens.clear();
  input.types.clear();
  input.wanted.clear();
  input.begun.clear();
  input.ended.clear();
  input.ended.swap(ended_);
  step.owners.clear();
  input.slices.resize(slices.size());  // which keeps the memory of tables
  input.hands_over = false;
  bool decodes = true;
  for (size_t i = 0; i < slices.size(); ++i) {
    const size_t first_row = input.tokens.size();
    LaySlice(slices[i], input, input.slices[i]);
    AddTypes(slices[i], input);
    Want(slices[i], first_row, takes_scores, step);
    input.hands_over = input.hands_over || slices[i].sequence->hands_over;
    decodes = decodes && slices[i].count <= 1 + slices[i].sequence->jumped;
  }
  // While one decodes, others keep the other stages busy.
  const bool is_whole = decodes && steps_in_flight_ > 1;
  input.parts = is_whole ? 1 : cut_.Parts(input.tokens.size());
}

void StepLayout::End(const Sequence& sequence) {
  if (sequence.sampling) ended_.push_back(sequence.id);
}

void StepLayout::AddTypes(const Slice& slice, StepInput& input) const {
  if (spec_.token_types == 0) return;
  const std::vector<int32_t>& types = slice.sequence->types;
  for (size_t i = slice.first; i < slice.first + slice.count; ++i)
    input.types.push_back(types.empty() ? 0 : types[i]);
}

// The rows of a slice that may be wanted: the last row to sample from; every row of a prompt that
// is rated, or those that are pooled, except those that were handed on before a preemption.
Pooler::Rows StepLayout::RowsOf(const Slice& slice, bool takes_scores) const {
  const Sequence& sequence = *slice.sequence;
  const size_t sampled = slice.count - (slice.samples ? 1 : 0);
  const size_t done = sequence.scored > slice.first ? sequence.scored - slice.first : 0;
  if (sequence.pool) {
    const Pooler::Rows rows = pooler_->Wanted(sequence.tokens.size());
    const auto within = [&](size_t row) {
      return std::min(slice.count, row - std::min(row, slice.first));
    };
    return {std::max(done, within(rows.first)), within(rows.last)};
  }
  const bool rated = sequence.params.prompt_logprobs >= 0 || (sequence.score && takes_scores);
  if (!rated) return {sampled, slice.count};
  return {std::min(sampled, done), slice.count};
}

void StepLayout::Want(const Slice& slice, size_t first_row, bool takes_scores,
                      LaidStep& step) const {
  Sequence& sequence = *slice.sequence;
  const Pooler::Rows rows = RowsOf(slice, takes_scores);
  for (size_t i = rows.first; i < rows.last; ++i) {
    const size_t position = slice.first + i;
    WantedRow wanted;
    wanted.row = static_cast<int32_t>(first_row + i);
    if (slice.samples && i + 1 == slice.count) {
      if (!sequence.sampling) Begin(sequence, step.input);
      wanted.use = RowUse::kToken;
      wanted.sequence = sequence.id;
      wanted.constrained = sequence.mask_row >= 0;
      wanted.jumped.assign(sequence.tokens.end() - static_cast<ptrdiff_t>(sequence.jumped),
                           sequence.tokens.end());
    } else if (const auto use = UseOf(sequence, position, takes_scores)) {
      wanted.use = *use;
    } else {
      continue;
    }
    if (wanted.use == RowUse::kRating) {
      wanted.given = sequence.tokens[position + 1];
      wanted.best = sequence.params.prompt_logprobs;
    }
    step.input.wanted.push_back(wanted);
    step.owners.push_back({&sequence, position});
  }
}

void StepLayout::Begin(Sequence& sequence, StepInput& input) const {
  sequence.sampling = true;
  const uint64_t seed = sequence.params.seed.value_or(RequestSeed(seed_, sequence.id));
  const auto prompt_end = sequence.tokens.begin() + static_cast<ptrdiff_t>(sequence.prompt_tokens);
  input.begun.push_back({sequence.id,
                         sequence.params,
                         seed,
                         sequence.eos_ids,
                         {sequence.tokens.begin(), prompt_end}});
}

}  // namespace pinion
