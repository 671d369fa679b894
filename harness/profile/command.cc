#include "harness/profile/command.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <optional>

#include "engine/base/process.h"
#include "engine/base/strings.h"
#include "engine/host/runtime_choice.h"
#include "engine/run/settings.h"

namespace pinion::harness {
namespace {

// "0-3|4-7", from {"ranks":[{"cpus":[...]}]}; empty if a rank is not pinned or the plan is unknown.
std::string BindingOf(const Json& plan) {
  const Json* ranks = plan.Find("ranks");
  if (!ranks || !ranks->is_array()) return "";
  std::vector<std::string> lists;
  for (const Json& rank : ranks->array()) {
    const Json* cpus = rank.Find("cpus");
    if (!cpus || !cpus->is_array() || cpus->array().empty()) return "";
    std::vector<int> ids;
    for (const Json& cpu : cpus->array())
      if (cpu.is_int()) ids.push_back(static_cast<int>(cpu.integer()));
    lists.push_back(FormatCpuList(ids));
  }
  return Join(lists, "|");
}

// The value that vLLM takes where it is not ours: its cache is in whole GiB, it reserves cores per
// rank, and its `auto` binds differently, so that it gets the plan's CPUs.
std::optional<std::string> VllmValue(const SettingRow& row, const Configuration& all,
                                     const Json& plan) {
  const Json value = row.get(all);
  if (row.key == "kv_cache_space") {
    constexpr double kVllmDefaultGib = 4;  // unset it would take most of the memory
    const double gib = value.is_null() ? kVllmDefaultGib : value.number();
    return StrCat(static_cast<int64_t>(std::max(1.0, std::ceil(gib))));
  }
  if (row.key == "threads_bind") {
    const std::string binding = BindingOf(plan);
    return binding.empty() ? value.string() : binding;
  }
  if (row.key == "reserved_cpus" && !value.is_null()) {
    const int ranks = std::max(1, all.options.ranks() * all.replicas);
    return StrCat((value.integer() + ranks - 1) / ranks);
  }
  return CounterpartValue(row.vllm, value);
}

}  // namespace

void AddFlags(const std::string& flags, const Json& value, const std::string& text,
              std::vector<std::string>& arguments) {
  for (const std::string& flag : Split(flags, ',')) {
    if (flags.find('!') == std::string::npos)
      arguments.insert(arguments.end(), {flag, text});
    else if (value.boolean() == (flag.front() != '!'))
      arguments.push_back(flag.front() == '!' ? flag.substr(1) : flag);
  }
}

std::string ShellQuote(const std::string& word) {
  const auto plain = [](unsigned char c) {
    return std::isalnum(c) ||
           std::string_view("_-./:=,+@%").find(static_cast<char>(c)) != std::string_view::npos;
  };
  if (!word.empty() && std::all_of(word.begin(), word.end(), plain)) return word;
  std::string quoted = "'";
  for (const char c : word) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

std::string ShellText(const Command& command) {
  std::vector<std::string> words;
  for (const auto& [name, value] : command.environment)
    words.push_back(name + "=" + ShellQuote(value));
  for (const std::string& argument : command.arguments) words.push_back(ShellQuote(argument));
  return Join(words, " ");
}

std::vector<std::string> EngineArguments(const EngineOptions& options) {
  const Configuration defaults, all{options};
  std::vector<std::string> arguments = {options.model};
  for (const SettingRow& row : SettingRows()) {
    const Json value = row.get(all);
    if (row.is_of_engine() && value != row.get(defaults))
      AddFlags(row.flag, value, SettingText(value), arguments);
  }
  return arguments;
}

Command ServeCommand(const Configuration& configuration, const std::string& host, int port) {
  Command command{{}, {SelfPath(), "serve"}};
  const auto engine = EngineArguments(configuration.options);
  command.arguments.insert(command.arguments.end(), engine.begin(), engine.end());
  for (const SettingRow& row : SettingRows())
    if (const Json value = row.get(configuration); row.is_of_server && value != row.get({}))
      AddFlags(row.flag, value, SettingText(value), command.arguments);
  command.arguments.insert(command.arguments.end(), {"--host", host, "--port", StrCat(port)});
  return command;
}

std::string VllmShellText(const Configuration& configuration, const Json& plan) {
  constexpr std::string_view kPreset = "preset:";
  std::string model = configuration.options.model, before;
  if (model.rfind(kPreset, 0) == 0) {
    const std::string name = model.substr(kPreset.size());
    model = "./" + name;
    before = ShellText({{}, {"pinion", "model", "make", "--preset", name, model}}) + "\n";
  }
  Configuration written = configuration;
  written.options.model = model;
  Command command = VllmCommand(written, plan);
  const auto preloaded = PreloadedFiles(configuration.runtime, RuntimeOffer::Here());
  if (!preloaded.empty()) command.environment.emplace_back("LD_PRELOAD", Join(preloaded, ":"));
  return before + ShellText(command);
}

Command VllmCommand(const Configuration& configuration, const Json& plan) {
  const Configuration defaults;
  Command command{{}, {"vllm", "serve", configuration.options.model}};
  for (const SettingRow& row : SettingRows()) {
    const std::string& name = row.vllm.name;
    const Json value = row.get(configuration);
    const bool is_written = row.vllm.always || value != row.get(defaults);
    if (name.empty() || name.front() == '[' || !is_written) continue;
    const auto text = VllmValue(row, configuration, plan);
    if (!text) continue;  // WithoutVllmCounterpart names it
    if (name.front() == '-')
      AddFlags(name, value, *text, command.arguments);
    else
      command.environment.emplace_back(name, *text);
  }
  return command;
}

std::vector<std::string> WithoutVllmCounterpart(const Configuration& configuration) {
  const Configuration defaults;
  std::vector<std::string> settings;
  for (const SettingRow& row : SettingRows()) {
    const Json value = row.get(configuration);
    if (value != row.get(defaults) && !CounterpartValue(row.vllm, value))
      settings.push_back(StrCat(row.key, "=", SettingText(value)));
  }
  return settings;
}

}  // namespace pinion::harness
