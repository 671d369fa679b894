#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/base/json.h"
#include "engine/base/result.h"
#include "engine/checkpoint/packed.h"
#include "engine/checkpoint/quantised.h"
#include "kernels/types.h"

namespace pinion {

struct TensorInfo {
  std::string name;
  kernels::Dtype dtype = kernels::Dtype::kF32;
  std::vector<int64_t> shape;
  std::string file;  // that holds it; empty if it is made up
};

// Elements of one row as TensorSource::Rows counts them: the product of all dimensions but the
// first.
size_t RowElements(const std::vector<int64_t>& shape);

// A source of weights: mapped safetensors files, or weights made up when they are read. Thread
// rule: Find and Rows may be called by any number of threads.
class TensorSource {
 public:
  virtual ~TensorSource() = default;

  // The error names the tensor and the files that were searched.
  virtual Result<TensorInfo> Find(const std::string& name) const = 0;
  virtual std::vector<std::string> Names() const = 0;  // sorted

  // Rows [row, row + count) of a tensor [rows][columns] ([n] counts as n rows of 1), contiguous, in
  // the tensor's own dtype. Valid until the source or `scratch` goes: mapped sources return a
  // pointer into the file, made-up ones fill scratch. Infallible: `info` came from Find.
  virtual const std::byte* Rows(const TensorInfo& info, size_t row, size_t count,
                                std::vector<std::byte>& scratch) const = 0;
  // The integers behind a tensor that is stored quantised; null for others. Find and Rows show such
  // a tensor as float32. Lives as long as the source.
  virtual const QuantisedTensor* Quantised(const std::string& name) const { return nullptr; }
  // A tensor of any type as its file holds it; empty if there is none, or no file.
  virtual std::optional<StoredTensor> Stored(const std::string& name) const { return {}; }
  // These rows have been packed and will hardly be read again: file pages may go.
  virtual void Release(const TensorInfo& info, size_t row, size_t count) const = 0;
};

// A folder's model.safetensors, or the shards that model.safetensors.index.json names, mapped.
// Checks everything about the headers: lengths, offsets, overlaps, dtypes, shapes.
Result<std::unique_ptr<TensorSource>> OpenSafetensors(const std::string& folder);

// One safetensors file, for tests and goldens.
Result<std::unique_ptr<TensorSource>> OpenSafetensorsFile(const std::string& path);

}  // namespace pinion
