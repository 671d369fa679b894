#pragma once

#include <string>
#include <string_view>

namespace pinion {

// The error of a request whose result is NaN or infinite: "<what> not finite: ..." with what to
// check. what: "the logits are"; dtype: of the model's activations.
std::string NotFinite(std::string_view what, std::string_view dtype);

}  // namespace pinion
