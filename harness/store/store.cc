#include "harness/store/store.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <utility>

#include "engine/base/json_lists.h"
#include "engine/base/strings.h"
#include "harness/store/request_rows.h"
#include "harness/store/sqlite.h"
#include "harness/store/tables.h"

namespace pinion::harness {
namespace {

constexpr int kLockPatienceMs = 5000;

Phase PhaseOf(const std::string& name) {
  for (const Phase phase : {Phase::kConfirmation, Phase::kCalibration})
    if (name == Name(phase)) return phase;
  return Phase::kRace;
}

// [[key, value], ...], which any SQLite client can read.
Json PairsOf(const std::vector<Setting>& settings) {
  Json pairs = Json::MakeArray();
  for (const auto& [key, value] : settings)
    pairs.Append(Json(std::vector<std::string>{key, value}));
  return pairs;
}

// nullopt if they are something else; null is none.
std::optional<std::vector<Setting>> SettingsFrom(const Json& pairs) {
  std::vector<Setting> settings;
  if (pairs.is_null()) return settings;
  if (!pairs.is_array()) return std::nullopt;
  for (const Json& pair : pairs.array()) {
    const std::vector<std::string> texts = StringsIn(pair);
    if (texts.size() != 2 || pair.array().size() != 2) return std::nullopt;
    settings.push_back({texts[0], texts[1]});
  }
  return settings;
}

tl::unexpected<Error> Damaged(const std::string& path, const std::string& what) {
  return Fail(ErrorCode::kCorrupt,
              StrCat(path, " is damaged, it lacks ", what,
                     " or a part of it: take it from a backup, or sweep into a new folder"));
}

class SqliteStore : public Store {
 public:
  // Readers need write access too: WAL keeps its index in a shared file.
  SqliteStore(const std::string& path, int flags) : database_(path, flags, kLockPatienceMs) {
    // NORMAL loses nothing to kill -9; a power cut may cost the last trials, never the file.
    database_.exec("PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL; PRAGMA foreign_keys=ON");
  }

  SQLite::Database& database() { return database_; }

  Status SetMeta(const std::string& key, const Json& value) override {
    return Guarded(path(), [&]() -> Status {
      SQLite::Statement put(database_, "REPLACE INTO meta VALUES(?,?)");
      Execute(put, key, value.Dump());
      return {};
    });
  }

  Result<std::optional<Json>> Meta(const std::string& key) override {
    return Guarded(path(), [&]() -> Result<std::optional<Json>> {
      SQLite::Statement get(database_, "SELECT value FROM meta WHERE key=?");
      get.bind(1, key);
      if (!get.executeStep()) return std::optional<Json>();
      PINION_ASSIGN(Json value, Columns(get).AsJson());
      return std::optional<Json>(std::move(value));
    });
  }

  Status PutCandidates(const std::vector<CandidateRow>& candidates) override {
    return Guarded(path(), [&]() -> Status {
      SQLite::Transaction transaction(database_, kWriter);
      SQLite::Statement put(database_, "INSERT INTO candidate VALUES(?,?,?,?,?,?,?,?,?)");
      for (const CandidateRow& row : candidates)
        Execute(put, row.id, row.label, row.engine, PairsOf(row.settings).Dump(),
                ToJson(row.configuration.options).Dump(), int{row.is_baseline}, row.cores,
                row.infeasible, Json(row.same_as).Dump());
      transaction.commit();
      return {};
    });
  }

  Result<std::vector<CandidateRow>> Candidates() override {
    return Guarded(path(), [&] { return ReadCandidates(); });
  }

