#include <memory>
#include <optional>
#include <string>

#include "engine/base/strings.h"
#include "engine/base/trace.h"
#include "engine/serve/server.h"
#include "engine/serve/worker.h"
#include "harness/cli/commands.h"
#include "harness/cli/serve_flags.h"

namespace pinion::harness {
namespace {

Result<int> RunServe(const ServeFlags& flags) {
  PINION_ASSIGN(const ServeOptions options, flags.Resolve());
  return RunServer(options);
}

struct WorkerFlags {
  std::string options, trace;
  std::optional<double> stand_in_rate;
};

int RunWorker(const WorkerFlags& flags) {
  if (!flags.trace.empty()) trace::Join(flags.trace, "engine");
  auto json = Json::Parse(flags.options);
  if (!json) return Report(std::move(json).error().In("--options"));
  EngineOptions options;
  if (auto read = FromJson(*json, options); !read)
    return Report(std::move(read).error().In("--options"));
  options.has_frontend = true;
  return RunEngineWorker(options, flags.stand_in_rate);
}

}  // namespace

void AddServe(CLI::App& app, int& exit_code) {
  auto flags = std::make_shared<ServeFlags>();
  auto* serve = app.add_subcommand("serve", "Serve a model over HTTP with OpenAI's API");
  flags->AddTo(*serve);
  serve->callback([flags, &exit_code] { exit_code = ExitCodeOf(RunServe(*flags)); });
}

void AddEngineWorker(CLI::App& app, int& exit_code) {
  auto worker_flags = std::make_shared<WorkerFlags>();
  auto* worker = app.add_subcommand("engine-worker", "The engine process of `serve`")->group("");
  worker->add_option("--options", worker_flags->options, "engine options as JSON")->required();
  worker->add_option("--trace", worker_flags->trace, "file to append spans to");
  worker->add_option("--stand-in", worker_flags->stand_in_rate, "see serve's");
  worker->callback([worker_flags, &exit_code] { exit_code = RunWorker(*worker_flags); });
}

}  // namespace pinion::harness
