#include <algorithm>

#include "engine/serve/http.h"

namespace pinion {
namespace {

bool SameName(std::string_view a, std::string_view b) {
  const auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; };
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [&](char x, char y) { return lower(x) == lower(y); });
}

}  // namespace

std::string_view HttpHeaders::Find(std::string_view name) const {
  for (const auto& [key, value] : fields_)
    if (SameName(key, name)) return value;
  return "";
}

size_t HttpHeaders::Count(std::string_view name) const {
  return static_cast<size_t>(std::count_if(fields_.begin(), fields_.end(), [&](const auto& field) {
    return SameName(field.first, name);
  }));
}

}  // namespace pinion
