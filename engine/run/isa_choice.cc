#include "engine/run/isa_choice.h"

#include <algorithm>

#include "engine/base/strings.h"

namespace pinion {
namespace {

using kernels::Isa;

bool Contains(const std::vector<Isa>& isas, std::optional<Isa> isa) {
  return isa && std::find(isas.begin(), isas.end(), *isa) != isas.end();
}

IsaChoice BestOf(const kernels::IsaOffer& offer, bool amx_may_be_named) {
  IsaChoice choice{offer.isas.back(), ""};
  if (!offer.amx_refusal.empty())
    choice.warning = StrCat("this CPU has AMX, but it stays unused: ", offer.amx_refusal,
                            amx_may_be_named ? "; --isa amx uses it anyway" : "");
  return choice;
}

}  // namespace

Result<IsaChoice> ChooseIsa(const std::string& asked, const std::vector<Isa>& usable,
                            const kernels::IsaOffer& (*offer)()) {
  if (asked == "auto") return BestOf(offer(), Contains(usable, Isa::kAmx));
  const auto parsed = kernels::ParseIsa(asked);
  const std::string refusal = parsed == Isa::kAmx ? offer().amx_refusal : "";
  if (Contains(usable, parsed))
    return IsaChoice{*parsed,
                     refusal.empty() ? "" : StrCat("--isa amx uses AMX although ", refusal)};
  std::vector<std::string> names;
  for (Isa each : usable) names.emplace_back(kernels::Name(each));
  const char* why = parsed ? "' is not usable on this machine" : "' is unknown";
  return Fail(ErrorCode::kUsage, StrCat("--isa '", asked, why, refusal.empty() ? "" : ": ", refusal,
                                        "; use auto or one of ", Join(names, ", ")));
}

}  // namespace pinion
