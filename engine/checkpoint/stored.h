#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "engine/base/file.h"
#include "engine/base/result.h"

namespace pinion {

// A tensor as a safetensors file stores it, whatever its type; the header check has seen that its
// bytes are all there. The file outlives what is read from it.
struct StoredTensor {
  std::string dtype;  // "I32", "BF16", ...
  std::vector<int64_t> shape;
  const std::byte* data = nullptr;   // not aligned
  const MappedFile* file = nullptr;  // the file that holds data; null: other memory

  // These bytes have been packed and will hardly be read again: a file's pages may go.
  void Release(size_t begin, size_t bytes) const;
  uint64_t bytes() const;  // 0 without data
};
// Empty if there is no tensor of that name.
using StoredLookup = std::function<std::optional<StoredTensor>(const std::string& name)>;

// The tensors of one linear, each checked for its type and shape as it is fetched. Errors name the
// tensor. `module` and `lookup` outlive it.
class StoredTensors {
 public:
  StoredTensors(const std::string& module, const StoredLookup& lookup)
      : module_(module), lookup_(lookup) {}

  std::string NameOf(const char* suffix) const;
  std::optional<StoredTensor> Find(const char* suffix) const { return lookup_(NameOf(suffix)); }

  Result<StoredTensor> Require(const char* suffix) const;
  Result<StoredTensor> Require(const char* suffix, const char* dtype,
                               const std::vector<int64_t>& shape) const;
  Result<StoredTensor> RequireFloats(const char* suffix, const std::vector<int64_t>& shape) const;
  // A matrix of `dtype` of any size; the size of a packed one gives that of its linear.
  Result<StoredTensor> RequireMatrix(const char* suffix, const char* dtype) const;

 private:
  Status CheckType(const char* suffix, const StoredTensor& tensor, bool good,
                   const char* want) const;
  Status CheckShape(const char* suffix, const StoredTensor& tensor,
                    const std::vector<int64_t>& shape) const;

  const std::string& module_;
  const StoredLookup& lookup_;
};

// Numbers [index, index + count) of a tensor in F32, F16 or BF16.
void ReadFloats(const StoredTensor& tensor, size_t index, size_t count, float* dst);
float FloatAt(const StoredTensor& tensor, size_t index);

// "[2, 64]"
std::string ShapeText(const std::vector<int64_t>& shape);

}  // namespace pinion
