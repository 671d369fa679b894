#include "engine/checkpoint/gguf_header.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <functional>
#include <unordered_set>

#include "engine/base/strings.h"

namespace pinion {
namespace {

constexpr size_t kMaxTensorDimensions = 4;
constexpr size_t kMaxTensorName = 256;  // ggml's own limit is 64
constexpr size_t kShownKey = 80;
constexpr uint64_t kMaxExtent = uint64_t{1} << 40;  // of one dimension
constexpr uint64_t kDefaultAlignment = 32, kMaxAlignment = 1 << 16;

tl::unexpected<Error> Corrupt(std::string message) {
  return Fail(ErrorCode::kCorrupt, std::move(message));
}

bool IsPrintable(char c) { return c >= ' ' && c <= '~'; }

// A key as errors quote it: whatever the file says, a part of one line.
std::string Shown(std::string_view key) {
  std::string shown(key.substr(0, kShownKey));
  std::replace_if(shown.begin(), shown.end(), std::not_fn(IsPrintable), '?');
  return shown;
}

// Values of metadata, by the number that stands before them.
enum ValueType : uint32_t {
  kUint8,
  kInt8,
  kUint16,
  kInt16,
  kUint32,
  kInt32,
  kFloat32,
  kBool,
  kString,
  kArray,
  kUint64,
  kInt64,
  kFloat64
};

// Reads from the front of the file; every read is checked against what is left.
class Reader {
 public:
  explicit Reader(std::string_view file) : file_(file) {}
  size_t at() const { return at_; }
  size_t left() const { return file_.size() - at_; }

  template <typename T>
  Result<T> Number(std::string_view what) {
    PINION_ASSIGN(const std::string_view bytes, Take(sizeof(T), what));
    T value;
    std::memcpy(&value, bytes.data(), sizeof(T));
    return value;
  }
  Result<std::string> Text(std::string_view what) {
    PINION_ASSIGN(const uint64_t length, Number<uint64_t>(what));
    PINION_ASSIGN(const std::string_view text, Take(length, what));
    return std::string(text);
  }
  Result<std::string_view> Take(uint64_t bytes, std::string_view what) {
    if (bytes > left())
      return Corrupt(StrCat(what, " takes ", bytes, " bytes at ", at_, " of ", file_.size(),
                            ": the file is truncated or broken"));
    const std::string_view taken = file_.substr(at_, bytes);
    at_ += bytes;
    return taken;
  }

