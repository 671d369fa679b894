#include "engine/checkpoint/gguf_scale.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "engine/base/strings.h"
#include "engine/checkpoint/stored.h"

namespace pinion {

std::string GgufScaleName(std::string_view matrix) {
  return StrCat(matrix.substr(0, matrix.rfind('.')), ".scale");
}

Result<float> ReadGgufScale(const GgufFile& gguf, const GgufTensor& scale, const GgufTensor& matrix,
                            int expert) {
  if (matrix.type->name != "NVFP4")
    return Fail(ErrorCode::kUnsupported, StrCat("tensor '", scale.name, "' scales a matrix in ",
                                                matrix.type->name, ", want NVFP4"));
  const std::string of_file = StrCat("tensor '", scale.name, "' of ", gguf.FileOf(scale).path());
  const std::vector<int64_t> want{expert >= 0 ? matrix.shape.front() : 1};
  if (scale.type->name != "F32" || scale.shape != want)
    return Fail(ErrorCode::kCorrupt,
                StrCat(of_file, " is ", scale.type->name, " ", ShapeText(scale.shape),
                       ", want F32 ", ShapeText(want)));
  float factor;
  std::memcpy(&factor, gguf.Data(scale) + sizeof(factor) * static_cast<size_t>(std::max(0, expert)),
              sizeof(factor));
  if (factor > 0 && std::isfinite(factor)) return factor;
  return Fail(ErrorCode::kCorrupt,
              StrCat(of_file, " holds ", factor, ", want positive, finite numbers"));
}

Status RefuseGgufScale(const GgufFile& gguf, const GgufTensor& matrix) {
  const GgufTensor* scale = gguf.header.Find(GgufScaleName(matrix.name));
  if (!scale) return {};
  return Fail(
      ErrorCode::kUnsupported,
      StrCat("tensor '", scale->name, "' of ", gguf.FileOf(*scale).path(), " scales '", matrix.name,
             "', whose scale Pinion does not read; use a file that holds this "
             "matrix in another type than NVFP4"));
}

}  // namespace pinion
