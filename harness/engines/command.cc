#include "harness/engines/command.h"

#include <algorithm>
#include <cstdlib>
#include <set>

#include "engine/base/strings.h"
#include "engine/run/replicas.h"
#include "harness/space/settings.h"

namespace pinion::harness {
namespace {

constexpr double kGib = 1024.0 * 1024.0 * 1024.0;
constexpr std::string_view kPreset = "preset:";

std::vector<int> CpusOf(const Plan& plan) {
  std::vector<int> cpus;
  for (const RankPlan& rank : plan.ranks)
    cpus.insert(cpus.end(), rank.cpus.begin(), rank.cpus.end());
  return cpus;
}

std::string Text(double value) { return StrCat(value); }

// The value of a placeholder, which is a property of the start or a setting's key; nullopt if it
// does not exist.
struct Placeholders {
  const Configuration& configuration;
  const Plan& plan;
  int port;

  std::optional<std::string> Find(const std::string& name) const {
    const EngineOptions& options = configuration.options;
    const std::pair<const char*, std::string> values[] = {
        {"model", options.model},
        {"port", StrCat(port)},
        {"threads", StrCat(plan.total_threads())},
        {"cpus", FormatCpuList(CpusOf(plan))},
        {"kv_cache_gib", Text(static_cast<double>(options.kv_cache_bytes.value_or(0)) / kGib)},
    };
    for (const auto& [known, value] : values)
      if (name == known) return value;
    const SettingRow* row = FindSetting(name);
    if (!row) return std::nullopt;
    const Json value = row->get(configuration);
    return value.is_null() ? "0" : SettingText(value);
  }
};

// "{{" and "}}" stand for the braces themselves.
Result<std::string> Fill(const std::string& word, const Placeholders& placeholders) {
  std::string filled;
  for (size_t at = 0; at < word.size(); ++at) {
    const char letter = word[at];
    if ((letter == '{' || letter == '}') && at + 1 < word.size() && word[at + 1] == letter) {
      filled += letter;
      ++at;
    } else if (letter == '{') {
      const size_t end = word.find('}', at);
      const std::string name = word.substr(at + 1, end == std::string::npos ? end : end - at - 1);
      const auto value = placeholders.Find(name);
      if (!value || end == std::string::npos)
        return Fail(ErrorCode::kUsage,
                    StrCat("'", word, "' in the engine's command has no placeholder '{", name,
                           "}'; there are {model} {port} {threads} {cpus} {kv_cache_gib} and ",
                           "every setting, such as {max_num_seqs}; write {{ for a brace"));
      filled += *value;
      at = end;
    } else {
      filled += letter;
    }
  }
  return filled;
}

void Append(std::vector<std::string>& words, const std::vector<std::string>& more) {
  words.insert(words.end(), more.begin(), more.end());
}

// Binds memory to the nodes of the CPUs: a server must not fill another node's memory.
void BindMemory(const Plan& plan, const Machine& machine, Command& command) {
  std::set<int> nodes;
  for (const RankPlan& rank : plan.ranks) nodes.insert(rank.nodes.begin(), rank.nodes.end());
  if (nodes.empty() || nodes.size() >= machine.nodes.size()) return;
  const std::string list = FormatCpuList({nodes.begin(), nodes.end()});
  command.arguments.insert(command.arguments.begin(), {"numactl", "--membind=" + list});
}

Status NeedsFiles(const EngineOptions& options, const char* engine) {
  if (options.model.rfind(kPreset, 0) != 0) return {};
  return Fail(ErrorCode::kUsage, StrCat(engine, " cannot read ", options.model, ": write it with ",
                                        "`pinion model make` and name the folder"));
}

Result<EngineCommand> Vllm(const Configuration& configuration, const Plan& plan, int port) {
  PINION_TRY(NeedsFiles(configuration.options, "vLLM"));
  EngineCommand made;
  made.command = VllmCommand(configuration, plan);
  if (configuration.replicas > 1)
    for (auto& variable : EnvironmentOfReplica(plan))
      made.command.environment.push_back(std::move(variable));
  Append(made.command.arguments, {"--host", "127.0.0.1", "--port", StrCat(port)});
  return made;
}

Result<EngineCommand> LlamaCpp(const Configuration& configuration, const Plan& plan, int port,
                               const ServedLoad& load) {
  const std::string& model = configuration.options.model;
  if (!model.ends_with(".gguf"))
    return Fail(ErrorCode::kUsage, StrCat("llama.cpp reads only GGUF files, which ", model,
                                          " is not; convert it with convert_hf_to_gguf.py"));
  EngineCommand made;
  made.command = LlamaCommand(configuration, plan, load);
  Append(made.command.arguments, {"--host", "127.0.0.1", "--port", StrCat(port)});
  if (std::vector<int> cpus = CpusOf(plan); !cpus.empty()) made.cpus = std::move(cpus);
  return made;
}

EngineCommand Pinion(const EngineChoice& engine, const Configuration& configuration, int port) {
  EngineCommand made;
  made.command = ServeCommand(configuration, "127.0.0.1", port);
  for (const SettingRow& row : SettingRows()) {
    const auto names_it = [&](const auto& variable) { return variable.first == row.environment; };
    const auto& own = engine.environment;
    if (*row.environment && std::getenv(row.environment) &&
        std::none_of(own.begin(), own.end(), names_it))
      made.command.environment.emplace_back(row.environment, "");
  }
  if (!engine.binary.empty()) made.command.arguments.front() = engine.binary;
  // An engine process that ends is a result, which another one would only blur.
  Append(made.command.arguments, {"--max-engine-restarts", "0"});
  return made;
}

Result<EngineCommand> Custom(const EngineChoice& engine, const Placeholders& placeholders) {
  EngineCommand made;
  for (const std::string& word : engine.command) {
    PINION_ASSIGN(std::string filled, Fill(word, placeholders));
    made.command.arguments.push_back(std::move(filled));
  }
  if (const std::vector<int> cpus = CpusOf(placeholders.plan); !cpus.empty()) made.cpus = cpus;
  return made;
}

Result<EngineCommand> ByKind(const EngineChoice& engine, const Placeholders& placeholders,
                             const ServedLoad& load) {
  const auto& [configuration, plan, port] = placeholders;
  using Kind = EngineChoice::Kind;
  if (engine.kind == Kind::kPinion) return Pinion(engine, configuration, port);
  if (engine.kind == Kind::kVllm) return Vllm(configuration, plan, port);
  if (engine.kind == Kind::kLlamaCpp) return LlamaCpp(configuration, plan, port, load);
  return Custom(engine, placeholders);
}

}  // namespace

Result<EngineCommand> CommandFor(const EngineChoice& engine, const Configuration& configuration,
                                 const Plan& plan, const Machine& machine, int port,
                                 const ServedLoad& load) {
  using Kind = EngineChoice::Kind;
  const Placeholders placeholders{configuration, plan, port};
  Result<EngineCommand> made = ByKind(engine, placeholders, load);
  if (!made) return made;
  Command& command = made->command;
  if (engine.kind != Kind::kCommand && !engine.command.empty()) {  // another program for the same
    const auto own = std::ssize(RowOf(engine.kind).program);
    command.arguments.erase(command.arguments.begin(), command.arguments.begin() + own);
    command.arguments.insert(command.arguments.begin(), engine.command.begin(),
                             engine.command.end());
  }
  for (const std::string& word : engine.arguments) {
    PINION_ASSIGN(std::string filled, Fill(word, placeholders));
    command.arguments.push_back(std::move(filled));
  }
  for (const auto& [name, value] : engine.environment) {
    PINION_ASSIGN(std::string filled, Fill(value, placeholders));
    command.environment.emplace_back(name, std::move(filled));
  }
  if (engine.is_pinion()) return made;  // it binds its memory itself, and has every setting
  if (!RowOf(engine.kind).binds_memory) BindMemory(plan, machine, command);
  for (const Setting& setting : Difference({}, configuration))
    if (const SettingRow& row = *FindSetting(setting.key);
        !HasValue(engine, row, row.get(configuration)))
      made->ignored.push_back(StrCat(setting.key, "=", setting.value));
  return made;
}

}  // namespace pinion::harness
