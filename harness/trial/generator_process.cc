#include "harness/trial/generator_process.h"

#include <cstdlib>
#include <iostream>

#include "engine/base/process.h"
#include "engine/host/runtime_choice.h"
#include "harness/trial/line_process.h"

namespace pinion::harness {
namespace {

class Child final : public GeneratorProcess {
 public:
  explicit Child(LineProcess process) : process_(std::move(process)) {}

  Result<ServerLoadResult> Send(const LoadedServer& server, const LoadPlan& plan,
                                const std::function<std::string()>& why_stop) override {
    const Json order = Json::Object{{"server", ToJson(server)}, {"plan", ToJson(plan)}};
    PINION_ASSIGN(const std::string line, process_.Ask(order.Dump(), why_stop));
    PINION_ASSIGN(const Json json, Json::Parse(line));
    if (const Json* error = json.Find("error"))
      return Fail(ErrorCode::kFailed, error->is_string() ? error->string() : error->Dump());
    return ReadServerLoadResult(json);
  }

 private:
  LineProcess process_;
};

Result<ServerLoadResult> Obey(const std::string& line) {
  PINION_ASSIGN(const Json json, Json::Parse(line));
  const Json *server = json.Find("server"), *plan = json.Find("plan");
  if (!server || !plan)
    return Fail(ErrorCode::kUsage, "a generator's order needs 'server' and 'plan'");
  PINION_ASSIGN(const LoadedServer asked, ReadLoadedServer(*server));
  PINION_ASSIGN(const LoadPlan load, ReadLoadPlan(*plan));
  return RunServerLoad(asked, load);
}

}  // namespace

Result<std::unique_ptr<GeneratorProcess>> GeneratorProcess::Start(
    const std::optional<std::vector<int>>& cpus) {
  Process::Options options;
  options.arguments = {SelfPath(), kGeneratorCommand};
  options.cpus = cpus;
  // The same generator for every configuration, with any libraries of the trial's server.
  if (const char* preload = std::getenv("LD_PRELOAD"))
    options.environment.emplace_back("LD_PRELOAD", WithoutChosenLibraries(preload));
  PINION_ASSIGN(LineProcess process, LineProcess::Start(std::move(options), "the load generator"));
  return std::make_unique<Child>(std::move(process));
}

int RunGenerator() {
  std::string line;
  while (std::getline(std::cin, line)) {
    const auto result = Obey(line);
    const Json answer =
        result ? ToJson(*result) : Json(Json::Object{{"error", result.error().message}});
    std::cout << answer.Dump() << std::endl;
    if (!std::cout) return 1;
  }
  return 0;
}

}  // namespace pinion::harness
