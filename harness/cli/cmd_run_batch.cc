// `pinion run-batch`: OpenAI's batch files, answered by a server of its own. Exit 0 all answered, 1
// some refused or failed, or interrupted, 2 bad usage.

#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>

#include "engine/base/file.h"
#include "engine/base/log.h"
#include "engine/base/strings.h"
#include "engine/run/prompts.h"
#include "harness/batch/run_batch.h"
#include "harness/cli/commands.h"
#include "harness/cli/engine_flags.h"
#include "harness/cli/stop_request.h"
#include "harness/trial/trial_server.h"

namespace pinion::harness {
namespace {

struct RunBatchFlags {
  EngineFlags engine;
  std::string input, output;
  bool resume = false;
  int at_once = 0;
  double timeout_s = 3600;
};

// The file of answers. Those of an earlier run are kept, or there are none.
struct BatchOutput {
  JsonLinesFile file;
  std::set<std::string> answered;  // custom_ids
};

// Rewrites the lines that an earlier run completed beside the file, and goes on there: a run that
// is killed in between leaves the old file.
Result<BatchOutput> OpenOutput(const RunBatchFlags& flags) {
  std::string text;
  if (flags.output != "-" && std::filesystem::exists(flags.output)) {
    PINION_ASSIGN(text, ReadFile(flags.output));
  }
  if (!text.empty() && !flags.resume)
    return Fail(ErrorCode::kUsage,
                StrCat("'", flags.output, "' is not empty; give --resume to answer only the ",
                       "requests that it has no answer to, or another file"));
  if (text.empty()) {
    PINION_ASSIGN(JsonLinesFile file, JsonLinesFile::Create(flags.output));
    return BatchOutput{std::move(file), {}};
  }
  const std::vector<Json> kept = AnsweredLines(text);
  const std::string beside = flags.output + ".part";
  PINION_ASSIGN(JsonLinesFile file, JsonLinesFile::Create(beside));
  for (const Json& line : kept) PINION_TRY(file.Append(line));
  std::error_code failed;
  std::filesystem::rename(beside, flags.output, failed);
  if (failed)
    return Fail(ErrorCode::kIo, StrCat("cannot write '", flags.output, "': ", failed.message()));
  return BatchOutput{std::move(file), CustomIdsOf(kept)};
}

// Shows on a terminal how far it is.
class BatchProgress {
 public:
  explicit BatchProgress(size_t all) : all_(all), show_(isatty(STDERR_FILENO) != 0) {}
  ~BatchProgress() {
    if (show_) std::fputs("\r\033[K", stderr);
  }
  void Take(const BatchOutcome& outcome) {
    ++done_;
    bad_ += outcome.is_good() ? 0 : 1;
    if (show_) std::fprintf(stderr, "\r%zu of %zu requests\033[K", done_, all_);
  }
  size_t done() const { return done_; }
  size_t bad() const { return bad_; }

 private:
  const size_t all_;
  const bool show_;
  size_t done_ = 0, bad_ = 0;
};

Result<std::vector<BatchRequest>> LeftOf(std::vector<BatchRequest> requests,
                                         const std::set<std::string>& answered) {
  std::erase_if(requests,
                [&](const BatchRequest& one) { return answered.contains(one.custom_id); });
  return requests;
}

// The server, on a free port of 127.0.0.1, with its messages on standard error.
Result<std::unique_ptr<EngineServer>> StartServer(const TrialRequest& request) {
  PINION_ASSIGN(const ServerPlan plan, PlanServer(request));
  PINION_ASSIGN(const int port, FreePort());
  PINION_ASSIGN(const EngineCommand command, plan.CommandOn(port, request.engine));
  PINION_ASSIGN(auto server, EngineServer::Start(command, port, STDERR_FILENO));
  if (const Status ready =
          server->WaitUntilReady(request.engine, request.engine.start_timeout_s, StopRequested);
      !ready)
    return Fail(ready.error().code, StrCat("the server ", ready.error().message));
  return server;
}

// False: some requests were refused or got no answer.
Result<bool> Answer(const RunBatchFlags& flags) {
  TrialRequest request;
  PINION_ASSIGN(request.configuration.options, flags.engine.Resolve());
  request.configuration.options.has_frontend = true;
  PINION_ASSIGN(std::vector<Json> lines, ReadJsonLines(flags.input));
  PINION_ASSIGN(std::vector<BatchRequest> all, ReadBatch(lines));
  PINION_ASSIGN(BatchOutput output, OpenOutput(flags));
  BatchPlan plan;
  PINION_ASSIGN(plan.requests, LeftOf(std::move(all), output.answered));
  if (!output.answered.empty())
    LogInfo(StrCat(lines.size() - plan.requests.size(), " of ", lines.size(),
                   " requests have been answered before"));
  if (plan.requests.empty()) return true;
  CatchStopRequests({SIGINT, SIGTERM});
  PINION_ASSIGN(const auto server, StartServer(request));
  PINION_ASSIGN(const auto client, HttpClient::Make(server->url(), {}));
  BatchProgress progress(plan.requests.size());
  plan.at_once = flags.at_once > 0 ? flags.at_once : request.configuration.options.max_num_seqs;
  plan.timeout_s = flags.timeout_s;
  plan.interrupted = StopRequested;
  plan.why_ended = [&] {
    const std::string why = server->WhyEnded(0);
    return why.empty() ? why : StrCat("the server ", why);
  };
  const auto done = [&](const BatchRequest& one, const BatchOutcome& outcome) -> Status {
    progress.Take(outcome);
    return output.file.Append(BatchLine(one.custom_id, outcome));
  };
  if (auto ran = RunBatch(*client, plan, done); !ran)
    return Fail(ran.error().code,
                StrCat(ran.error().message, "; ", progress.done(), " of ", plan.requests.size(),
                       " requests are answered, --resume goes on with the others"));
  if (progress.bad() > 0)
    LogError(StrCat(progress.bad(), " of ", plan.requests.size(),
                    " requests failed: see their \"status_code\" or \"error\""));
  return progress.bad() == 0;
}

}  // namespace

void AddRunBatch(CLI::App& app, int& exit_code) {
  auto flags = std::make_shared<RunBatchFlags>();
  auto* command = app.add_subcommand("run-batch", "Answer a batch file in OpenAI's format");
  flags->engine.AddTo(*command);
  command
      ->add_option("-i,--input-file", flags->input,
                   "JSONL with {\"custom_id\", \"method\": \"POST\", \"url\": "
                   "\"/v1/chat/completions\", \"body\": {...}} per line; '-': stdin")
      ->required();
  command
      ->add_option("-o,--output-file", flags->output,
                   "JSONL to write, a line as soon as it is answered, '-': stdout")
      ->required();
  command->add_flag("--resume", flags->resume,
                    "keep the answers that the output file has, and answer the other requests");
  command
      ->add_option("--max-concurrency", flags->at_once,
                   "most requests at a time (default: --max-num-seqs)")
      ->check(CLI::Range(1, 65536));
  command
      ->add_option("--request-timeout", flags->timeout_s,
                   "seconds after which a request is given up")
      ->check(CLI::Range(0.001, 1e9))
      ->capture_default_str();
  command->callback([flags, &exit_code] { exit_code = ExitCodeOf(Answer(*flags)); });
}

}  // namespace pinion::harness
