#include "harness/sweep/proposer.h"

#include <cstdlib>
#include <utility>

#include "engine/base/strings.h"
#include "harness/sweep/coordinates.h"
#include "harness/sweep/protocol.h"
#include "harness/trial/line_process.h"

namespace pinion::harness {

extern const char* const kTpeHelperSource;

namespace {

std::string PythonProgram() {
  const char* chosen = std::getenv("PINION_PYTHON");
  return chosen && *chosen ? chosen : "python3";
}

Json PointsJson(const std::vector<CandidateRow>& candidates) {
  Json points = Json::MakeObject();
  const Coordinates space(candidates, Feasible(candidates));
  for (const auto& [id, point] : space.points()) {
    Json settings = Json::MakeObject();
    for (const auto& [key, value] : point) settings.Set(key, value);
    points.Set(std::to_string(id), std::move(settings));
  }
  return points;
}

// Below 2^31, as numpy's generators want it, after one was added for each candidate tried.
int64_t SeedOf(const ProposalQuestion& question) {
  return static_cast<int64_t>(question.seed % (uint64_t{1} << 31)) / 2;
}

class Tpe final : public Proposer {
 public:
  Tpe(LineProcess process, std::function<std::string()> why_stop)
      : process_(std::move(process)), why_stop_(std::move(why_stop)) {}

  Result<std::vector<int>> Propose(const ProposalQuestion& question) override {
    Json tried = Json::MakeArray();
    for (const Tried& one : question.tried) {
      Json pair = Json::MakeArray();
      pair.Append(one.id);
      pair.Append(one.gain ? Json(*one.gain) : Json());
      tried.Append(std::move(pair));
    }
    PINION_ASSIGN(const Json answer,
                  Ask(Json::Object{{"tried", std::move(tried)},
                                   {"among", Json(question.among)},
                                   {"count", static_cast<int64_t>(question.count)},
                                   {"seed", SeedOf(question)}}));
    const Json* proposed = answer.Find("proposed");
    if (!proposed || !proposed->is_array())
      return Fail(ErrorCode::kFailed, StrCat("Optuna's process answered ", answer.Dump()));
    std::vector<int> ids;
    for (const Json& id : proposed->array()) ids.push_back(static_cast<int>(id.integer()));
    return ids;
  }

  Result<Json> Ask(const Json& question) {
    PINION_ASSIGN(const std::string line, process_.Ask(question.Dump(), why_stop_));
    return Json::Parse(line);
  }

 private:
  LineProcess process_;
  std::function<std::string()> why_stop_;
};

}  // namespace

Result<std::unique_ptr<Proposer>> StartTpe(const std::vector<CandidateRow>& candidates,
                                           std::function<std::string()> why_stop) {
  const std::string python = PythonProgram();
  const std::string way_out =
      "install it (python3 -m pip install optuna) or name a Python that has it in PINION_PYTHON, "
      "or choose another strategy";
  const auto lacks = [&](const std::string& why) {
    return Fail(ErrorCode::kUnsupported,
                StrCat("--strategy tpe needs Optuna, and ", why, "; ", way_out));
  };
  Process::Options options;
  options.arguments = {python, "-c", kTpeHelperSource};
  auto process = LineProcess::Start(std::move(options), "Optuna's process");
  if (!process) return lacks(process.error().message);
  auto tpe = std::make_unique<Tpe>(std::move(*process), std::move(why_stop));
  const auto answer = tpe->Ask(Json::Object{{"points", PointsJson(candidates)}});
  if (!answer) return lacks(StrCat(python, " does not start: ", answer.error().message));
  if (const Json* error = answer->Find("error"))
    return lacks(StrCat(python, " has none (", error->string(), ")"));
  return tpe;
}

}  // namespace pinion::harness
