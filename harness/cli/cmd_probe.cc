#include <unistd.h>

#include <cstdio>
#include <memory>
#include <string>

#include "engine/base/file.h"
#include "harness/cli/commands.h"
#include "harness/probe/probe.h"

namespace pinion::harness {
namespace {

struct ProbeFlags {
  ProbeOptions options;
  bool json = false;
  std::string out;  // empty: none
};

Status Probe(const ProbeFlags& flags) {
  if (!flags.out.empty()) PINION_TRY(CheckWritable(flags.out));
  const bool show = isatty(STDERR_FILENO) != 0;
  PINION_ASSIGN(const ProbeResult result, RunProbe(flags.options, [&](const std::string& what) {
                  if (show) std::fprintf(stderr, "\r\033[Kmeasuring: %s", what.c_str());
                }));
  if (show) std::fputs("\r\033[K", stderr);
  const std::string json = ToJson(result).Dump(2) + "\n";
  if (!flags.out.empty()) PINION_TRY(WriteFile(flags.out, json));
  std::fputs(flags.json ? json.c_str() : Draw(result, WantsColour()).c_str(), stdout);
  if (std::fflush(stdout) == 0) return {};
  return Fail(ErrorCode::kIo, "cannot write the result to standard output");
}

}  // namespace

// `pinion probe`: exit 0 done, 1 the machine cannot be measured, 2 bad usage.
void AddProbe(CLI::App& app, int& exit_code) {
  auto flags = std::make_shared<ProbeFlags>();
  auto* command =
      app.add_subcommand("probe", "Measure this machine's limits: memory bandwidth and arithmetic");
  command->add_flag("--json", flags->json, "print JSON instead of text");
  command->add_option("--out", flags->out, "also write the JSON to this file");
  command
      ->add_option("--seconds", flags->options.seconds,
                   "approximate duration of the measurement [s], 1 to 60")
      ->capture_default_str();
  command->callback([flags, &exit_code] { exit_code = ExitCodeOf(Probe(*flags)); });
}

}  // namespace pinion::harness
