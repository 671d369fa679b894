#include "engine/checkpoint/stored.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "engine/base/strings.h"
#include "engine/checkpoint/plain_dtype.h"
#include "kernels/kernels.h"

namespace pinion {

void StoredTensor::Release(size_t begin, size_t bytes) const {
  if (file) file->Release(static_cast<size_t>(data - file->data()) + begin, bytes);
}

uint64_t StoredTensor::bytes() const {
  const auto plain = PlainDtype(dtype);
  const bool is_byte = dtype == "I8" || dtype == "U8" || dtype == "F8_E4M3";
  const size_t element = plain ? kernels::SizeOf(*plain) : is_byte ? 1 : 4;
  uint64_t total = data ? element : 0;
  for (const int64_t size : shape) total *= static_cast<uint64_t>(size);
  return total;
}

std::string StoredTensors::NameOf(const char* suffix) const { return StrCat(module_, ".", suffix); }

Result<StoredTensor> StoredTensors::Require(const char* suffix) const {
  auto tensor = Find(suffix);
  if (!tensor)
    return Fail(ErrorCode::kCorrupt,
                StrCat("the quantised linear '", module_, "' has no '", suffix, "'"));
  return *std::move(tensor);
}

Result<StoredTensor> StoredTensors::Require(const char* suffix, const char* dtype,
                                            const std::vector<int64_t>& shape) const {
  PINION_ASSIGN(StoredTensor tensor, Require(suffix));
  PINION_TRY(CheckType(suffix, tensor, tensor.dtype == dtype, dtype));
  PINION_TRY(CheckShape(suffix, tensor, shape));
  return tensor;
}

Result<StoredTensor> StoredTensors::RequireFloats(const char* suffix,
                                                  const std::vector<int64_t>& shape) const {
  PINION_ASSIGN(StoredTensor tensor, Require(suffix));
  PINION_TRY(CheckType(suffix, tensor, PlainDtype(tensor.dtype).has_value(), "F32, F16 or BF16"));
  PINION_TRY(CheckShape(suffix, tensor, shape));
  return tensor;
}

Result<StoredTensor> StoredTensors::RequireMatrix(const char* suffix, const char* dtype) const {
  PINION_ASSIGN(StoredTensor tensor, Require(suffix));
  PINION_TRY(CheckType(suffix, tensor, tensor.dtype == dtype, dtype));
  if (tensor.shape.size() == 2 && tensor.shape[0] > 0 && tensor.shape[1] > 0) return tensor;
  return Fail(ErrorCode::kCorrupt, StrCat("tensor '", NameOf(suffix), "' has shape ",
                                          ShapeText(tensor.shape), ", want a matrix"));
}

Status StoredTensors::CheckType(const char* suffix, const StoredTensor& tensor, bool good,
                                const char* want) const {
  if (good) return {};
  return Fail(ErrorCode::kUnsupported,
              StrCat("tensor '", NameOf(suffix), "' is ", tensor.dtype, ", want ", want));
}

Status StoredTensors::CheckShape(const char* suffix, const StoredTensor& tensor,
                                 const std::vector<int64_t>& shape) const {
  if (tensor.shape == shape) return {};
  return Fail(ErrorCode::kCorrupt, StrCat("tensor '", NameOf(suffix), "' has shape ",
                                          ShapeText(tensor.shape), ", want ", ShapeText(shape)));
}

void ReadFloats(const StoredTensor& tensor, size_t index, size_t count, float* dst) {
  constexpr size_t kRun = 64;  // copied to aligned memory
  const kernels::Dtype type = *PlainDtype(tensor.dtype);
  const size_t size = kernels::SizeOf(type);
  alignas(64) std::byte run[kRun * sizeof(float)];
  for (size_t first = 0; first < count; first += kRun) {
    const size_t live = std::min(kRun, count - first);
    std::memcpy(run, tensor.data + (index + first) * size, live * size);
    kernels::Convert(reinterpret_cast<std::byte*>(dst + first), kernels::Dtype::kF32, run, type,
                     live);
  }
}

float FloatAt(const StoredTensor& tensor, size_t index) {
  float value;
  ReadFloats(tensor, index, 1, &value);
  return value;
}

std::string ShapeText(const std::vector<int64_t>& shape) {
  std::vector<std::string> sizes;
  for (const int64_t size : shape) sizes.push_back(StrCat(size));
  return StrCat("[", Join(sizes, ", "), "]");
}

}  // namespace pinion
