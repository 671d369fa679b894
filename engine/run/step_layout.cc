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

}  // namespace

const StepInput& StepLayout::Lay(const std::vector<Slice>& slices, bool takes_scores) {
  input_.tokens.clear();
  input_.types.clear();
  input_.wanted.clear();
  input_.begun.clear();
  input_.ended = std::exchange(ended_, {});
  owners_.clear();
  input_.slices.resize(slices.size());  // which keeps the memory of tables
  for (size_t i = 0; i < slices.size(); ++i) {
    const size_t first_row = input_.tokens.size();
    LaySlice(slices[i], input_.slices[i]);
    AddTypes(slices[i]);
    Want(slices[i], first_row, takes_scores);
  }
  input_.parts = cut_.Parts(input_.tokens.size());
  return input_;
}

void StepLayout::End(const Sequence& sequence) {
  if (sequence.sampling) ended_.push_back(sequence.id);
}

void StepLayout::LaySlice(const Slice& slice, StepInput::Slice& to) {
  const Sequence& sequence = *slice.sequence;
  to.first_row = input_.tokens.size();
  to.rows = slice.count;
  to.first_position = slice.first;
  to.place = sequence.place;
  to.begins_from = slice.begins_from;
  to.keeps_in = slice.keeps_in;
  to.block_tables.resize(sequence.tables.size());
  for (size_t table = 0; table < sequence.tables.size(); ++table)
    to.block_tables[table] = sequence.tables[table].blocks;
  const auto from = sequence.tokens.begin() + static_cast<ptrdiff_t>(slice.first);
  input_.tokens.insert(input_.tokens.end(), from, from + static_cast<ptrdiff_t>(slice.count));
}

void StepLayout::AddTypes(const Slice& slice) {
  if (spec_.token_types == 0) return;
  const std::vector<int32_t>& types = slice.sequence->types;
  for (size_t i = slice.first; i < slice.first + slice.count; ++i)
    input_.types.push_back(types.empty() ? 0 : types[i]);
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

void StepLayout::Want(const Slice& slice, size_t first_row, bool takes_scores) {
  Sequence& sequence = *slice.sequence;
  const Pooler::Rows rows = RowsOf(slice, takes_scores);
  for (size_t i = rows.first; i < rows.last; ++i) {
    const size_t position = slice.first + i;
    WantedRow wanted;
    wanted.row = static_cast<int32_t>(first_row + i);
    if (slice.samples && i + 1 == slice.count) {
      if (!sequence.sampling) Begin(sequence);
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
    input_.wanted.push_back(wanted);
    owners_.push_back({&sequence, position});
  }
}

void StepLayout::Begin(Sequence& sequence) {
  sequence.sampling = true;
  const uint64_t seed = sequence.params.seed.value_or(RequestSeed(seed_, sequence.id));
  const auto prompt_end = sequence.tokens.begin() + static_cast<ptrdiff_t>(sequence.prompt_tokens);
  input_.begun.push_back({sequence.id,
                          sequence.params,
                          seed,
                          sequence.eos_ids,
                          {sequence.tokens.begin(), prompt_end}});
}

}  // namespace pinion
