#pragma once

#include <string>
#include <vector>

#include "engine/base/result.h"
#include "kernels/offered_isas.h"

namespace pinion {

// The ISA path that --isa selects in this process.
struct IsaChoice {
  kernels::Isa isa = kernels::Isa::kScalar;
  std::string warning;  // one sentence for the log if AMX is unused or failed its check; or ""
};

// "auto" takes the fastest path that is offered; a name takes exactly that path, even if its
// self-check failed. kUsage for a name that is unknown or cannot run here. `offer` is asked only
// about auto and amx: it multiplies tiles, which may be what the user avoids by naming another
// path.
Result<IsaChoice> ChooseIsa(const std::string& asked,
                            const std::vector<kernels::Isa>& usable = kernels::UsableIsas(),
                            const kernels::IsaOffer& (*offer)() = kernels::OfferedIsas);

}  // namespace pinion
