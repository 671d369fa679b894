#include "engine/checkpoint/format_table.h"

#include <set>
#include <string>
#include <vector>

#include "engine/base/strings.h"
#include "engine/checkpoint/gguf_architectures.h"
#include "engine/checkpoint/gguf_blocks.h"

namespace pinion {
namespace {

std::string RowOf(const std::vector<std::string>& cells) {
  return StrCat("| ", Join(cells, " | "), " |\n");
}

std::string Code(std::string_view name) { return StrCat("`", name, "`"); }

}  // namespace

std::string FormatTable() {
  std::string table =
      RowOf({"format", "`quant_method` of config.json", "what is read"}) + "|---|---|---|\n";
  for (const PublishedFormat& format : PublishedFormats())
    table +=
        RowOf({std::string(format.name), Code(format.quant_method), std::string(format.variants)});
  return table + RowOf({"GGUF, whole or in parts (any part names the whole)", "none",
                        StrCat(GgufTypeNames(), ", with the tokenizer of the file")});
}

std::string GgufTable() {
  std::string table = RowOf({"`general.architecture`", "architectures"}) + "|---|---|\n";
  for (const std::string& name : Split(GgufArchitectureNames(), ',')) {
    const std::string_view trimmed = Trim(name);
    std::set<std::string> read_as;
    for (const GgufArchitecture& each : GgufArchitectures())
      if (each.name == trimmed) read_as.insert(Code(each.hugging_face));
    table += RowOf({Code(trimmed), Join({read_as.begin(), read_as.end()}, ", ")});
  }
  return table;
}

}  // namespace pinion
