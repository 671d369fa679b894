// `pinion describe-commands`: every command with its flags and help texts as JSON. The man pages
// and the shell completions are made from it (packaging/), so that they say the same as --help.
// `pinion describe-registries`: settings, architectures, formats and vLLM's flags, for
// scripts/registries.

#include <iostream>

#include "engine/base/json.h"
#include "engine/checkpoint/format_table.h"
#include "engine/checkpoint/preset.h"
#include "engine/run/settings.h"
#include "engine/spec/architecture.h"
#include "harness/cli/commands.h"
#include "harness/cli/vllm_flags.h"
#include "harness/space/engine_choice.h"

namespace pinion::harness {
namespace {

std::vector<std::string> NamesOf(const CLI::Option& option) {
  if (option.get_positional()) return {option.get_name(true, false)};
  std::vector<std::string> names;
  for (const std::string& name : option.get_snames()) names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) names.push_back("--" + name);
  return names;
}

Json Describe(const CLI::Option& option, const std::string& group) {
  const bool takes_value = option.get_type_size() != 0;
  return Json::Object{
      {"names", NamesOf(option)},
      {"positional", option.get_positional()},
      {"group", group},
      {"type", takes_value ? option.get_type_name() : ""},  // with its checks: "TEXT:{off,on}"
      {"default", option.get_default_str()},
      {"required", option.get_required()},
      {"repeated", option.get_expected_max() == CLI::detail::expected_max_vector_size},
      {"description", option.get_description()},
  };
}

// The parser treats an option group as an application without a name; a reader sees one more
// heading.
void AppendOptions(const CLI::App& app, const std::string& heading, Json& options) {
  for (const CLI::Option* option : app.get_options()) {
    const bool hidden = option->get_group().empty();
    const bool repeats_help = !heading.empty() && option == app.get_help_ptr();
    if (!hidden && !repeats_help)
      options.Append(Describe(*option, heading.empty() ? option->get_group() : heading));
  }
  for (const CLI::App* group : app.get_subcommands({})) {
    if (!group->get_name().empty()) continue;
    const bool one = group->get_require_option_min() == 1 && group->get_require_option_max() == 1;
    AppendOptions(*group, group->get_group() + (one ? " (exactly one)" : ""), options);
  }
}

Json Describe(const CLI::App& app) {
  Json options = Json::MakeArray(), commands = Json::MakeArray();
  AppendOptions(app, "", options);
  for (const CLI::App* command : app.get_subcommands({}))
    if (!command->get_name().empty() && !command->get_group().empty())
      commands.Append(Describe(*command));
  return Json::Object{
      {"name", app.get_name()},          {"description", app.get_description()},
      {"footer", app.get_footer()},      {"options", std::move(options)},
      {"commands", std::move(commands)},
  };
}

void DescribeRegistries(const CLI::App& app) {
  const Json described =
      Json::Object{{"settings", SettingsSchema()},
                   {"axes", AxesSchema()},
                   {"engine", Json::Object{{"enum", EngineNames()}}},
                   {"settings_table", SettingsTable()},
                   {"architectures_table", ArchitectureTable()},
                   {"formats_table", FormatTable()},
                   {"gguf_table", GgufTable()},
                   {"vllm_flags_table", VllmFlagsTable(*app.get_subcommand("serve"))}};
  std::cout << described.Dump(1) << std::endl;
}

}  // namespace

void AddDescribe(CLI::App& app, int& exit_code) {
  auto* command = app.add_subcommand("describe-commands", "Every command and flag as JSON");
  command->group("");  // for the build
  command->callback([&app] {
    Json described = Describe(app);
    described.Set("version", app.version());
    described.Set("presets", PresetNames());
    std::cout << described.Dump(1) << std::endl;
  });
  app.add_subcommand("describe-registries", "Settings and architectures as schemas and tables")
      ->group("")  // for scripts/registries
      ->callback([&app] { DescribeRegistries(app); });
}

}  // namespace pinion::harness
