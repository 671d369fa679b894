#include "kernels/offered_isas.h"

#include <algorithm>

#include "kernels/amx_check.h"

namespace pinion::kernels {

IsaOffer OfferOf(const std::vector<Isa>& usable, const std::string& os_refusal,
                 std::string (*check)()) {
  IsaOffer offer{usable, os_refusal};
  const auto amx = std::find(offer.isas.begin(), offer.isas.end(), Isa::kAmx);
  if (amx == offer.isas.end()) return offer;
  if (const std::string difference = check(); !difference.empty()) {
    offer.isas.erase(amx);
    offer.amx_refusal = "its self-check failed because " + difference;
  }
  return offer;
}

const IsaOffer& OfferedIsas() {
  static const IsaOffer offer = OfferOf(UsableIsas(), AmxRefusal(), CheckAmx);
  return offer;
}

}  // namespace pinion::kernels
