#include "engine/checkpoint/fp8.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>

#include "engine/base/strings.h"
#include "engine/checkpoint/quantised_source.h"

namespace pinion {
namespace {

std::array<float, 256> AllE4m3() {
  std::array<float, 256> values{};
  for (int byte = 0; byte < 256; ++byte) {
    const int exponent = byte >> 3 & 15, mantissa = byte & 7;
    const float size = exponent == 0 ? std::ldexp(static_cast<float>(mantissa), -9)
                                     : std::ldexp(static_cast<float>(8 + mantissa), exponent - 10);
    const bool is_nan = (byte & 0x7f) == 0x7f;
    values[static_cast<size_t>(byte)] = is_nan        ? std::numeric_limits<float>::quiet_NaN()
                                        : byte & 0x80 ? -size
                                                      : size;
  }
  return values;
}

// One linear: bytes [rows][columns], and a scale for each block of them.
struct Fp8Matrix {
  StoredTensor bytes;
  size_t rows = 0, columns = 0;
  size_t block_rows = 0, block_columns = 0;
  std::vector<float> scales;  // [blocks of rows][blocks of columns]

  size_t column_blocks() const { return (columns + block_columns - 1) / block_columns; }

  // Rows [row, row + count) as float32.
  void Read(size_t row, size_t count, float* dst) const {
    for (size_t r = row; r < row + count; ++r) {
      const auto* src = reinterpret_cast<const uint8_t*>(bytes.data) + r * columns;
      const float* of_row = scales.data() + r / block_rows * column_blocks();
      for (size_t c = 0; c < columns; ++c) *dst++ = E4m3(src[c]) * of_row[c / block_columns];
    }
  }
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

Result<Fp8Matrix> OpenMatrix(const QuantScheme& scheme, const StoredTensors& tensors) {
  Fp8Matrix matrix;
  PINION_ASSIGN(matrix.bytes, tensors.RequireMatrix("weight", "F8_E4M3"));
  matrix.rows = static_cast<size_t>(matrix.bytes.shape[0]);
  matrix.columns = static_cast<size_t>(matrix.bytes.shape[1]);
  const auto block = [](int64_t stated, size_t all) {
    return stated > 0 ? static_cast<size_t>(stated) : all;
  };
  matrix.block_rows = block(scheme.block_rows, matrix.rows);
  matrix.block_columns = block(scheme.block_columns, matrix.columns);
  const char* suffix = tensors.Find("weight_scale_inv") ? "weight_scale_inv" : "weight_scale";
  PINION_ASSIGN(const StoredTensor shape, tensors.Require(suffix));
  PINION_ASSIGN(const StoredTensor scales, tensors.RequireFloats(suffix, shape.shape));
  const size_t row_blocks = (matrix.rows + matrix.block_rows - 1) / matrix.block_rows;
  PINION_TRY(CheckScales(tensors, suffix, scales, static_cast<int64_t>(row_blocks),
                         static_cast<int64_t>(matrix.column_blocks())));
  matrix.scales.resize(row_blocks * matrix.column_blocks());
  ReadFloats(scales, 0, matrix.scales.size(), matrix.scales.data());
  return matrix;
}

class Fp8Source : public TensorSource {
 public:
  using Matrices = std::map<std::string, Fp8Matrix>;

  Fp8Source(std::unique_ptr<TensorSource> plain, Matrices matrices)
      : plain_(std::move(plain)), matrices_(std::move(matrices)) {}

  Result<TensorInfo> Find(const std::string& name) const override {
    const Fp8Matrix* matrix = MatrixOf(name);
    if (!matrix) return plain_->Find(name);
    return TensorInfo{name, kernels::Dtype::kF32, matrix->bytes.shape, ""};
  }
  std::vector<std::string> Names() const override {
    std::vector<std::string> names = plain_->Names();
    for (const auto& [name, matrix] : matrices_) names.push_back(name);
    std::sort(names.begin(), names.end());
    names.erase(std::unique(names.begin(), names.end()), names.end());
    return names;
  }
  const std::byte* Rows(const TensorInfo& info, size_t row, size_t count,
                        std::vector<std::byte>& scratch) const override {
    const Fp8Matrix* matrix = MatrixOf(info.name);
    if (!matrix) return plain_->Rows(info, row, count, scratch);
    scratch.resize(std::max(scratch.size(), count * matrix->columns * sizeof(float)));
    matrix->Read(row, count, reinterpret_cast<float*>(scratch.data()));
    return scratch.data();
  }
  std::optional<StoredTensor> Stored(const std::string& name) const override {
    return plain_->Stored(name);
  }
  void Release(const TensorInfo& info, size_t row, size_t count) const override {
    const Fp8Matrix* matrix = MatrixOf(info.name);
    if (!matrix) return plain_->Release(info, row, count);
    matrix->bytes.Release(row * matrix->columns, count * matrix->columns);
  }

 private:
  const Fp8Matrix* MatrixOf(const std::string& name) const {
    const auto found = matrices_.find(name);
    return found == matrices_.end() ? nullptr : &found->second;
  }

  std::unique_ptr<TensorSource> plain_;
  Matrices matrices_;
};

}  // namespace

float E4m3(uint8_t byte) {
  static const std::array<float, 256> kValues = AllE4m3();
  return kValues[byte];
}

Result<std::unique_ptr<TensorSource>> OpenFp8Linears(std::unique_ptr<TensorSource> stored,
                                                     const DecoderSpec& spec,
                                                     const QuantScheme& scheme) {
  constexpr size_t kSuffix = std::string_view(".weight").size();
  const StoredLookup lookup = [&](const std::string& name) { return stored->Stored(name); };
  Fp8Source::Matrices matrices;
  std::vector<std::string> names = LinearWeights(spec);
  if (!spec.tied_head && spec.has_head()) names.push_back(spec.names.head);
  for (const std::string& name : names) {
    const auto weight = stored->Stored(name);
    if (!weight || weight->dtype != "F8_E4M3") continue;
    const std::string module = name.substr(0, name.size() - kSuffix);
    PINION_ASSIGN(Fp8Matrix matrix, OpenMatrix(scheme, StoredTensors(module, lookup)));
    matrices.emplace(name, std::move(matrix));
  }
  return std::make_unique<Fp8Source>(std::move(stored), std::move(matrices));
}

}  // namespace pinion
