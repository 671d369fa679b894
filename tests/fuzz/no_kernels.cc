// In place of the kernels, which the fuzzers do not compile: what checking options asks of them.

#include "kernels/offered_isas.h"

namespace pinion::kernels {

const IsaOffer& OfferedIsas() {
  static const IsaOffer offer{UsableIsas(), ""};
  return offer;
}

}  // namespace pinion::kernels
