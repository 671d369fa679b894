#pragma once

#include <string>
#include <vector>

#include "engine/weights/integer_rows.h"
#include "engine/weights/weights.h"

namespace pinion {

// A module's rows in its tensors NAME.weight and NAME.bias, from `row` on. A fused tensor of the
// checkpoint (qkv_proj, gate_up_proj) is several such modules with one name.
struct Module {
  std::string name;
  size_t row = 0;
};

// Consecutive outputs of a packed matrix and the tensor rows that they come from; no tensor: zeros.
struct Segment {
  const TensorInfo* tensor;
  size_t row, count;
};

// One worker's part of loading: turns rows of the source's tensors into its blocks of a packed
// matrix; the rank's first thread fills the vectors. Missing tensors are a bug: they have been
// checked.
class WeightPacker {
 public:
  WeightPacker(const TensorSource& source, const Worker& worker)
      : source_(source), worker_(worker) {}

  TensorInfo Find(const std::string& name) const;

  // dst[i] = tensor[range.begin + i] + offset; does nothing if dst is null.
  void FillVector(float* dst, const std::string& name, Range range, float offset = 0);

  // Packs this worker's blocks; `column` is the first input taken. Releases file pages on the way:
  // otherwise, at the end, the whole checkpoint would be resident beside the packed weights. If
  // another rank still needs other columns of the same rows, reading them brings the pages back
  // from the page cache.
  void PackMatrix(const PackedMatrix& matrix, const std::vector<Segment>& segments, size_t column,
                  size_t unit = 1);

 private:
  void PackOne(const PackedMatrix& matrix, const std::vector<Segment>& segments, size_t column,
               size_t block);
  void PackIntegers(const PackedMatrix& matrix, const std::vector<Segment>& segments, size_t column,
                    size_t block);
  void GatherAndPack(const PackedMatrix& matrix, const std::vector<Segment>& segments,
                     size_t column, size_t first, size_t rows, std::byte* dst);
  void Release(const std::vector<Segment>& segments, Range outputs) const;

  const TensorSource& source_;
  const Worker& worker_;
  std::vector<std::byte> scratch_;
  std::vector<float> gathered_;
  IntegerRows integers_;
};

}  // namespace pinion
