#include "engine/checkpoint/plain_dtype.h"

#include <utility>

namespace pinion {
namespace {

using kernels::Dtype;

constexpr std::pair<const char*, Dtype> kPlainTypes[] = {
    {"F32", Dtype::kF32}, {"BF16", Dtype::kBf16}, {"F16", Dtype::kF16}};

}  // namespace

std::optional<Dtype> PlainDtype(std::string_view name) {
  for (const auto& [known, dtype] : kPlainTypes)
    if (name == known) return dtype;
  return {};
}

const char* PlainName(Dtype dtype) {
  for (const auto& [name, known] : kPlainTypes)
    if (dtype == known) return name;
  return "";
}

}  // namespace pinion
