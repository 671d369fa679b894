#include "harness/sweep/proposer.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "engine/base/clock.h"
#include "engine/base/json_text.h"
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

// A proposal names as many candidates as were asked for, each once; every other answer is refused.
Result<std::vector<int>> ProposedBy(const Json& answer, const ProposalQuestion& question) {
  const Json* proposed = answer.Find("proposed");
  std::vector<int> ids, left = question.among;
  const size_t count = std::min(question.count, left.size());
  bool is_one = proposed && proposed->is_array() && proposed->array().size() == count;
  for (size_t i = 0; is_one && i < proposed->array().size(); ++i) {
    const Json& id = proposed->array()[i];
    const auto found = std::find_if(left.begin(), left.end(), [&](const int one) {
      return id.is_int() && id.integer() == one;
    });
    is_one = found != left.end();
    if (!is_one) break;
    ids.push_back(*found);
    left.erase(found);
  }
  if (is_one) return ids;
  return Fail(ErrorCode::kFailed,
              StrCat("Optuna's process answered ", Excerpt(answer), ", which does not propose ",
                     count, " of the candidates asked about"));
}

class Tpe final : public Proposer {
 public:
  Tpe(LineProcess process, std::function<std::string()> why_stop, double patience_s)
      : process_(std::move(process)), why_stop_(std::move(why_stop)), patience_s_(patience_s) {}

  Result<std::vector<int>> Propose(const ProposalQuestion& question) override {
    Json tried = Json::MakeArray();
    for (const CandidateGain& one : question.tried) {
      Json pair = Json::MakeArray();
      pair.Append(one.id);
      pair.Append(one.gain ? Json(*one.gain) : Json());
      tried.Append(std::move(pair));
    }
    const auto answer = Ask(Json::Object{{"tried", std::move(tried)},
                                         {"among", Json(question.among)},
                                         {"count", static_cast<int64_t>(question.count)},
                                         {"seed", SeedOf(question)}});
    if (!answer && is_silent_)
      return Fail(ErrorCode::kFailed,
                  StrCat(answer.error().message, ": continue with --resume, or sweep into a new ",
                         "folder with another --strategy"));
    if (!answer) return Unexpected(Error(answer.error()));
    return ProposedBy(*answer, question);
  }

  Result<Json> Ask(const Json& question) {
    const int64_t asked_ns = NowNs();
    is_silent_ = false;
    const auto why_stop = [&] {
      std::string why = why_stop_();
      is_silent_ = why.empty() && SecondsSince(asked_ns) > patience_s_;
      return is_silent_
                 ? StrCat("Optuna's process has not answered for ", patience_s_, " s and was ended")
                 : why;
    };
    PINION_ASSIGN(const std::string line, process_.Ask(question.Dump(), why_stop));
    return Json::Parse(line);
  }
  // Whether the last question ended because nothing came.
  bool is_silent() const { return is_silent_; }

 private:
  LineProcess process_;
  std::function<std::string()> why_stop_;
  double patience_s_;
  bool is_silent_ = false;
};

}  // namespace

Result<std::unique_ptr<Proposer>> StartTpe(const std::vector<CandidateRow>& candidates,
                                           std::function<std::string()> why_stop,
                                           double patience_s) {
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
  auto tpe = std::make_unique<Tpe>(std::move(*process), std::move(why_stop), patience_s);
  const auto answer = tpe->Ask(Json::Object{{"points", PointsJson(candidates)}});
  if (!answer && tpe->is_silent())
    return Fail(ErrorCode::kFailed,
                StrCat(answer.error().message, ": see whether `", python,
                       " -c 'import optuna'` ends, or choose another --strategy"));
  if (!answer) return lacks(StrCat(python, " does not start: ", answer.error().message));
  if (const Json* error = answer->Find("error"))
    return lacks(
        StrCat(python, " has none (", error->is_string() ? error->string() : Excerpt(*error), ")"));
  return tpe;
}

}  // namespace pinion::harness