  Status PutTrial(const TrialRow& trial, const Keys& keys) override {
    return Guarded(path(), [&]() -> Status {
      SQLite::Transaction transaction(database_, kWriter);
      SQLite::Statement put(database_,
                            "REPLACE INTO trial(candidate,copy,phase,round,attempt,position,ok,"
                            "reason,log_path,log_tail,started_at,seconds,suspect,info) "
                            "VALUES(?,?,?,?,?,?,?,?,?,?,?,?,?,?)");
      Execute(put, trial.candidate, trial.copy, Name(trial.phase), trial.round, trial.attempt,
              trial.position, int{trial.ok}, trial.reason, trial.log_path, trial.log_tail,
              trial.started_at, trial.seconds, Json(trial.suspect).Dump(),
              ToJson(trial.info).Dump());
      const int64_t id = database_.getLastInsertRowid();
      SQLite::Statement sample(database_,
                               "INSERT INTO samples VALUES(?,?,?,?,?,?,?,?,?,?,?,?,?,?)");
      for (const MetricValue& value : trial.samples)
        Execute(sample, id, keys.machine, keys.model, keys.configuration,
                static_cast<int64_t>(keys.seed), Name(trial.phase), trial.round, trial.attempt,
                trial.candidate, trial.copy, value.metric, value.level.clients, value.level.rate,
                value.value);
      PutRequests(database_, id, trial.requests);
      transaction.commit();
      return {};
    });
  }

  Result<Keys> KeysOf(const Slot& slot) override {
    return Guarded(path(), [&]() -> Result<Keys> {
      SQLite::Statement get(database_,
                            "SELECT machine,model,configuration,seed FROM samples WHERE trial = "
                            "(SELECT id FROM trial WHERE candidate = ? AND copy = ? AND phase = ? "
                            "AND round = ? AND attempt = ?) LIMIT 1");
      SQLite::bind(get, slot.candidate, slot.copy, Name(slot.phase), slot.round, slot.attempt);
      if (!get.executeStep()) return Keys();
      Columns columns(get);
      Keys keys;
      keys.machine = columns.Text();
      keys.model = columns.Text();
      keys.configuration = columns.Text();
      keys.seed = static_cast<uint64_t>(columns.Int64());
      return keys;
    });
  }

  Result<std::vector<TrialRow>> Trials() override {
    // One transaction, so that a running sweep cannot add a trial between the two queries.
    return Guarded(path(), [&] {
      const SQLite::Transaction transaction(database_);
      return ReadTrials();
    });
  }

  Result<std::vector<RequestRow>> Requests(const Slot& slot) override {
    return Guarded(path(), [&] { return ReadRequests(database_, slot); });
  }

 private:
  const std::string& path() const { return database_.getFilename(); }

  Result<std::vector<CandidateRow>> ReadCandidates() {
    SQLite::Statement get(database_,
                          "SELECT id,label,engine,settings,options,is_baseline,cores,infeasible,"
                          "same_as FROM candidate ORDER BY id");
    std::vector<CandidateRow> rows;
    while (get.executeStep()) {
      Columns columns(get);
      CandidateRow row;
      row.id = columns.Int();
      row.label = columns.Text();
      row.engine = columns.Text();
      PINION_ASSIGN(const Json settings, columns.AsJson());
      PINION_ASSIGN(const Json options, columns.AsJson());
      row.is_baseline = columns.Int() != 0;
      row.cores = columns.Int();
      row.infeasible = columns.Text();
      PINION_ASSIGN(const Json same_as, columns.AsJson());
      row.same_as = StringsIn(same_as);
      auto own = SettingsFrom(settings);
      const bool is_whole = own && (options.is_object() || options.is_null());
      if (row.id != static_cast<int>(rows.size()) || !is_whole)
        return Damaged(path(), StrCat("candidate ", rows.size()));
      row.settings = std::move(*own);
      row.configuration = ConfigurationOf(row.settings);
      if (options.is_object())
        if (auto known = FromJson(options, row.configuration.options); !known)
          return Fail(ErrorCode::kUnsupported,
                      StrCat("candidate ", row.id, " of ", path(),
                             " is of another version: ", known.error().message));
      rows.push_back(std::move(row));
    }
    if (rows.empty()) return Damaged(path(), "the baseline");
    return rows;
  }

