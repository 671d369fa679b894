#pragma once

#include <map>
#include <string>

#include "engine/checkpoint/gguf_architectures.h"
#include "engine/checkpoint/gguf_header.h"
#include "engine/checkpoint/gguf_order.h"
#include "engine/spec/spec.h"

namespace pinion {

// The place and the form in which a GGUF file holds a tensor of the spec.
struct GgufPlace {
  std::string name;  // of the file's tensor; empty: the file has no such tensor
  int part = -1;     // its place in a tensor of `parts` alike, [parts][...]; -1: the whole
  int parts = 0;
  int half = -1;  // of that place, whose first half is gate, the second up; -1: the whole
  GgufOrder rows = {}, columns = {};
  bool is_negated_exp = false;  // the file holds -exp of each value
};

// The places of a model's tensors.
class GgufPlaces {
 public:
  GgufPlaces(const DecoderSpec& spec, const GgufArchitecture& architecture,
             const GgufHeader& header);

  // By the name of a tensor of TensorList.
  GgufPlace Of(const std::string& name) const;

 private:
  std::map<std::string, GgufPlace> places_;  // by module, or by whole name
};

}  // namespace pinion
