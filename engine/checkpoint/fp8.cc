#include "engine/checkpoint/fp8.h"

#include <algorithm>
#include <cstring>

#include "engine/base/strings.h"
#include "engine/checkpoint/quantised_source.h"

namespace pinion {
namespace {

// One linear: bytes [rows][columns], and a scale for each block of them.
class Fp8Tensor : public QuantisedTensor {
 public:
  // scales: [blocks of rows][groups()]
  Fp8Tensor(StoredTensor bytes, size_t block_rows, size_t block_columns, std::vector<float> scales,
            uint64_t stored_bytes)
      : bytes_(std::move(bytes)), block_rows_(block_rows), scales_(std::move(scales)) {
    rows_ = static_cast<size_t>(bytes_.shape[0]);
    columns_ = static_cast<size_t>(bytes_.shape[1]);
    group_ = block_columns;
    range_ = {-128, 127, false, kernels::ScaleType::kF16, true};
    format_ = "FP8";
    stored_bytes_ = stored_bytes;
  }

  void Read(size_t row, size_t count, int8_t* codes, float* scales, float* offsets) const override {
    std::memcpy(codes, bytes_.data + row * columns_, count * columns_);
    for (size_t r = row; r < row + count; ++r, scales += groups())
      std::copy_n(scales_.data() + r / block_rows_ * groups(), groups(), scales);
    std::fill_n(offsets, count * groups(), 0.0f);
  }
  void Release(size_t row, size_t count) const override {
    bytes_.Release(row * columns_, count * columns_);
  }

 private:
  StoredTensor bytes_;
  size_t block_rows_;
  std::vector<float> scales_;
};

// Scales of one dimension may leave the other out, and a single one both.
Status CheckScales(const StoredTensors& tensors, const char* suffix, const StoredTensor& scales,
                   int64_t rows, int64_t columns) {
  const std::vector<int64_t> whole{rows, columns};
  const bool fits = scales.shape == whole ||
                    (columns == 1 && scales.shape == std::vector<int64_t>{rows}) ||
                    (rows == 1 && columns == 1 && scales.shape.empty());
  if (fits) return {};
  return Fail(ErrorCode::kCorrupt, StrCat("tensor '", tensors.NameOf(suffix), "' has shape ",
                                          ShapeText(scales.shape), ", want ", ShapeText(whole)));
}

Result<std::unique_ptr<QuantisedTensor>> OpenMatrix(const QuantScheme& scheme,
                                                    const StoredTensors& tensors) {
  PINION_ASSIGN(const StoredTensor bytes, tensors.RequireMatrix("weight", "F8_E4M3"));
  const auto block = [](int64_t stated, int64_t all) {
    return static_cast<size_t>(stated > 0 ? stated : all);
  };
  const auto blocks = [](int64_t all, size_t of) {
    return (static_cast<size_t>(all) + of - 1) / of;
  };
  const size_t block_rows = block(scheme.block_rows, bytes.shape[0]);
  const size_t block_columns = block(scheme.block_columns, bytes.shape[1]);
  const char* suffix = tensors.Find("weight_scale_inv") ? "weight_scale_inv" : "weight_scale";
  PINION_ASSIGN(const StoredTensor shape, tensors.Require(suffix));
  PINION_ASSIGN(const StoredTensor stored, tensors.RequireFloats(suffix, shape.shape));
  const size_t down = blocks(bytes.shape[0], block_rows);
  const size_t across = blocks(bytes.shape[1], block_columns);
  PINION_TRY(CheckScales(tensors, suffix, stored, static_cast<int64_t>(down),
                         static_cast<int64_t>(across)));
  std::vector<float> scales(down * across);
  ReadFloats(stored, 0, scales.size(), scales.data());
  return std::make_unique<Fp8Tensor>(bytes, block_rows, block_columns, std::move(scales),
                                     bytes.bytes() + stored.bytes());
}

}  // namespace

Result<std::unique_ptr<TensorSource>> OpenFp8Linears(std::unique_ptr<TensorSource> stored,
                                                     const DecoderSpec& spec,
                                                     const QuantScheme& scheme) {
  constexpr size_t kSuffix = std::string_view(".weight").size();
  const StoredLookup lookup = [&](const std::string& name) { return stored->Stored(name); };
  QuantisedTensors matrices;
  std::vector<std::string> names = LinearWeights(spec);
  if (!spec.tied_head && spec.has_head()) names.push_back(spec.names.head);
  for (const std::string& name : names) {
    const auto weight = stored->Stored(name);
    if (!weight || weight->dtype != "F8_E4M3") continue;
    const std::string module = name.substr(0, name.size() - kSuffix);
    PINION_ASSIGN(auto matrix, OpenMatrix(scheme, StoredTensors(module, lookup)));
    matrices.emplace(name, std::move(matrix));
  }
  return WithQuantised(std::move(stored), std::move(matrices));
}

}  // namespace pinion
