// `pinion model quantize`.

#include <cstdio>
#include <memory>

#include "engine/calibrate/quantise.h"
#include "harness/cli/commands.h"

namespace pinion::harness {
namespace {

Status Run(QuantiseOptions options) {
  PINION_TRY(ReadEnvironment(options.engine));
  PINION_TRY(Quantise(options));
  std::printf("%s: %s as %s, %s\n", options.folder.c_str(), options.model.c_str(),
              options.target.c_str(),
              options.calibration.empty() ? "rounded to the nearest"
                                          : ("calibrated on " + options.calibration).c_str());
  return {};
}

}  // namespace

void AddQuantize(CLI::App& model, int& exit_code) {
  auto options = std::make_shared<QuantiseOptions>();
  auto* command = model.add_subcommand(
      "quantize", "Write a quantised copy of a checkpoint that other engines load too");
  command->add_option("MODEL", options->model, "a folder, or org/name in the Hugging Face cache")
      ->required();
  command->add_option("DIR", options->folder, "folder to create; one that holds a model is refused")
      ->required();
  command
      ->add_option("--to", options->target,
                   "w8a8 (compressed-tensors), awq-int4 (AWQ, gemm) or gptq-int4 (GPTQ)")
      ->required();
  command->add_option("--calibration", options->calibration,
                      "FILE.txt or JSONL of typical text: SmoothQuant, AWQ's scale search or GPTQ "
                      "(default: none, weights are rounded to the nearest)");
  command->add_option("--calibration-tokens", options->tokens, "most tokens of the text to use")
      ->check(CLI::Range(1, 1 << 24))
      ->capture_default_str();
  command
      ->add_option("--group-size", options->group,
                   "columns that share a scale in int4; -1: whole rows")
      ->capture_default_str();
  command
      ->add_option("--threads-bind", options->engine.threads_bind,
                   "CPUs that calibration runs on: auto, all, nobind, or a CPU list")
      ->capture_default_str();
  command->callback([options, &exit_code] { exit_code = ExitCodeOf(Run(*options)); });
}

}  // namespace pinion::harness
