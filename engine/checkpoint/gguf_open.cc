// GGUF files, whole or in parts.

#include <charconv>
#include <cstdio>
#include <optional>
#include <unordered_set>

#include "engine/base/strings.h"
#include "engine/checkpoint/gguf.h"

namespace pinion {
namespace {

constexpr std::string_view kSuffix = ".gguf", kOf = "-of-";
constexpr size_t kDigits = 5, kMostParts = 1000;

// "BASE-00002-of-00003.gguf".
struct PartName {
  std::string base;
  size_t count = 0;

  std::string Of(size_t part) const {
    char numbers[64];  // two numbers of up to 20 digits
    std::snprintf(numbers, sizeof(numbers), "-%05zu-of-%05zu.gguf", part + 1, count);
    return base + numbers;
  }
};

// The number of five digits at the end of `text`, which it loses with the dash before it.
std::optional<size_t> TakeNumber(std::string_view& text, std::string_view before) {
  if (text.size() < kDigits + before.size()) return {};
  const std::string_view digits = text.substr(text.size() - kDigits);
  size_t number = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + kDigits, number);
  if (error != std::errc() || end != digits.data() + kDigits) return {};
  text.remove_suffix(kDigits);
  if (!text.ends_with(before)) return {};
  text.remove_suffix(before.size());
  return number;
}

// Empty if the name is not that of a part.
std::optional<PartName> ParsePartName(std::string_view path) {
  if (!path.ends_with(kSuffix)) return {};
  path.remove_suffix(kSuffix.size());
  const auto count = TakeNumber(path, kOf);
  const auto part = count ? TakeNumber(path, "-") : std::nullopt;
  if (!part || *part < 1 || *part > *count || *count > kMostParts) return {};
  return PartName{std::string(path), *count};
}

Result<GgufFile> OpenOne(const std::string& path) {
  PINION_ASSIGN(auto file, MappedFile::Open(path));
  const std::string_view text(reinterpret_cast<const char*>(file->data()), file->size_bytes());
  auto header = ReadGgufHeader(text);
  if (!header) return Unexpected(std::move(header).error().In(path));
  return GgufFile{{std::move(file)}, std::move(*header)};
}

// A part states its number and how many there are.
Status CheckPart(const GgufFile& file, size_t part, size_t count) {
  const Json& metadata = file.header.metadata;
  PINION_ASSIGN(const int64_t number, Optional<int64_t>(metadata, "split.no", 0));
  PINION_ASSIGN(const int64_t parts, Optional<int64_t>(metadata, "split.count", 1));
  if (number == static_cast<int64_t>(part) && parts == static_cast<int64_t>(count)) return {};
  return Fail(ErrorCode::kCorrupt,
              StrCat("it says that it is part ", number + 1, " of ", parts, ", but its name says ",
                     part + 1, " of ", count,
                     "; give the parts the names under which they were published"));
}

// Adds the tensors of another part.
Status JoinPart(GgufFile part, GgufFile& whole) {
  std::unordered_set<std::string_view> seen;
  for (const GgufTensor& tensor : whole.header.tensors) seen.insert(tensor.name);
  for (const GgufTensor& tensor : part.header.tensors)
    if (seen.contains(tensor.name))
      return Fail(ErrorCode::kCorrupt,
                  StrCat("tensor '", tensor.name, "' is in another part as well"));
  for (GgufTensor& tensor : part.header.tensors) {
    tensor.part = whole.files.size();
    whole.header.tensors.push_back(std::move(tensor));
  }
  whole.files.push_back(std::move(part.files[0]));
  return {};
}

Result<GgufFile> OpenPart(const PartName& name, size_t part) {
  const std::string path = name.Of(part);
  auto opened = OpenOne(path);
  if (!opened) {
    if (opened.error().code != ErrorCode::kNotFound) return opened;
    return Fail(ErrorCode::kNotFound, StrCat("part ", part + 1, " of ", name.count, ", ", path,
                                             ", is missing; all parts belong in one folder"));
  }
  if (auto checked = CheckPart(*opened, part, name.count); !checked)
    return Unexpected(std::move(checked).error().In(path));
  return opened;
}

}  // namespace

Result<std::shared_ptr<const GgufFile>> OpenGguf(const std::string& path) {
  const PartName name = ParsePartName(path).value_or(PartName{});
  if (name.count == 0) {
    PINION_ASSIGN(GgufFile file, OpenOne(path));
    if (auto checked = CheckPart(file, 0, 1); !checked)
      return Unexpected(std::move(checked).error().In(path));
    return std::make_shared<const GgufFile>(std::move(file));
  }
  PINION_ASSIGN(GgufFile whole, OpenPart(name, 0));
  for (size_t part = 1; part < name.count; ++part) {
    PINION_ASSIGN(GgufFile opened, OpenPart(name, part));
    if (auto joined = JoinPart(std::move(opened), whole); !joined)
      return Unexpected(std::move(joined).error().In(name.Of(part)));
  }
  return std::make_shared<const GgufFile>(std::move(whole));
}

}  // namespace pinion