 private:
  std::string_view file_;
  size_t at_ = 0;
};

template <typename T>
Result<Json> NumberValue(Reader& reader, std::string_view key) {
  PINION_ASSIGN(const T value, reader.Number<T>(key));
  if constexpr (std::is_floating_point_v<T>) {
    return Json(static_cast<double>(value));
  } else if constexpr (std::is_same_v<T, uint64_t>) {
    return Json(value);
  } else {
    return Json(static_cast<int64_t>(value));
  }
}

Result<Json> BoolValue(Reader& reader, std::string_view key) {
  PINION_ASSIGN(const uint8_t value, reader.Number<uint8_t>(key));
  if (value > 1) return Corrupt(StrCat("'", key, "' is ", int{value}, ", want 0 or 1"));
  return Json(value == 1);
}

Result<Json> StringValue(Reader& reader, std::string_view key) {
  PINION_ASSIGN(std::string text, reader.Text(key));
  return Json(std::move(text));
}

using ReadValueFn = Result<Json> (*)(Reader&, std::string_view);

// The reader of a type and the fewest bytes that a value takes; null if values are not plain.
struct ValueReader {
  ReadValueFn read = nullptr;
  size_t fewest_bytes = 0;
};
ValueReader ReaderOf(uint32_t type) {
  switch (type) {
    case kUint8:
      return {NumberValue<uint8_t>, 1};
    case kInt8:
      return {NumberValue<int8_t>, 1};
    case kUint16:
      return {NumberValue<uint16_t>, 2};
    case kInt16:
      return {NumberValue<int16_t>, 2};
    case kUint32:
      return {NumberValue<uint32_t>, 4};
    case kInt32:
      return {NumberValue<int32_t>, 4};
    case kFloat32:
      return {NumberValue<float>, 4};
    case kBool:
      return {BoolValue, 1};
    case kString:
      return {StringValue, 8};
    case kUint64:
      return {NumberValue<uint64_t>, 8};
    case kInt64:
      return {NumberValue<int64_t>, 8};
    case kFloat64:
      return {NumberValue<double>, 8};
    default:
      return {};
  }
}

Result<Json> ReadArray(Reader& reader, std::string_view key) {
  PINION_ASSIGN(const uint32_t type, reader.Number<uint32_t>(key));
  PINION_ASSIGN(const uint64_t count, reader.Number<uint64_t>(key));
  const ValueReader value = ReaderOf(type);
  if (!value.read)
    return Corrupt(
        StrCat("'", key, "' is an array of type ", type, ", want one from 0 to 12 but 9"));
  if (count > reader.left() / value.fewest_bytes)
    return Corrupt(StrCat("'", key, "' is stated to have ", count, " values, but ", reader.left(),
                          " bytes are left: the file is truncated or broken"));
  Json::Array values;
  values.reserve(count);
  for (uint64_t i = 0; i < count; ++i) {
    PINION_ASSIGN(Json element, value.read(reader, key));
    values.push_back(std::move(element));
  }
  return Json(std::move(values));
}

Result<Json> ReadMetadata(Reader& reader, uint64_t count) {
  Json::Object metadata;
  std::unordered_set<std::string> seen;
  for (uint64_t i = 0; i < count; ++i) {
    PINION_ASSIGN(std::string key, reader.Text(StrCat("metadata key ", i)));
    const std::string shown = Shown(key);
    if (!seen.insert(key).second)
      return Corrupt(StrCat("'", shown, "' occurs twice in its metadata"));
    PINION_ASSIGN(const uint32_t type, reader.Number<uint32_t>(shown));
    const ReadValueFn read = type == kArray ? ReadArray : ReaderOf(type).read;
    if (!read) return Corrupt(StrCat("'", shown, "' has type ", type, ", want 0 to 12"));
    PINION_ASSIGN(Json value, read(reader, shown));
    metadata.emplace_back(std::move(key), std::move(value));
  }
  return Json(std::move(metadata));
}

Result<std::vector<int64_t>> ReadShape(Reader& reader) {
  PINION_ASSIGN(const uint32_t dimensions, reader.Number<uint32_t>("its number of dimensions"));
  if (dimensions < 1 || dimensions > kMaxTensorDimensions)
    return Corrupt(StrCat("it has ", dimensions, " dimensions, want 1 to ", kMaxTensorDimensions));
  std::vector<int64_t> shape(dimensions);
  for (size_t i = dimensions; i > 0; --i) {  // the file begins with the fastest
    PINION_ASSIGN(const uint64_t extent, reader.Number<uint64_t>("a dimension"));
    if (extent < 1 || extent > kMaxExtent)
      return Corrupt(StrCat("a dimension is ", extent, ", want 1 to ", kMaxExtent));
    shape[i - 1] = static_cast<int64_t>(extent);
  }
  return shape;
}

// The bytes of a shape; the error says why there is no such number.
Result<uint64_t> BytesOf(const GgufTensor& tensor) {
  const auto row = static_cast<uint64_t>(tensor.shape.back());
  if (row % tensor.type->elements != 0)
    return Corrupt(StrCat("its rows have ", row, " elements, want a multiple of ",
                          tensor.type->name, "'s ", tensor.type->elements));
  uint64_t bytes = row / tensor.type->elements * tensor.type->bytes;
  for (size_t i = 0; i + 1 < tensor.shape.size(); ++i)
    if (__builtin_mul_overflow(bytes, static_cast<uint64_t>(tensor.shape[i]), &bytes))
      return Corrupt("the product of its dimensions overflows");
  return bytes;
}

Result<std::string> ReadName(Reader& reader, uint64_t index) {
  PINION_ASSIGN(std::string name, reader.Text(StrCat("the name of tensor ", index)));
  if (!name.empty() && name.size() <= kMaxTensorName &&
      std::all_of(name.begin(), name.end(), IsPrintable))
    return name;
  return Corrupt(StrCat("the name of tensor ", index, " is '", Shown(name), "' of ", name.size(),
                        " bytes, want 1 to ", kMaxTensorName, " printable ASCII characters"));
}

Result<GgufTensor> ReadTensor(Reader& reader, uint64_t index) {
  GgufTensor tensor;
  PINION_ASSIGN(tensor.name, ReadName(reader, index));
  const auto in_tensor = [&](Error error) {
    return Unexpected(std::move(error).In(StrCat("tensor '", tensor.name, "'")));
  };
  auto shape = ReadShape(reader);
  if (!shape) return in_tensor(std::move(shape).error());
  tensor.shape = std::move(*shape);
  PINION_ASSIGN(const uint32_t type, reader.Number<uint32_t>("a tensor's type"));
  tensor.type = FindGgufType(type);
  if (!tensor.type)
    return in_tensor(
        {ErrorCode::kUnsupported, StrCat("it is ", GgufTypeName(type), ", want ", GgufTypeNames(),
                                         "; use a file whose tensors have these types")});
  auto bytes = BytesOf(tensor);
  if (!bytes) return in_tensor(std::move(bytes).error());
  tensor.bytes = *bytes;
  PINION_ASSIGN(tensor.begin, reader.Number<uint64_t>("a tensor's offset"));
  return tensor;
}

// Makes offsets count from the beginning of the file.
Status Place(std::vector<GgufTensor>& tensors, uint64_t data_begin, uint64_t data_bytes,
             uint64_t alignment) {
  for (GgufTensor& tensor : tensors) {
    if (tensor.begin % alignment != 0)
      return Corrupt(StrCat("tensor '", tensor.name, "' begins at ", tensor.begin,
                            ", want a multiple of ", alignment));
    if (tensor.begin > data_bytes || tensor.bytes > data_bytes - tensor.begin)
      return Corrupt(StrCat("tensor '", tensor.name, "' takes ", tensor.bytes, " bytes at ",
                            tensor.begin, " of ", data_bytes, ": the file is truncated or broken"));
    tensor.begin += data_begin;
  }
  std::vector<const GgufTensor*> order;
  for (const GgufTensor& tensor : tensors) order.push_back(&tensor);
  std::sort(order.begin(), order.end(), [](auto* a, auto* b) { return a->begin < b->begin; });
  for (size_t i = 1; i < order.size(); ++i)
    if (order[i]->begin < order[i - 1]->begin + order[i - 1]->bytes)
      return Corrupt(StrCat("tensor '", order[i]->name, "' overlaps '", order[i - 1]->name, "'"));
  return {};
}

Result<uint64_t> Alignment(const Json& metadata) {
  PINION_ASSIGN(const int64_t alignment,
                Optional<int64_t>(metadata, "general.alignment", kDefaultAlignment));
  if (alignment < 1 || alignment > static_cast<int64_t>(kMaxAlignment) ||
      !std::has_single_bit(static_cast<uint64_t>(alignment)))
    return Corrupt(StrCat("'general.alignment' is ", alignment, ", want a power of two up to ",
                          kMaxAlignment));
  return static_cast<uint64_t>(alignment);
}

Status CheckVersion(Reader& reader) {
  PINION_ASSIGN(const std::string_view magic, reader.Take(4, "its first word"));
  if (magic != "GGUF") return Corrupt("it does not begin with 'GGUF': it is not a GGUF file");
  PINION_ASSIGN(const uint32_t version, reader.Number<uint32_t>("its version"));
  if (version == 2 || version == 3) return {};
  return Fail(ErrorCode::kUnsupported,
              StrCat("its version is ", version,
                     ", want 2 or 3 in little-endian; convert it with a current llama.cpp"));
}

}  // namespace

const GgufTensor* GgufHeader::Find(std::string_view name) const {
  for (const GgufTensor& tensor : tensors)
    if (tensor.name == name) return &tensor;
  return nullptr;
}

Result<GgufHeader> ReadGgufHeader(std::string_view file) {
  Reader reader(file);
  PINION_TRY(CheckVersion(reader));
  PINION_ASSIGN(const uint64_t tensors, reader.Number<uint64_t>("its number of tensors"));
  PINION_ASSIGN(const uint64_t values, reader.Number<uint64_t>("its number of metadata values"));
  GgufHeader header;
  PINION_ASSIGN(header.metadata, ReadMetadata(reader, values));
  PINION_ASSIGN(const uint64_t alignment, Alignment(header.metadata));
  std::unordered_set<std::string> seen;
  for (uint64_t i = 0; i < tensors; ++i) {
    PINION_ASSIGN(GgufTensor tensor, ReadTensor(reader, i));
    if (!seen.insert(tensor.name).second)
      return Corrupt(StrCat("tensor '", tensor.name, "' occurs twice"));
    header.tensors.push_back(std::move(tensor));
  }
  const uint64_t data_begin = (reader.at() + alignment - 1) / alignment * alignment;
  const uint64_t data_bytes = data_begin < file.size() ? file.size() - data_begin : 0;
  PINION_TRY(Place(header.tensors, data_begin, data_bytes, alignment));
  return header;
}

}  // namespace pinion
