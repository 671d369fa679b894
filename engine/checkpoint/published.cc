#include "engine/checkpoint/published.h"

#include <cmath>
#include <cstring>

#include "engine/base/strings.h"
#include "kernels/types.h"

namespace pinion {
namespace {

constexpr size_t kInWord = 8;  // codes of 4 bits
constexpr int kGptqZero = 8;   // of symmetric checkpoints

// A whole matrix in memory.
struct Matrix {
  size_t rows, columns, groups;
  std::vector<int8_t> codes;           // [rows][columns]
  std::vector<float> scales, offsets;  // [rows][groups]

  explicit Matrix(const QuantisedTensor& tensor)
      : rows(tensor.rows()),
        columns(tensor.columns()),
        groups(tensor.groups()),
        codes(rows * columns),
        scales(rows * groups),
        offsets(rows * groups) {
    tensor.Read(0, rows, codes.data(), scales.data(), offsets.data());
  }
  // weight = scale * (code - zero)
  int Zero(size_t row, size_t group) const {
    const size_t at = row * groups + group;
    return static_cast<int>(std::lround(-offsets[at] / scales[at]));
  }
};

template <typename T>
std::vector<std::byte> BytesOf(const std::vector<T>& values) {
  std::vector<std::byte> bytes(values.size() * sizeof(T));
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

int64_t Extent(size_t value) { return static_cast<int64_t>(value); }

// The place in its word of output `at` of eight, in AWQ's order.
size_t AwqPlace(size_t at) { return at % 2 * 4 + at / 2; }

std::vector<std::byte> AwqCodes(const QuantisedTensor& tensor) {
  const Matrix matrix(tensor);
  const size_t words = matrix.rows / kInWord;
  std::vector<uint32_t> packed(matrix.columns * words);
  for (size_t row = 0; row < matrix.rows; ++row)
    for (size_t k = 0; k < matrix.columns; ++k)
      packed[k * words + row / kInWord] |=
          static_cast<uint32_t>(matrix.codes[row * matrix.columns + k])
          << (4 * AwqPlace(row % kInWord));
  return BytesOf(packed);
}

std::vector<std::byte> AwqZeros(const QuantisedTensor& tensor) {
  const Matrix matrix(tensor);
  const size_t words = matrix.rows / kInWord;
  std::vector<uint32_t> packed(matrix.groups * words);
  for (size_t row = 0; row < matrix.rows; ++row)
    for (size_t group = 0; group < matrix.groups; ++group)
      packed[group * words + row / kInWord] |= static_cast<uint32_t>(matrix.Zero(row, group))
                                               << (4 * AwqPlace(row % kInWord));
  return BytesOf(packed);
}

std::vector<std::byte> GptqCodes(const QuantisedTensor& tensor) {
  const Matrix matrix(tensor);
  std::vector<uint32_t> packed(matrix.columns / kInWord * matrix.rows);
  for (size_t row = 0; row < matrix.rows; ++row)
    for (size_t k = 0; k < matrix.columns; ++k)
      packed[k / kInWord * matrix.rows + row] |=
          static_cast<uint32_t>(matrix.codes[row * matrix.columns + k] + kGptqZero)
          << (4 * (k % kInWord));
  return BytesOf(packed);
}

// float16, one row per group.
std::vector<std::byte> TransposedScales(const QuantisedTensor& tensor) {
  const Matrix matrix(tensor);
  std::vector<uint16_t> scales(matrix.groups * matrix.rows);
  for (size_t row = 0; row < matrix.rows; ++row)
    for (size_t group = 0; group < matrix.groups; ++group)
      scales[group * matrix.rows + row] =
          kernels::ToF16(matrix.scales[row * matrix.groups + group]).bits;
  return BytesOf(scales);
}

uint64_t ElementBytes(const std::string& dtype) {
  return dtype == "I8" ? 1 : dtype == "F16" ? 2 : 4;
}

// Collects the tensors of one linear.
class Publisher {
 public:
  Publisher(const std::string& module, const QuantisedTensor& tensor)
      : module_(module), tensor_(tensor) {}

  template <typename Make>
  void Add(const char* suffix, const char* dtype, std::vector<int64_t> shape, Make make) {
    PublishedTensor added{StrCat(module_, ".", suffix), dtype, std::move(shape), 0, {}};
    added.bytes = ElementBytes(added.dtype);
    for (const int64_t size : added.shape) added.bytes *= static_cast<uint64_t>(size);
    added.data = [make, &tensor = tensor_] { return make(tensor); };
    tensors_.push_back(std::move(added));
  }
  std::vector<PublishedTensor> Take() { return std::move(tensors_); }

 private:
  const std::string& module_;
  const QuantisedTensor& tensor_;
  std::vector<PublishedTensor> tensors_;
};

Status CheckWords(const std::string& module, const QuantisedTensor& tensor) {
  if (tensor.rows() % kInWord == 0 && tensor.columns() % kInWord == 0 &&
      tensor.columns() % tensor.group() == 0)
    return {};
  return Fail(ErrorCode::kUnsupported,
              StrCat("'", module, "' is ", tensor.rows(), " x ", tensor.columns(),
                     ", but the format needs outputs in multiples of ", kInWord,
                     " and inputs in multiples of the group, ", tensor.group(),
                     "; take w8a8, or a group that divides it"));
}

}  // namespace

Result<std::vector<PublishedTensor>> PublishLinear(const QuantScheme& scheme,
                                                   const std::string& module,
                                                   const QuantisedTensor& tensor) {
  const int64_t rows = Extent(tensor.rows()), columns = Extent(tensor.columns());
  const int64_t groups = Extent(tensor.groups()), word = Extent(kInWord);
  Publisher publisher(module, tensor);
  if (scheme.method == QuantMethod::kIntQuantized) {
    publisher.Add("weight", "I8", {rows, columns},
                  [](const QuantisedTensor& t) { return BytesOf(Matrix(t).codes); });
    publisher.Add("weight_scale", "F32", {rows, 1},
                  [](const QuantisedTensor& t) { return BytesOf(Matrix(t).scales); });
    return publisher.Take();
  }
  PINION_TRY(CheckWords(module, tensor));
  const std::vector<int64_t> zeros{groups, rows / word};
  if (scheme.method == QuantMethod::kAwq) {
    publisher.Add("qweight", "I32", {columns, rows / word}, AwqCodes);
    publisher.Add("qzeros", "I32", zeros, AwqZeros);
  } else {
    publisher.Add("qweight", "I32", {columns / word, rows}, GptqCodes);
    // GPTQ version 1 stores zeros minus one.
    publisher.Add("qzeros", "I32", zeros, [](const QuantisedTensor& t) {
      return BytesOf(std::vector<uint32_t>(t.groups() * t.rows() / kInWord, 0x77777777));
    });
    publisher.Add("g_idx", "I32", {columns}, [](const QuantisedTensor& t) {
      std::vector<uint32_t> order(t.columns());
      for (size_t k = 0; k < order.size(); ++k) order[k] = static_cast<uint32_t>(k / t.group());
      return BytesOf(order);
    });
  }
  publisher.Add("scales", "F16", {groups, rows}, TransposedScales);
  return publisher.Take();
}

Json PublishedConfig(const QuantScheme& scheme, const std::vector<std::string>& plain) {
  if (scheme.method == QuantMethod::kAwq)
    return Json::Object{{"quant_method", "awq"}, {"version", "gemm"},
                        {"bits", scheme.bits},   {"group_size", scheme.group},
                        {"zero_point", true},    {"modules_to_not_convert", plain}};
  if (scheme.method == QuantMethod::kGptq)
    return Json::Object{
        {"quant_method", "gptq"}, {"bits", scheme.bits}, {"group_size", scheme.group},
        {"desc_act", false},      {"sym", true},         {"checkpoint_format", "gptq"}};
  const Json weights = Json::Object{{"num_bits", 8},
                                    {"type", "int"},
                                    {"symmetric", true},
                                    {"strategy", "channel"},
                                    {"dynamic", false}};
  const Json activations = Json::Object{{"num_bits", 8},
                                        {"type", "int"},
                                        {"symmetric", true},
                                        {"strategy", "token"},
                                        {"dynamic", true}};
  const Json group = Json::Object{
      {"targets", Json::Array{"Linear"}}, {"weights", weights}, {"input_activations", activations}};
  return Json::Object{{"quant_method", "compressed-tensors"},
                      {"format", "int-quantized"},
                      {"quantization_status", "compressed"},
                      {"ignore", plain},
                      {"config_groups", Json::Object{{"group_0", group}}}};
}

}  // namespace pinion
