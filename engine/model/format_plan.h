#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "kernels/integer.h"

namespace pinion {

// The matrices of a decoder that have a form of their own in memory.
// kMlpIn and kDown are a dense MLP's, or those of the one beside a layer's experts. kQkv is latent
// attention's first projection too; kQueryUp and kLatentUp are what it makes queries, and keys and
// values, of.
enum class MatrixRole {
  kQkv,
  kO,
  kMlpIn,
  kDown,
  kExpertIn,
  kExpertDown,
  kQueryUp,
  kLatentUp,
  kHead
};

// What integer weights are multiplied with.
enum class IntegerProduct {
  kInt8,   // activations rounded to int8
  kFloat,  // activations as they are: weights become floats block by block, in cache
};

// A matrix that stays in integers: what kernels::IntLayout needs to know, less its share's shape.
struct IntegerFormat {
  int bits = 8;
  size_t group = 0;  // columns; 0: whole rows
  int lowest = -128;
  bool has_offsets = false;
  IntegerProduct product = IntegerProduct::kInt8;
  kernels::Rounding rounding;  // of the activations, where they are rounded
  // The group of each column of the whole matrix where groups are no runs of neighbours
  // (act-order); else null.
  std::shared_ptr<const std::vector<uint32_t>> group_of;
};

// The matrices that stay in integers; all others are packed in the decoder's dtype. Plain data,
// made once from the checkpoint's headers, so that memory can be counted before anything is read.
class FormatPlan {
 public:
  using Key = std::pair<int, MatrixRole>;  // layer (-1: none), role

  // Null: the decoder's dtype.
  const IntegerFormat* Find(int layer, MatrixRole role) const;
  void Set(int layer, MatrixRole role, const IntegerFormat& format);
  const std::map<Key, IntegerFormat>& formats() const { return formats_; }
  bool empty() const { return formats_.empty(); }
  size_t Count(IntegerProduct product) const;

  // Matrices that the checkpoint has in integers and that are dequantised at loading.
  size_t dequantised = 0;

 private:
  std::map<Key, IntegerFormat> formats_;
};

// Groups are multiples of this many columns.
inline constexpr size_t kSmallestIntGroup = 16;

// Which column of a share each packed column is, where that is not its own place;
// kernels::kNoColumn: none.
using ColumnOrder = std::vector<uint32_t>;

// How a rank holds its columns of such a matrix.
struct IntegerShare {
  kernels::IntLayout layout;                 // its k: packed columns
  std::shared_ptr<const ColumnOrder> order;  // [layout.k]; null: columns stay where they are
};

// The share that has the columns [column, column + k) of the whole matrix; empty where the cut
// leaves no group that is large enough, so that it must be dequantised. With act-order its columns
// lie by groups; where a cut leaves groups of unequal sizes, each is padded to several narrower
// ones, at a fifth more memory in groups of 128 on two ranks.
std::optional<IntegerShare> ShareOf(const IntegerFormat& format, size_t column, size_t k);

}  // namespace pinion
