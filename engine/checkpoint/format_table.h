#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace pinion {

// One way in which quantised weights are published, as people call it.
struct PublishedFormat {
  std::string_view quant_method;  // config.json's
  std::string_view name, variants;
};

// Those that ReadScheme reads (scheme.cc).
std::vector<PublishedFormat> PublishedFormats();
// A table in Markdown of these and of GGUF's types: docs/models.md.
std::string FormatTable();
// Likewise: the names that GGUF files give the architectures that are read from them.
std::string GgufTable();

}  // namespace pinion
