#pragma once

#include <string>
#include <vector>

#include "kernels/isa.h"

namespace pinion::kernels {

// The paths to choose from if none is named.
struct IsaOffer {
  std::vector<Isa> isas;    // weakest first: UsableIsas(), without kAmx if its products are wrong
  std::string amx_refusal;  // why kAmx is not among them though the CPU has it; else empty
};
// If kAmx is usable this checks the tiles (amx_check.h), so it is not to be called if a path was
// named. Computed once; thread-safe.
const IsaOffer& OfferedIsas();

// The offer of these paths. `check` is called only if kAmx is among them and returns what is wrong
// with it, or an empty string. `os_refusal`: why the operating system refuses tiles to this
// process.
IsaOffer OfferOf(const std::vector<Isa>& usable, const std::string& os_refusal,
                 std::string (*check)());

}  // namespace pinion::kernels
