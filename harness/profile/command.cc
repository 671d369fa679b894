#include "harness/profile/command.h"

#include <algorithm>
#include <cctype>

#include "engine/base/process.h"
#include "engine/base/strings.h"
#include "engine/run/settings.h"

namespace pinion::harness {

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

}  // namespace pinion::harness
