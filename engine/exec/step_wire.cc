#include "engine/exec/step_wire.h"

#include "engine/sample/wire.h"

namespace pinion {

// Found by argument-dependent look-up, hence outside the anonymous namespace.
template <typename Archive>
void Fields(Archive& archive, WantedRow& wanted) {
  archive(wanted.row, wanted.use, wanted.sequence, wanted.constrained, wanted.jumped, wanted.given,
          wanted.best);
}
template <typename Archive>
void Fields(Archive& archive, SamplingRequest& request) {
  archive(request.sequence, request.params, request.seed, request.eos_ids, request.prompt);
}
template <typename Archive>
void Fields(Archive& archive, StepInput::Slice& slice) {
  archive(slice.first_row, slice.rows, slice.first_position, slice.block_tables, slice.place,
          slice.begins_from, slice.keeps_in);
}
template <typename Archive>
void Fields(Archive& archive, StepInput& input) {
  archive(input.tokens, input.types, input.slices, input.wanted, input.ended, input.begun,
          input.parts, input.hands_over);
}

std::string Encode(const StepInput& input) {
  WireWriter writer;
  writer(input);
  return writer.bytes();
}

std::optional<StepInput> DecodeStep(const std::string& bytes) {
  StepInput input;
  WireReader reader(bytes);
  reader(input);
  if (!reader.ok() || !reader.at_end()) return std::nullopt;
  return input;
}

}  // namespace pinion