  Result<std::vector<TrialRow>> ReadTrials() {
    SQLite::Statement get(database_,
                          "SELECT id,candidate,copy,phase,round,attempt,position,ok,reason,"
                          "log_path,log_tail,started_at,seconds,suspect,info "
                          "FROM trial ORDER BY id");
    SQLite::Statement samples(
        database_, "SELECT trial,metric,concurrency,rate,value FROM samples ORDER BY trial,rowid");
    bool more_samples = samples.executeStep();
    std::vector<TrialRow> rows;
    while (get.executeStep()) {
      const int64_t id = get.getColumn(0).getInt64();
      PINION_ASSIGN(TrialRow row, ReadTrial(get));
      for (; more_samples && samples.getColumn(0).getInt64() == id;
           more_samples = samples.executeStep())
        row.samples.push_back({samples.getColumn(1).getString(),
                               {samples.getColumn(2).getInt(), samples.getColumn(3).getDouble()},
                               samples.getColumn(4).getDouble()});
      rows.push_back(std::move(row));
    }
    return rows;
  }

  static Result<TrialRow> ReadTrial(SQLite::Statement& get) {
    Columns columns(get);
    (void)columns.Int64();  // the id
    TrialRow row;
    row.candidate = columns.Int();
    row.copy = columns.Int();
    row.phase = PhaseOf(columns.Text());
    row.round = columns.Int();
    row.attempt = columns.Int();
    row.position = columns.Int();
    row.ok = columns.Int() != 0;
    row.reason = columns.Text();
    row.log_path = columns.Text();
    row.log_tail = columns.Text();
    row.started_at = columns.Text();
    row.seconds = columns.Real();
    PINION_ASSIGN(const Json suspect, columns.AsJson());
    row.suspect = StringsIn(suspect);
    PINION_ASSIGN(const Json info, columns.AsJson());
    row.info = ReadTrialInfo(info);
    return row;
  }

  SQLite::Database database_;
};

// A database with the files that SQLite keeps beside it.
void Remove(const std::string& path) {
  std::error_code ignored;
  for (const char* suffix : {"", "-wal", "-shm"}) std::filesystem::remove(path + suffix, ignored);
}

}  // namespace

const char* Name(Phase phase) {
  constexpr const char* kNames[] = {"race", "confirmation", "calibration"};
  return kNames[static_cast<size_t>(phase)];
}

Result<std::unique_ptr<Store>> Store::Open(const std::string& path) {
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored))
    return Fail(ErrorCode::kNotFound, StrCat("there is no sweep at ", path));
  return Guarded(path, [&]() -> Result<std::unique_ptr<Store>> {
    auto store = std::make_unique<SqliteStore>(path, SQLite::OPEN_READWRITE);
    PINION_TRY(CheckTables(store->database()));
    return store;
  });
}

Result<std::unique_ptr<Store>> Store::Create(const std::string& path,
                                             const std::function<Status(Store&)>& fill) {
  std::error_code error;
  if (std::filesystem::exists(path, error))
    return Fail(ErrorCode::kUsage,
                StrCat(path, " already holds a sweep: continue it with --resume"));
  const std::string unfinished = path + ".new";
  Remove(unfinished);  // of a process that was killed
  const Status filled = Guarded(path, [&]() -> Status {
    SqliteStore store(unfinished, SQLite::OPEN_READWRITE | SQLite::OPEN_CREATE);
    CreateTables(store.database());
    if (fill) PINION_TRY(fill(store));
    // Closing would do this, too, but without a word if the disk is full: the file would be empty.
    store.database().exec("PRAGMA wal_checkpoint(TRUNCATE)");
    return {};
  });
  if (filled) Remove(path);  // SQLite would read a stale log beside it as ours
  if (filled) std::filesystem::rename(unfinished, path, error);
  if (!filled || error) Remove(unfinished);
  if (!filled) return Unexpected(Error(filled.error()));
  if (error) return Fail(ErrorCode::kIo, StrCat("cannot make ", path, ": ", error.message()));
  return Open(path);
}

bool RanBatch(const std::vector<TrialRow>& trials) {
  return std::any_of(trials.begin(), trials.end(), [](const TrialRow& trial) {
    return trial.ok && std::any_of(trial.samples.begin(), trial.samples.end(), [](const auto& one) {
             return one.metric == "output_tokens_per_s" && !one.level.any();
           });
  });
}

int ReducedBatch(const std::vector<TrialRow>& trials) {
  const auto measured =
      std::find_if(trials.begin(), trials.end(), [](const TrialRow& trial) { return trial.ok; });
  return measured == trials.end() ? 0 : measured->info.batch_prompts;
}

}  // namespace pinion::harness
