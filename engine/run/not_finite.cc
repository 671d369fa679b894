#include "engine/run/not_finite.h"

#include "engine/base/strings.h"

namespace pinion {

std::string NotFinite(std::string_view what, std::string_view dtype) {
  return StrCat(what, " not finite: weights of the model are NaN or infinite, or values were too ",
                "large for ", dtype, "; check the checkpoint's files",
                dtype == "float32" ? "" : ", or try --dtype float32");
}

}  // namespace pinion
