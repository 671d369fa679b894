#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "kernels/e4m3.h"
#include "kernels/integer.h"
#include "kernels/types.h"

namespace pinion {

// The matrices of a decoder that can have a form of their own in memory. kMlpIn and kDown belong to
// a dense MLP or to the one beside a layer's experts. kQkv is also latent attention's first
// projection; kQueryUp turns its results into queries, kLatentUp into keys and values.
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

// How integer weights are multiplied.
enum class IntegerProduct {
  kInt8,   // activations rounded to int8
  kFloat,  // activations unrounded: weights become floats block by block, in cache
  kE4m3,   // weights are eight-bit floats, multiplied exactly (kernels/e4m3.h)
};

// A matrix that stays in integers: the parameters of kernels::IntLayout except for the share's
// shape.
struct IntegerFormat {
  int bits = 8;
  size_t group = 0;  // columns; 0: whole rows
  int lowest = -128;
  bool has_offsets = false;
  kernels::ScaleType scale_type = kernels::ScaleType::kF16;
  IntegerProduct product = IntegerProduct::kInt8;
  kernels::Rounding rounding;  // of the activations, if they are rounded to int8
  // Whether outliers among the activations stay unrounded, which is ours to choose unless the
  // checkpoint's scheme says how activations are rounded.
  bool outliers_apart = false;
  // The group of each column of the whole matrix if groups are not consecutive columns (act-order);
  // else null.
  std::shared_ptr<const std::vector<uint32_t>> group_of;
  // The rounding of kE4m3's activations, if there is one. Each rank's share sets its `first`.
  std::optional<kernels::E4m3Rounding> e4m3_rounding = {};

  bool e2m1() const { return scale_type != kernels::ScaleType::kF16; }
  bool e4m3() const { return product == IntegerProduct::kE4m3; }
};

// How a decoder's matrices lie in memory: those that stay in integers, and the type of all others
// and of the activations. Plain data, made once from the checkpoint's headers and the choices that
// a start chooses (PlanFormats), so that memory can be counted before anything is read.
class FormatPlan {
 public:
  using Key = std::pair<int, MatrixRole>;  // layer (-1: none), role

  // All matrices in `dtype`.
  FormatPlan(kernels::Dtype dtype = kernels::Dtype::kBf16) : dtype(dtype) {}

  // Null: in `dtype`.
  const IntegerFormat* Find(int layer, MatrixRole role) const;
  void Set(int layer, MatrixRole role, const IntegerFormat& format);
  const std::map<Key, IntegerFormat>& formats() const { return formats_; }
  bool empty() const { return formats_.empty(); }
  size_t Count(IntegerProduct product) const;
  size_t CountRoundedToE4m3() const;

  kernels::Dtype dtype;
  // Layers of latent attention whose latents are rounded before they are cached, as the matrix asks
  // that makes keys and values of them, although it is itself dequantised.
  std::map<int, kernels::E4m3Rounding> latent_roundings;
  // Matrices that the checkpoint has in integers and that are dequantised at loading.
  size_t dequantised = 0;

 private:
  std::map<Key, IntegerFormat> formats_;
};

// Groups are multiples of this many columns.
inline constexpr size_t kSmallestIntGroup = 16;

// The share's column at each packed position; kernels::kNoColumn: padding.
using ColumnOrder = std::vector<uint32_t>;

// How a rank holds its columns of such a matrix.
struct IntegerShare {
  kernels::IntLayout layout;                 // its k: packed columns
  std::shared_ptr<const ColumnOrder> order;  // [layout.k]; null: columns keep their order
};

// The share with columns [column, column + k) of the whole matrix; empty if the cut leaves no group
// that is large enough, so that the matrix must be dequantised. With act-order the columns are
// sorted by groups; if a cut leaves groups of unequal sizes, each is padded to several narrower
// ones, which takes a fifth more memory with groups of 128 on two ranks.
std::optional<IntegerShare> ShareOf(const IntegerFormat& format, size_t column, size_t k);

}  // namespace pinion
