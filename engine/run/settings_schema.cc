// The registry as JSON schemas and as the table of the documentation.

#include "engine/base/strings.h"
#include "engine/run/settings.h"

namespace pinion {
namespace {

Json IntegerSchema(const SettingRow& row) {
  Json schema = Json::Object{{"type", "integer"}, {"minimum", row.least}};
  if (row.most != std::numeric_limits<int>::max()) schema.Set("maximum", row.most);
  if (row.multiple != 1) schema.Set("multipleOf", row.multiple);
  return schema;
}

Json TextSchema(const SettingRow& row) {
  if (row.names.empty()) return Json::Object{{"type", "string"}};
  std::vector<std::string> names = row.names;
  names.insert(names.end(), row.aliases.begin(), row.aliases.end());
  return Json::Object{{"enum", names}};
}

Json ValueSchema(const SettingRow& row) {
  switch (row.kind) {
    case SettingKind::kText:
      return TextSchema(row);
    case SettingKind::kInteger:
      return IntegerSchema(row);
    case SettingKind::kSeed:
      return Json::Object{{"type", "integer"}};
    case SettingKind::kGib:
      return Json::Object{
          {"anyOf", Json::Array{Json::Object{{"type", "number"}, {"exclusiveMinimum", 0}},
                                Json::Object{{"type", "string"}}}}};
    case SettingKind::kSwitch:
      return Json::Object{{"type", "boolean"}};
  }
  return {};
}

// A bar would end the table's cell.
std::string Escaped(const std::string& text) { return Join(Split(text, '|'), "\\|"); }

// "`--max-num-seqs`", "in the CPUs", "none"
std::string Cell(const std::string& name) {
  if (name.empty()) return "none";
  if (name.front() == '[') return name.substr(1, name.size() - 2);
  std::string cell;
  for (const std::string& one : Split(name, ',')) {
    const std::string shown = one.front() == '!' ? one.substr(1) : one;
    cell += StrCat(cell.empty() ? "`" : ", `", shown, "`");
  }
  return cell;
}

}  // namespace

Json SettingSchema(const SettingRow& row) {
  Json schema = ValueSchema(row);
  if (row.can_be_unset) {
    schema = Json::Object{{"anyOf", Json::Array{Json::Object{{"type", "null"}}, schema}}};
  }
  schema.Set("description", SettingHelp(row));
  return schema;
}

Json SettingsSchema() {
  Json properties = Json::MakeObject();
  for (const SettingRow& row : SettingRows()) properties.Set(row.key, SettingSchema(row));
  return Json::Object{
      {"type", "object"}, {"additionalProperties", false}, {"properties", properties}};
}

Json AxesSchema() {
  Json properties = Json::MakeObject();
  for (const SettingRow& row : SettingRows()) {
    if (!row.varies) continue;
    const std::string reference = StrCat("#/$defs/settings/properties/", row.key);
    properties.Set(row.key, Json::Object{{"type", "array"},
                                         {"minItems", 1},
                                         {"items", Json::Object{{"$ref", reference}}}});
  }
  const Json own = Json::Object{
      {"description",
       "an engine's own setting: a variable of its environment, or a flag; true: the flag alone; "
       "false or null: without it"},
      {"type", "array"},
      {"minItems", 1},
      {"items", Json::Object{{"type", Json::Array{"string", "number", "boolean", "null"}}}}};
  return Json::Object{{"type", "object"},
                      {"additionalProperties", false},
                      {"properties", properties},
                      {"patternProperties", Json::Object{{"^(env\\.|-).", own}}}};
}

std::string SettingsTable() {
  std::string table =
      "| setting | flag | environment | default | changes outputs | vLLM | llama.cpp | what |\n"
      "|---|---|---|---|---|---|---|---|\n";
  for (const SettingRow& row : SettingRows())
    table += StrCat("| `", row.key, "` | ", Cell(row.flag), " | ", Cell(row.environment), " | ",
                    Escaped(row.usual), " | ", row.changes_outputs ? "yes" : "no", " | ",
                    Cell(row.vllm.name), " | ", Cell(row.llama_cpp.name), " | ", Escaped(row.help),
                    " |\n");
  return table;
}

}  // namespace pinion
