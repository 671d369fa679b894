#include "harness/profile/other_engines.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <optional>
#include <utility>

#include "engine/base/strings.h"
#include "engine/host/runtime_choice.h"

namespace pinion::harness {
namespace {

// "0-3|4-7"; empty if a rank is not pinned or the plan is unknown.
std::string BindingOf(const Plan& plan) {
  std::vector<std::string> lists;
  for (const RankPlan& rank : plan.ranks) {
    if (rank.cpus.empty()) return "";
    lists.push_back(FormatCpuList(rank.cpus));
  }
  return Join(lists, "|");
}

// The value that vLLM takes where it is not ours: its cache is in whole GiB, it reserves cores per
// rank, and its `auto` binds differently, so that it gets the plan's CPUs.
std::optional<std::string> VllmValue(const SettingRow& row, const Configuration& all,
                                     const Plan& plan) {
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

void Append(std::vector<std::string>& words, const std::vector<std::string>& more) {
  words.insert(words.end(), more.begin(), more.end());
}

// Sequences, and the context that they share.
void AddSequences(const EngineOptions& options, const ServedLoad& load,
                  std::vector<std::string>& words) {
  const int sequences =
      load.clients > 0 ? std::min(load.clients, options.max_num_seqs) : options.max_num_seqs;
  const int64_t tokens = options.max_model_len.value_or(load.sequence_tokens);
  Append(words, {"-np", StrCat(sequences)});
  if (tokens > 0) Append(words, {"-c", StrCat(tokens * sequences)});
}

// Of settings that llama.cpp takes in another form: CPUs as a mask, and a context that its
// sequences divide.
bool HasOwnFormInLlama(const SettingRow& row) {
  return row.key == "threads_bind" || row.key == "max_num_seqs" || row.key == "max_model_len";
}

// Those that it takes as they are and that differ from our defaults, or whose default differs.
void AddLlamaSettings(const Configuration& all, Command& command) {
  for (const SettingRow& row : SettingRows()) {
    const auto& [name, values, always] = row.llama_cpp;
    const Json value = row.get(all);
    const bool is_written = always || value != row.get({});
    if (name.empty() || name.front() == '[' || !is_written || HasOwnFormInLlama(row)) continue;
    const auto text = CounterpartValue(row.llama_cpp, value);
    if (!text) continue;  // WithoutCounterpart names it
    if (name.front() == '-')
      AddFlags(name, value, *text, command.arguments);
    else
      command.environment.emplace_back(name, *text);
  }
}

// Shell lines that make the files of a model, and the path that another engine then reads.
struct MadeModel {
  std::string lines, model;
};

MadeModel WithPresetsWritten(const std::string& model) {
  constexpr std::string_view kPreset = "preset:";
  if (model.rfind(kPreset, 0) != 0) return {"", model};
  const std::string name = model.substr(kPreset.size()), folder = "./" + name;
  return {ShellText({{}, {"pinion", "model", "make", "--preset", name, folder}}) + "\n", folder};
}

// By llama.cpp's own script, which also reads a name of the hub.
MadeModel AsGguf(const std::string& model) {
  MadeModel made = WithPresetsWritten(model);
  if (made.model.ends_with(".gguf")) return made;
  std::error_code ignored;
  const bool is_path =
      made.model.find_first_of("./~") == 0 || std::filesystem::exists(made.model, ignored);
  while (made.model.size() > 1 && made.model.ends_with('/')) made.model.pop_back();
  const std::string source =
      std::exchange(made.model, made.model.substr(made.model.find_last_of('/') + 1) + ".gguf");
  std::vector<std::string> words = {"python3", "convert_hf_to_gguf.py"};
  if (!is_path) words.push_back("--remote");
  Append(words, {source, "--outfile", made.model});
  made.lines += ShellText({{}, words}) + "\n";
  return made;
}

std::string WithPreloads(Command command, const RuntimeChoice& runtime) {
  const auto preloaded = PreloadedFiles(runtime, RuntimeOffer::Here());
  if (!preloaded.empty()) command.environment.emplace_back("LD_PRELOAD", Join(preloaded, ":"));
  return ShellText(command);
}

}  // namespace

Command VllmCommand(const Configuration& configuration, const Plan& plan) {
  const Configuration defaults;
  Command command{{}, {"vllm", "serve", configuration.options.model}};
  for (const SettingRow& row : SettingRows()) {
    const std::string& name = row.vllm.name;
    const Json value = row.get(configuration);
    const bool is_written = row.vllm.always || value != row.get(defaults);
    if (name.empty() || name.front() == '[' || !is_written) continue;
    const auto text = VllmValue(row, configuration, plan);
    if (!text) continue;  // WithoutCounterpart names it
    if (name.front() == '-')
      AddFlags(name, value, *text, command.arguments);
    else
      command.environment.emplace_back(name, *text);
  }
  return command;
}

Command LlamaCommand(const Configuration& configuration, const Plan& plan, const ServedLoad& load) {
  Command command{{}, {"llama-server", "-m", configuration.options.model}};
  auto& words = command.arguments;
  std::vector<int> cpus;
  for (const RankPlan& rank : plan.ranks)
    cpus.insert(cpus.end(), rank.cpus.begin(), rank.cpus.end());
  if (const int threads = plan.total_threads(); threads > 0)
    Append(words, {"-t", StrCat(threads), "-tb", StrCat(threads)});
  AddLlamaSettings(configuration, command);
  AddSequences(configuration.options, load, words);
  if (!cpus.empty())
    Append(words, {"-C", CpuMask(cpus), "-Cb", CpuMask(cpus), "--cpu-strict", "1"});
  return command;
}

std::string VllmShellText(const Configuration& configuration, const Plan& plan) {
  const MadeModel made = WithPresetsWritten(configuration.options.model);
  Configuration written = configuration;
  written.options.model = made.model;
  return made.lines + WithPreloads(VllmCommand(written, plan), configuration.runtime);
}

std::string LlamaShellText(const Configuration& configuration, const Plan& plan,
                           const ServedLoad& load) {
  const MadeModel made = AsGguf(configuration.options.model);
  Configuration written = configuration;
  written.options.model = made.model;
  return made.lines + WithPreloads(LlamaCommand(written, plan, load), configuration.runtime);
}

std::vector<std::string> WithoutCounterpart(const Configuration& configuration,
                                            Counterpart SettingRow::*engine) {
  const Configuration defaults;
  std::vector<std::string> settings;
  for (const SettingRow& row : SettingRows()) {
    const Json value = row.get(configuration);
    if (value != row.get(defaults) && !CounterpartValue(row.*engine, value))
      settings.push_back(StrCat(row.key, "=", SettingText(value)));
  }
  return settings;
}

std::string CpuMask(const std::vector<int>& cpus) {
  const int highest = *std::max_element(cpus.begin(), cpus.end());
  std::vector<int> digits(static_cast<size_t>(highest) / 4 + 1, 0);
  for (const int cpu : cpus) digits[static_cast<size_t>(cpu) / 4] |= 1 << (cpu % 4);
  std::string text = "0x";
  for (auto digit = digits.rbegin(); digit != digits.rend(); ++digit)
    text += "0123456789abcdef"[*digit];
  return text;
}

}  // namespace pinion::harness
