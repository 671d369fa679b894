#include "harness/store/store.h"

#include <filesystem>

#include "engine/base/strings.h"
#include "harness/store/sqlite.h"

namespace pinion::harness {
namespace {

constexpr int kLayout = 3;  // PRAGMA user_version; raise it when a table changes

constexpr char kTables[] = R"(
CREATE TABLE meta(key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE candidate(
  id INTEGER PRIMARY KEY, label TEXT NOT NULL, settings TEXT NOT NULL, options TEXT NOT NULL,
  is_baseline INTEGER NOT NULL, cores INTEGER NOT NULL, infeasible TEXT NOT NULL,
  same_as TEXT NOT NULL);
CREATE TABLE trial(
  id INTEGER PRIMARY KEY AUTOINCREMENT, candidate INTEGER NOT NULL REFERENCES candidate(id),
  copy INTEGER NOT NULL, phase TEXT NOT NULL, round INTEGER NOT NULL, attempt INTEGER NOT NULL,
  position INTEGER NOT NULL, ok INTEGER NOT NULL, reason TEXT NOT NULL, log_path TEXT NOT NULL,
  log_tail TEXT NOT NULL, started_at TEXT NOT NULL, seconds REAL NOT NULL, suspect TEXT NOT NULL,
  output_hash TEXT NOT NULL, info TEXT NOT NULL, UNIQUE(candidate, copy, phase, round, attempt));
CREATE TABLE samples(
  trial INTEGER NOT NULL REFERENCES trial(id) ON DELETE CASCADE, machine TEXT NOT NULL,
  model TEXT NOT NULL, configuration TEXT NOT NULL, seed INTEGER NOT NULL, phase TEXT NOT NULL,
  round INTEGER NOT NULL, attempt INTEGER NOT NULL, candidate INTEGER NOT NULL, copy INTEGER NOT NULL, metric TEXT NOT NULL,
  concurrency INTEGER NOT NULL, value REAL NOT NULL, PRIMARY KEY(trial, metric, concurrency));
)";

Phase PhaseOf(const std::string& name) {
  for (const Phase phase : {Phase::kConfirmation, Phase::kCalibration})
    if (name == Name(phase)) return phase;
  return Phase::kRace;
}

Json ListJson(const std::vector<std::string>& list) { return Json(list); }

std::vector<std::string> ListFrom(const Json& json) {
  std::vector<std::string> list;
  if (json.is_array())
    for (const Json& item : json.array())
      if (item.is_string()) list.push_back(item.string());
  return list;
}

class SqliteStore : public Store {
 public:
  explicit SqliteStore(std::unique_ptr<Database> database) : database_(std::move(database)) {}

  Status SetMeta(const std::string& key, const Json& value) override {
    PINION_ASSIGN(Statement put, Statement::Prepare(*database_, "REPLACE INTO meta VALUES(?,?)"));
    return put.Execute(key, value);
  }

  Result<std::optional<Json>> Meta(const std::string& key) override {
    PINION_ASSIGN(Statement get,
                  Statement::Prepare(*database_, "SELECT value FROM meta WHERE key=?"));
    get.Bind(key);
    PINION_ASSIGN(const bool found, get.Next());
    if (!found) return std::optional<Json>();
    PINION_ASSIGN(Json value, get.AsJson());
    return std::optional<Json>(std::move(value));
  }

  Status PutCandidates(const std::vector<CandidateRow>& candidates) override {
    Transaction transaction(*database_);
    PINION_TRY(transaction.Begin(Transaction::Kind::kWrite));
    PINION_ASSIGN(Statement put,
                  Statement::Prepare(*database_, "INSERT INTO candidate VALUES(?,?,?,?,?,?,?,?)"));
    for (const CandidateRow& row : candidates)
      PINION_TRY(put.Execute(row.id, row.label, row.settings, row.options, row.is_baseline,
                             row.cores, row.infeasible, ListJson(row.same_as)));
    return transaction.Commit();
  }

  Result<std::vector<CandidateRow>> Candidates() override {
    PINION_ASSIGN(
        Statement get,
        Statement::Prepare(*database_,
                           "SELECT id,label,settings,options,is_baseline,cores,infeasible,same_as "
                           "FROM candidate ORDER BY id"));
    std::vector<CandidateRow> rows;
    while (true) {
      PINION_ASSIGN(const bool more, get.Next());
      if (!more) return rows;
      CandidateRow row;
      row.id = static_cast<int>(get.Int());
      row.label = get.Text();
      PINION_ASSIGN(row.settings, get.AsJson());
      PINION_ASSIGN(row.options, get.AsJson());
      row.is_baseline = get.Int() != 0;
      row.cores = static_cast<int>(get.Int());
      row.infeasible = get.Text();
      PINION_ASSIGN(const Json same_as, get.AsJson());
      row.same_as = ListFrom(same_as);
      rows.push_back(std::move(row));
    }
  }

