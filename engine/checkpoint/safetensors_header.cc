#include "engine/checkpoint/safetensors_header.h"

#include <algorithm>
#include <cstring>
#include <unordered_set>

#include "engine/base/json.h"
#include "engine/base/strings.h"

namespace pinion {
namespace {

constexpr size_t kLengthBytes = 8;                 // little-endian length of the JSON that follows
constexpr uint64_t kMaxHeaderBytes = 100'000'000;  // the format's own limit
constexpr size_t kMaxEntryDimensions = 16;

tl::unexpected<Error> CorruptHeader(std::string message) {
  return Fail(ErrorCode::kCorrupt, std::move(message));
}

// Bits of an element; 0 if the dtype is unknown (then only the offsets can be checked).
uint64_t BitsOf(std::string_view dtype) {
  struct Bits {
    std::string_view dtype;
    uint64_t bits;
  };
  static constexpr Bits kBits[] = {
      {"BOOL", 8},    {"U8", 8},   {"I8", 8},   {"F8_E5M2", 8}, {"F8_E4M3", 8},
      {"F8_E8M0", 8}, {"U16", 16}, {"I16", 16}, {"F16", 16},    {"BF16", 16},
      {"U32", 32},    {"I32", 32}, {"F32", 32}, {"U64", 64},    {"I64", 64},
      {"F64", 64},    {"C64", 64}, {"F4", 4},   {"F6_E2M3", 6}, {"F6_E3M2", 6},
  };
  for (const Bits& known : kBits)
    if (known.dtype == dtype) return known.bits;
  return 0;
}

// `value` as a list of whole numbers >= 0.
Result<std::vector<int64_t>> ReadNumbers(const Json& entry, std::string_view key) {
  const Json* value = entry.Find(key);
  if (!value || !value->is_array()) return CorruptHeader(StrCat("'", key, "' is not a list"));
  if (value->array().size() > kMaxEntryDimensions)
    return CorruptHeader(StrCat("'", key, "' has ", value->array().size(),
                                " entries, want at most ", kMaxEntryDimensions));
  std::vector<int64_t> numbers;
  for (const Json& number : value->array()) {
    if (!number.is_int() || number.integer() < 0)
      return CorruptHeader(
          StrCat("'", key, "' holds ", number.Dump().substr(0, 60), ", want whole numbers from 0"));
    numbers.push_back(number.integer());
  }
  return numbers;
}

Status CheckSize(const HeaderEntry& entry) {
  uint64_t bits = BitsOf(entry.dtype);
  const bool known = bits != 0;
  if (!known) bits = 1;
  for (const int64_t size : entry.shape)
    if (__builtin_mul_overflow(bits, static_cast<uint64_t>(size), &bits) || bits >> 63)
      return CorruptHeader("the product of its dimensions overflows");
  const uint64_t bytes = bits / 8 + (bits % 8 != 0);
  if (known && entry.end - entry.begin != bytes)
    return CorruptHeader(StrCat("it takes ", entry.end - entry.begin, " bytes, but ", entry.dtype,
                                " of its shape takes ", bytes));
  return {};
}

Result<HeaderEntry> ReadEntry(const std::string& name, const Json& value, uint64_t data_begin,
                              uint64_t data_bytes) {
  HeaderEntry entry;
  entry.name = name;
  if (!value.is_object()) return CorruptHeader(StrCat("its entry is ", value.type_name()));
  PINION_ASSIGN(entry.dtype, Require<std::string>(value, "dtype"));
  PINION_ASSIGN(entry.shape, ReadNumbers(value, "shape"));
  PINION_ASSIGN(const auto offsets, ReadNumbers(value, "data_offsets"));
  if (offsets.size() != 2)
    return CorruptHeader(StrCat("'data_offsets' has ", offsets.size(), " entries, want 2"));
  const auto begin = static_cast<uint64_t>(offsets[0]), end = static_cast<uint64_t>(offsets[1]);
  if (begin > end || end > data_bytes)
    return CorruptHeader(StrCat("its data is stated to be at [", begin, ", ", end, ") of ",
                                data_bytes, " bytes: the file is truncated or broken"));
  entry.begin = data_begin + begin;
  entry.end = data_begin + end;
  PINION_TRY(CheckSize(entry));
  return entry;
}

Status CheckOverlaps(const std::vector<HeaderEntry>& entries) {
  std::vector<const HeaderEntry*> order;
  for (const HeaderEntry& entry : entries)
    if (entry.end > entry.begin) order.push_back(&entry);
  std::sort(order.begin(), order.end(), [](auto* a, auto* b) { return a->begin < b->begin; });
  for (size_t i = 1; i < order.size(); ++i)
    if (order[i]->begin < order[i - 1]->end)
      return CorruptHeader(
          StrCat("tensor '", order[i]->name, "' overlaps '", order[i - 1]->name, "'"));
  return {};
}

}  // namespace

Result<std::vector<HeaderEntry>> ReadSafetensorsHeader(std::string_view file) {
  if (file.size() < kLengthBytes)
    return CorruptHeader(
        StrCat("it has ", file.size(), " bytes, too few for a safetensors header"));
  uint64_t length;
  std::memcpy(&length, file.data(), kLengthBytes);
  if (length > kMaxHeaderBytes || length > file.size() - kLengthBytes)
    return CorruptHeader(StrCat("its header is stated to take ", length, " bytes of ", file.size(),
                                ": the file is truncated or not a safetensors file"));
  auto header = Json::Parse(file.substr(kLengthBytes, length));
  if (!header) return Unexpected(std::move(header).error().In("its header"));
  if (!header->is_object())
    return CorruptHeader(StrCat("its header is ", header->type_name(), ", want an object"));

  const uint64_t data_begin = kLengthBytes + length, data_bytes = file.size() - data_begin;
  std::vector<HeaderEntry> entries;
  std::unordered_set<std::string_view> seen;
  for (const auto& [name, value] : header->object()) {
    if (!seen.insert(name).second)
      return CorruptHeader(StrCat("'", name, "' occurs twice in its header"));
    if (name == "__metadata__") continue;
    auto entry = ReadEntry(name, value, data_begin, data_bytes);
    if (!entry) return Unexpected(std::move(entry).error().In(StrCat("tensor '", name, "'")));
    entries.push_back(std::move(*entry));
  }
  PINION_TRY(CheckOverlaps(entries));
  return entries;
}

}  // namespace pinion
