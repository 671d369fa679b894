// `pinion model make`, `info` and `list`; `model quantize` is in model_quantize.cc.

#include <sys/stat.h>

#include <algorithm>
#include <cstdio>
#include <memory>

#include "engine/base/log.h"
#include "engine/base/strings.h"
#include "engine/checkpoint/preset.h"
#include "engine/checkpoint/rounded_tensor.h"
#include "engine/checkpoint/unread_layers.h"
#include "engine/run/start.h"
#include "engine/spec/architecture.h"
#include "engine/weights/summary.h"
#include "harness/cli/commands.h"
#include "harness/cli/usage_error.h"

namespace pinion::harness {
namespace {

struct MakeOptions {
  std::string preset, config, dtype = "auto", scheme, folder;
  uint64_t seed = 0;
};

Result<Json> ConfigOf(const MakeOptions& options) {
  if (!options.preset.empty()) return PresetConfig(options.preset);
  return Json::ParseFile(options.config);
}

Status Make(const MakeOptions& options) {
  PINION_ASSIGN(const Json config, ConfigOf(options));
  auto spec = ReadSpec(config);
  if (!spec) return Unexpected(std::move(spec).error().In(options.config));
  const std::string dtype = options.dtype == "auto" ? spec->checkpoint_dtype : options.dtype;
  std::optional<QuantScheme> scheme;
  if (!options.scheme.empty()) {
    PINION_ASSIGN(scheme, MadeUpScheme(options.scheme));
  }
  PINION_TRY(WriteCheckpoint(config, dtype, scheme, options.seed, options.folder));
  std::printf("%s: %s, %s, seed %llu\n", options.folder.c_str(), spec->architecture.c_str(),
              dtype.c_str(), static_cast<unsigned long long>(options.seed));
  return {};
}

struct InfoOptions {
  std::string model;
  bool json = false;
};

// Accepts a bare preset name unless a folder has that name.
std::string AsModel(const std::string& model) {
  const auto presets = PresetNames();
  struct stat info;
  const bool preset = std::find(presets.begin(), presets.end(), model) != presets.end();
  return preset && stat(model.c_str(), &info) != 0 ? "preset:" + model : model;
}

Status Info(const InfoOptions& options) {
  EngineOptions start;
  start.model = AsModel(options.model);
  PINION_ASSIGN(const ModelFiles files, FindModel(start.model));
  PINION_ASSIGN(const auto weights, OpenWeights(files));
  if (const auto unread = UnreadLayers(files, *weights)) LogWarning(*unread);
  // A model that cannot run as it is stored (it needs --dtype) can still be described.
  FormatPlan formats;
  auto model = PlanModel(start);
  if (model)
    formats = std::move(model->formats);
  else
    LogWarning(StrCat("this model does not run as it is stored: ", model.error().message));
  if (options.json)
    std::printf("%s\n", SummariseModel(files, *weights, formats).Dump(2).c_str());
  else
    std::fputs(FormatModel(files, *weights, formats).c_str(), stdout);
  return {};
}

void AddMake(CLI::App& model, int& exit_code) {
  auto options = std::make_shared<MakeOptions>();
  auto* make = model.add_subcommand("make", "Write a checkpoint with random weights");
  auto* what = make->add_option_group("model to make")->require_option(1);
  what->add_option("--preset", options->preset,
                   "the shape of a real model: " + Join(PresetNames(), ", "));
  what->add_option("--config", options->config, "path of a config.json");
  make->add_option("--dtype", options->dtype,
                   "auto, bfloat16, float16 or float32 (default auto: the config's)");
  make->add_option("--scheme", options->scheme,
                   "w8a8, awq or gptq: quantise the linears (default: none)");
  make->add_option("--seed", options->seed, "seed of the weights (default 0)")->check(Unsigned());
  make->add_option("DIR", options->folder, "folder to create; one that holds a model is refused")
      ->required();
  make->callback([options, &exit_code] { exit_code = ExitCodeOf(Make(*options)); });
}

void AddInfo(CLI::App& model, int& exit_code) {
  auto options = std::make_shared<InfoOptions>();
  auto* info =
      model.add_subcommand("info", "Show shapes, parameters, bytes of weights and of the KV cache");
  info->add_option("MODEL", options->model,
                   "a folder, a .gguf file, a preset, or org/name in the Hugging Face cache")
      ->required();
  info->add_flag("--json", options->json, "print JSON instead of text");
  info->callback([options, &exit_code] { exit_code = ExitCodeOf(Info(*options)); });
}

void AddList(CLI::App& model) {
  model.add_subcommand("list", "List the architectures that run")->callback([] {
    std::fputs(ArchitectureTable().c_str(), stdout);
  });
}

}  // namespace

void AddModel(CLI::App& app, int& exit_code) {
  auto* model = app.add_subcommand(
      "model", "Inspect a checkpoint, quantise one, or make one with random weights");
  model->require_subcommand(1);
  AddMake(*model, exit_code);
  AddInfo(*model, exit_code);
  AddList(*model);
  AddQuantize(*model, exit_code);
}

}  // namespace pinion::harness
