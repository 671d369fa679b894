#include <cstring>
#include <string>

#include "engine/base/check.h"
#include "engine/checkpoint/safetensors_header.h"
#include "tests/fuzz/fuzz.h"

namespace pinion::fuzz {
namespace {

void Read(std::string_view file) {
  const auto entries = ReadSafetensorsHeader(file);
  if (!entries) {
    CHECK(!entries.error().message.empty());
    return;
  }
  for (const HeaderEntry& entry : *entries) {
    CHECK(entry.begin <= entry.end && entry.end <= file.size()) << entry.name;
    for (const int64_t size : entry.shape) CHECK(size >= 0) << entry.name;
  }
}

}  // namespace

void Safetensors(std::string_view file) {
  Read(file);
  // As a header, since few mutations leave a length as it must be; with something for it to name.
  constexpr size_t kDataBytes = 64;
  const uint64_t length = file.size();
  std::string whole(sizeof length, '\0');
  std::memcpy(whole.data(), &length, sizeof length);
  whole += file;
  whole.append(kDataBytes, '\0');
  Read(whole);
}

}  // namespace pinion::fuzz