  Status PutTrial(const TrialRow& trial, const Keys& keys) override {
    Transaction transaction(*database_);
    PINION_TRY(transaction.Begin(Transaction::Kind::kWrite));
    PINION_ASSIGN(
        Statement put,
        Statement::Prepare(*database_,
                           "REPLACE INTO trial(candidate,copy,phase,round,attempt,position,ok,"
                           "reason,log_path,log_tail,started_at,seconds,suspect,output_hash,info) "
                           "VALUES(?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)"));
    PINION_TRY(put.Execute(trial.candidate, trial.copy, Name(trial.phase), trial.round,
                           trial.attempt, trial.position, trial.ok, trial.reason, trial.log_path,
                           trial.log_tail, trial.started_at, trial.seconds, ListJson(trial.suspect),
                           trial.output_hash, trial.info));
    const int64_t id = database_->last_row();
    PINION_ASSIGN(
        Statement sample,
        Statement::Prepare(*database_, "INSERT INTO samples VALUES(?,?,?,?,?,?,?,?,?,?,?,?,?)"));
    for (const MetricValue& value : trial.samples)
      PINION_TRY(sample.Execute(id, keys.machine, keys.model, keys.configuration,
                                static_cast<int64_t>(keys.seed), Name(trial.phase), trial.round,
                                trial.attempt, trial.candidate, trial.copy, value.metric,
                                value.concurrency, value.value));
    return transaction.Commit();
  }

  Result<std::vector<TrialRow>> Trials() override {
    // One transaction, so that a running sweep cannot add a trial between the two queries.
    Transaction transaction(*database_);
    PINION_TRY(transaction.Begin(Transaction::Kind::kRead));
    PINION_ASSIGN(std::vector<TrialRow> trials, ReadTrials());
    PINION_TRY(transaction.Commit());
    return trials;
  }

 private:
  Result<std::vector<TrialRow>> ReadTrials() {
    PINION_ASSIGN(
        Statement get,
        Statement::Prepare(
            *database_,
            "SELECT id,candidate,copy,phase,round,attempt,position,ok,reason,log_path,"
            "log_tail,started_at,seconds,suspect,output_hash,info FROM trial ORDER BY id"));
    PINION_ASSIGN(
        Statement samples,
        Statement::Prepare(
            *database_, "SELECT trial,metric,concurrency,value FROM samples ORDER BY trial,rowid"));
    PINION_ASSIGN(bool more_samples, samples.Next());
    int64_t sample_trial = more_samples ? samples.Int() : 0;
    std::vector<TrialRow> rows;
    while (true) {
      PINION_ASSIGN(const bool more, get.Next());
      if (!more) return rows;
      const int64_t id = get.Int();
      PINION_ASSIGN(TrialRow row, ReadTrial(get));
      while (more_samples && sample_trial == id) {
        MetricValue value;
        value.metric = samples.Text();
        value.concurrency = static_cast<int>(samples.Int());
        value.value = samples.Real();
        row.samples.push_back(std::move(value));
        PINION_ASSIGN(more_samples, samples.Next());
        if (more_samples) sample_trial = samples.Int();
      }
      rows.push_back(std::move(row));
    }
  }

  // All columns after the id.
  static Result<TrialRow> ReadTrial(Statement& get) {
    TrialRow row;
    row.candidate = static_cast<int>(get.Int());
    row.copy = static_cast<int>(get.Int());
    row.phase = PhaseOf(get.Text());
    row.round = static_cast<int>(get.Int());
    row.attempt = static_cast<int>(get.Int());
    row.position = static_cast<int>(get.Int());
    row.ok = get.Int() != 0;
    row.reason = get.Text();
    row.log_path = get.Text();
    row.log_tail = get.Text();
    row.started_at = get.Text();
    row.seconds = get.Real();
    PINION_ASSIGN(const Json suspect, get.AsJson());
    row.suspect = ListFrom(suspect);
    row.output_hash = get.Text();
    PINION_ASSIGN(row.info, get.AsJson());
    return row;
  }

  std::unique_ptr<Database> database_;
};

Result<int64_t> Layout(const Database& database) {
  PINION_ASSIGN(Statement get, Statement::Prepare(database, "PRAGMA user_version"));
  PINION_ASSIGN(const bool found, get.Next());
  return found ? get.Int() : 0;
}

Status CreateTables(const Database& database, const std::string& path) {
  PINION_ASSIGN(const int64_t layout, Layout(database));
  if (layout != 0)
    return Fail(ErrorCode::kUsage,
                StrCat(path, " already holds a sweep: continue it with --resume"));
  Transaction transaction(database);
  PINION_TRY(transaction.Begin(Transaction::Kind::kWrite));
  PINION_TRY(database.Run(kTables));
  PINION_TRY(database.Run(StrCat("PRAGMA user_version=", kLayout)));
  return transaction.Commit();
}

Status CheckLayout(const Database& database, const std::string& path) {
  PINION_ASSIGN(const int64_t layout, Layout(database));
  if (layout == kLayout) return {};
  return Fail(ErrorCode::kUnsupported,
              StrCat(path, " has layout ", layout, ", this version reads layout ", kLayout,
                     "; use the version that wrote it, or sweep into a new folder"));
}

}  // namespace

const char* Name(Phase phase) {
  switch (phase) {
    case Phase::kRace:
      return "race";
    case Phase::kConfirmation:
      return "confirmation";
    case Phase::kCalibration:
      return "calibration";
  }
  return "";
}

Result<std::unique_ptr<Store>> Store::Open(const std::string& path, Mode mode) {
  std::error_code ignored;
  if (mode != Mode::kCreate && !std::filesystem::exists(path, ignored))
    return Fail(ErrorCode::kNotFound, StrCat("there is no sweep at ", path));
  PINION_ASSIGN(auto database, Database::Open(path, mode == Mode::kCreate));
  // NORMAL loses nothing to kill -9; a power cut may cost the last trials, never the file.
  PINION_TRY(
      database->Run("PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL; "
                    "PRAGMA foreign_keys=ON"));
  PINION_TRY(mode == Mode::kCreate ? CreateTables(*database, path) : CheckLayout(*database, path));
  return std::make_unique<SqliteStore>(std::move(database));
}

}  // namespace pinion::harness
