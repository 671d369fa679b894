// The hidden commands of a sweep's children: the trial, which reads a request on standard input and
// answers with one JSON line; the parent of its servers; the generator of their load.

#include <signal.h>

#include <iostream>
#include <iterator>
#include <memory>

#include "engine/base/clock.h"
#include "engine/base/json_lists.h"
#include "harness/cli/commands.h"
#include "harness/cli/stop_request.h"
#include "harness/engines/server.h"
#include "harness/trial/generator_process.h"
#include "harness/trial/trial.h"

namespace pinion::harness {
namespace {

Result<Json> Trial(int64_t start_ns) {
  const std::string text{std::istreambuf_iterator<char>(std::cin), {}};
  PINION_ASSIGN(const Json json, Json::Parse(text));
  CatchStopRequests({SIGTERM});  // so that the servers are stopped in order
  if (json.Find("sides")) {
    PINION_ASSIGN(const PairRequest pair, ReadPairRequest(json));
    PINION_ASSIGN(const PairResult result, RunPair(pair, start_ns, StopRequested));
    return ToJson(result);
  }
  PINION_ASSIGN(const TrialRequest request, ReadTrialRequest(json));
  PINION_ASSIGN(const TrialResult result, RunTrial(request, start_ns, StopRequested));
  return ToJson(result);
}

Status RunTrialCommand(int64_t start_ns) {
  PINION_ASSIGN(const Json result, Trial(start_ns));
  std::cout << result.Dump() << std::endl;
  return {};
}

int RunGuard(const std::string& text) {
  const std::vector<std::string> words = StringsIn(Json::Parse(text).value_or(Json()));
  if (words.empty())
    return Report({ErrorCode::kUsage, "the guard of a server takes its command as a JSON list"});
  return GuardServer(words);
}

// Not in --help.
CLI::App& AddHidden(CLI::App& app, const char* name, const char* purpose) {
  return *app.add_subcommand(name, purpose)->group("");
}

}  // namespace

void AddTrial(CLI::App& app, int& exit_code) {
  const int64_t start_ns = NowNs();
  AddHidden(app, "trial", "Child process of a sweep").callback([start_ns, &exit_code] {
    exit_code = ExitCodeOf(RunTrialCommand(start_ns));
  });
  AddHidden(app, kGeneratorCommand, "Load generator of a trial").callback([&exit_code] {
    exit_code = RunGenerator();
  });
  auto text = std::make_shared<std::string>();
  CLI::App& guard = AddHidden(app, kGuardCommand, "Parent of a server that a trial starts");
  guard.add_option("COMMAND", *text, "the command as a JSON list")->required();
  guard.callback([text, &exit_code] { exit_code = RunGuard(*text); });
}

}  // namespace pinion::harness
