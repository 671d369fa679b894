#include <algorithm>
#include <cctype>
#include <cmath>
#include <utility>

#include "engine/base/strings.h"
#include "harness/artifacts/expected.h"
#include "harness/artifacts/makers.h"
#include "harness/artifacts/names.h"
#include "harness/artifacts/yaml.h"
#include "harness/profile/other_engines.h"

namespace pinion::harness {
namespace {

// The version whose flags and variables the counterparts are (docs/vllm-flags.md).
constexpr char kVllmVersion[] = "0.32.0";

struct ModelFacts {
  double parameters = 0, active = 0, weight_bytes = 0;
  int64_t context_length = 0;
};

Result<ModelFacts> FactsOf(const Profile& profile) {
  const Json* stored =
      profile.evidence.is_object() ? profile.evidence.Find("model_facts") : nullptr;
  const Json none = Json::MakeObject(), &json = stored ? *stored : none;
  ModelFacts facts;
  facts.parameters = Optional<double>(json, "parameters", 0).value_or(0);
  facts.active = Optional<double>(json, "active_parameters", 0).value_or(0);
  facts.weight_bytes = Optional<double>(json, "weight_bytes", 0).value_or(0);
  facts.context_length = Optional<int64_t>(json, "context_length", 0).value_or(0);
  if (facts.parameters > 0 && facts.active > 0 && facts.weight_bytes > 0 &&
      facts.context_length > 0)
    return facts;
  return Fail(ErrorCode::kFailed,
              "the profile does not tell its model's parameters, which a recipe has; take one that "
              "this version's `pinion sweep` wrote");
}

// ORG and REPO, which name the file: only characters that the hub allows.
Result<std::pair<std::string, std::string>> HubName(const std::string& model) {
  const auto fits = [](const std::string& part) {
    return !part.empty() && part.front() != '.' &&
           std::all_of(part.begin(), part.end(), [](unsigned char c) {
             return std::isalnum(c) || c == '.' || c == '-' || c == '_';
           });
  };
  const std::vector<std::string> parts = Split(model, '/');
  if (IsOfHub(model) && parts.size() == 2 && fits(parts[0]) && fits(parts[1]))
    return std::pair(parts[0], parts[1]);
  return Fail(ErrorCode::kFailed,
              StrCat(Json(model).Dump(),
                     " is no ORG/REPO of the Hugging Face hub, by which recipes are named"));
}

// "40M", "1.2B", "671B", "1.1T".
std::string CountText(double parameters) {
  if (parameters < 1e9) return StrCat(std::round(parameters / 1e6), "M");
  const bool is_huge = parameters >= 1e12;
  const double count = parameters / (is_huge ? 1e12 : 1e9);
  return StrCat(count < 100 ? std::round(count * 10) / 10 : std::round(count), is_huge ? "T" : "B");
}

// By bytes a weight, as the engine holds them.
const char* Precision(const ModelFacts& facts, const std::string& dtype) {
  const double bytes = facts.weight_bytes / facts.parameters;
  if (bytes >= 3) return "fp32";
  if (bytes >= 1.5) return dtype == "float16" ? "fp16" : "bf16";
  return bytes >= 0.9 ? "int8" : "int4";
}

// The nearest command of vLLM for any machine: without CPU lists, which are of one.
Command PortableCommand(const Profile& profile) {
  Configuration configuration = profile.configuration;
  std::string& binding = configuration.options.threads_bind;
  if (binding.find_first_of("0123456789") != std::string::npos) binding = "auto";
  return VllmCommand(configuration, {});
}

std::string ListText(const std::vector<std::string>& words) {
  std::vector<std::string> texts;
  for (const std::string& word : words) texts.push_back(YamlText(word));
  return StrCat("[", Join(texts, ", "), "]");
}

std::string Overrides(const Command& command) {
  std::vector<std::string> arguments(command.arguments.begin() + 3, command.arguments.end());
  std::string ranks = "1", environment;
  const auto tp = std::find(arguments.begin(), arguments.end(), "-tp");
  if (tp != arguments.end() && tp + 1 != arguments.end()) {  // the strategy writes it
    ranks = tp[1];
    arguments.erase(tp, tp + 2);
  }
  for (const auto& [name, value] : command.environment)
    environment += StrCat("      ", name, ": ", YamlText(value), "\n");
  return StrCat("hardware_overrides:\n  cpu:\n    extra_args: ", ListText(arguments),
                "\n    extra_env:", environment.empty() ? " {}\n" : "\n" + environment,
                "strategy_overrides:\n  single_node_tp:\n    tp: {cpu: ", ranks, "}\n");
}

std::string TextAt(const Json& object, const char* key, const std::string& absent) {
  return object.is_object()
             ? YamlSafeLine(Optional<std::string>(object, key, absent).value_or(absent))
             : absent;
}

std::string Guide(const Profile& profile, const std::string& repo, const Command& command) {
  std::string text = StrCat(
      "## Overview\n\n", repo, " on CPUs, with the settings that measuring found best for ",
      profile.objective, ".\n\n## Launch command\n\n```bash\n", ShellText(command), "\n```\n\n");
  const auto lacks = WithoutCounterpart(profile.configuration, &SettingRow::vllm);
  if (!lacks.empty()) text += StrCat("vLLM has no setting for ", Join(lacks, ", "), ".\n\n");
  text +=
      StrCat("## Measured\n\nBy Pinion ", TextAt(profile.evidence, "version", "(version unknown)"),
             ", an engine of its own that takes vLLM's settings, on ",
             TextAt(profile.machine, "cpu_model", "an unknown CPU"), ", ",
             std::max<size_t>(1, CpusOfPlan(profile).size()),
             " CPUs. vLLM was not measured.\n\n| metric | load | median | interval "
             "|\n|---|---|---:|---|\n");
  for (const Expected& value : ExpectedOf(profile))
    text += StrCat("| ", value.metric, " | ", value.level, " | ", value.figure, " | ",
                   value.interval, " |\n");
  return text;
}

// Of a text of several lines, each safe for a block of YAML.
std::string Block(const std::string& text) {
  std::string block;
  for (const std::string& line : Split(std::string(Trim(text)), '\n'))
    block += line.empty() ? "\n" : StrCat("  ", YamlSafeLine(line), "\n");
  return block;
}

bool IsDate(const std::string& text) {
  return text.size() == 10 && std::all_of(text.begin(), text.end(), [](unsigned char c) {
           return std::isdigit(c) || c == '-';
         });
}

}  // namespace

Result<std::string> RecipeFile(const Profile& profile) {
  PINION_ASSIGN(const auto name, HubName(profile.configuration.options.model));
  return StrCat("models/", name.first, "/", name.second, ".yaml");
}

Result<std::string> RecipeText(const Profile& profile, const PodOptions&) {
  PINION_ASSIGN(const auto name, HubName(profile.configuration.options.model));
  PINION_ASSIGN(const PodSize size, PodSizeOf(profile));
  PINION_ASSIGN(const ModelFacts facts, FactsOf(profile));
  const EngineOptions& options = profile.configuration.options;
  const bool is_sparse = facts.active < facts.parameters;
  const std::string date = TextAt(profile.evidence, "updated_at", "").substr(0, 10);
  const std::string dates =
      IsDate(date) ? StrCat("  date_added: ", date, "\n  date_updated: ", date, "\n") : "";
  const std::string task =
      options.task == "embed" || options.task == "score" ? "embedding" : "text";
  const Command command = PortableCommand(profile);
  return StrCat(
      "# models/", options.model,
      ".yaml of vLLM's recipes. Where there is one already, take its hardware_overrides.cpu\n"
      "# and strategy_overrides. Once vLLM has run with them there, meta.hardware says `xeon6: "
      "verified`.\n",
      "meta:\n  title: ", YamlText(name.second), "\n  slug: ", YamlText(Slug(name.second)),
      "\n  provider: ", YamlText(name.first),
      "\n  description: ", YamlText(StrCat(name.second, " on CPUs, with measured settings.")), "\n",
      dates, "  difficulty: beginner\n  tasks: [", task,
      "]\n  hardware: {}\n\nmodel:\n  model_id: ", YamlText(options.model),
      "\n  min_vllm_version: \"", kVllmVersion, "\"\n  architecture: ", is_sparse ? "moe" : "dense",
      "\n  parameter_count: \"", CountText(facts.parameters), "\"\n  active_parameters: \"",
      CountText(facts.active), "\"\n  context_length: ", facts.context_length,
      "\n  base_args: []\n  base_env: {}\n\nfeatures: {}\n",
      "opt_in_features: []\n\nvariants:\n  default:\n",
      "    # By bytes a weight: name the checkpoint's own, such as fp8 or awq.\n    precision: ",
      Precision(facts, options.dtype),
      "\n    # Memory of all processes.\n    vram_minimum_gb: ", size.memory_gib,
      "\n    description: \"\"\n\ncompatible_strategies:\n  - single_node_tp\n\n",
      Overrides(command), "\nguide: |\n", Block(Guide(profile, name.second, command)));
}

}  // namespace pinion::harness
