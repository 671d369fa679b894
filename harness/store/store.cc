#include "harness/store/store.h"

#include <SQLiteCpp/SQLiteCpp.h>
#include <SQLiteCpp/VariadicBind.h>
#include <sqlite3.h>

#include <filesystem>
#include <utility>

#include "engine/base/strings.h"

namespace pinion::harness {
namespace {

constexpr int kLockPatienceMs = 5000;
constexpr int kLayout = 7;  // PRAGMA user_version; raise it when a table changes

constexpr char kTables[] = R"(
CREATE TABLE meta(key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE candidate(
  id INTEGER PRIMARY KEY, label TEXT NOT NULL, engine TEXT NOT NULL, settings TEXT NOT NULL,
  options TEXT NOT NULL, is_baseline INTEGER NOT NULL, cores INTEGER NOT NULL, infeasible TEXT NOT NULL,
  same_as TEXT NOT NULL);
CREATE TABLE trial(
  id INTEGER PRIMARY KEY AUTOINCREMENT, candidate INTEGER NOT NULL REFERENCES candidate(id),
  copy INTEGER NOT NULL, phase TEXT NOT NULL, round INTEGER NOT NULL, attempt INTEGER NOT NULL,
  position INTEGER NOT NULL, ok INTEGER NOT NULL, reason TEXT NOT NULL, log_path TEXT NOT NULL,
  log_tail TEXT NOT NULL, started_at TEXT NOT NULL, seconds REAL NOT NULL, suspect TEXT NOT NULL,
  info TEXT NOT NULL, UNIQUE(candidate, copy, phase, round, attempt));
CREATE TABLE samples(
  trial INTEGER NOT NULL REFERENCES trial(id) ON DELETE CASCADE, machine TEXT NOT NULL,
  model TEXT NOT NULL, configuration TEXT NOT NULL, seed INTEGER NOT NULL, phase TEXT NOT NULL,
  round INTEGER NOT NULL, attempt INTEGER NOT NULL, candidate INTEGER NOT NULL, copy INTEGER NOT NULL, metric TEXT NOT NULL,
  concurrency INTEGER NOT NULL, rate REAL NOT NULL, value REAL NOT NULL,
  PRIMARY KEY(trial, metric, concurrency, rate));
CREATE TABLE requests(
  trial INTEGER NOT NULL REFERENCES trial(id) ON DELETE CASCADE, load TEXT NOT NULL,
  concurrency INTEGER NOT NULL, rate REAL NOT NULL, conversation INTEGER NOT NULL, turn INTEGER NOT NULL,
  scheduled_ns INTEGER NOT NULL, sent_ns INTEGER NOT NULL,
  ended_ns INTEGER NOT NULL, output_len INTEGER NOT NULL, prompt_tokens INTEGER,
  output_tokens INTEGER, cached_tokens INTEGER, status INTEGER NOT NULL, error TEXT NOT NULL,
  cut INTEGER NOT NULL, token_us BLOB NOT NULL);
CREATE INDEX requests_of_trial ON requests(trial);
)";

Phase PhaseOf(const std::string& name) {
  for (const Phase phase : {Phase::kConfirmation, Phase::kCalibration})
    if (name == Name(phase)) return phase;
  return Phase::kRace;
}

// SQLite's error, with a message that names the file and the way out.
Error ErrorOf(const SQLite::Exception& thrown, const std::string& path) {
  switch (thrown.getErrorCode() & 0xff) {
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      return {ErrorCode::kExhausted,
              StrCat(path, " is locked by another process; wait for it or end it")};
    case SQLITE_FULL:
      return {ErrorCode::kExhausted,
              StrCat("no space left to write ", path, "; make room and continue with --resume")};
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
      return {ErrorCode::kCorrupt, StrCat(path, " is not an intact database (", thrown.what(),
                                          "); restore it, or sweep into a new folder")};
    case SQLITE_READONLY:
    case SQLITE_CANTOPEN:
    case SQLITE_IOERR:
      return {ErrorCode::kIo, StrCat("cannot read or write ", path, ": ", thrown.what())};
    default:
      return {ErrorCode::kFailed, StrCat(path, ": ", thrown.what())};
  }
}

// Calls `work`; what SQLite throws in it becomes its error.
template <typename Work>
auto Guarded(const std::string& path, const Work& work) -> decltype(work()) {
  try {
    return work();
  } catch (const SQLite::Exception& thrown) {
    return Unexpected(ErrorOf(thrown, path));
  }
}

// Binds all arguments in order and runs a statement that yields no rows; it can be reused.
template <typename... Args>
void Execute(SQLite::Statement& statement, const Args&... args) {
  statement.reset();
  SQLite::bind(statement, args...);
  statement.exec();
}

// Binds a statement's parameters in order; an optional without a value is NULL.
class Binder {
 public:
  explicit Binder(SQLite::Statement& statement) : statement_(statement) {}
  template <typename... Args>
  void operator()(const Args&... args) {
    (One(args), ...);
  }
  int next() { return ++at_; }

 private:
  template <typename T>
  void One(const T& value) {
    if constexpr (std::is_same_v<T, size_t>) {
      statement_.bind(next(), static_cast<int64_t>(value));
    } else {
      statement_.bind(next(), value);
    }
  }
  template <typename T>
  void One(const std::optional<T>& value) {
    if (value) return One(*value);
    statement_.bind(next());
  }

  SQLite::Statement& statement_;
  int at_ = 0;
};

// A row's columns, in order.
class Columns {
 public:
  explicit Columns(SQLite::Statement& row) : row_(row) {}
  std::string Text() { return row_.getColumn(at_++).getString(); }
  int64_t Int64() { return row_.getColumn(at_++).getInt64(); }
  int Int() { return static_cast<int>(Int64()); }
  double Real() { return row_.getColumn(at_++).getDouble(); }
  Result<Json> AsJson() { return Json::Parse(Text()); }
  // nullopt: NULL.
  std::optional<int> MaybeInt() {
    return row_.getColumn(at_).isNull() ? (++at_, std::nullopt) : std::optional(Int());
  }
  std::optional<double> MaybeReal() {
    return row_.getColumn(at_).isNull() ? (++at_, std::nullopt) : std::optional(Real());
  }

 private:
  SQLite::Statement& row_;
  int at_ = 0;
};

// A writer takes its lock at once: SQLite does not let a reader wait to become a writer.
constexpr auto kWriter = SQLite::TransactionBehavior::IMMEDIATE;

class SqliteStore : public Store {
 public:
  // Readers need write access too: WAL keeps its index in a shared file.
  SqliteStore(const std::string& path, bool create)
      : database_(path, SQLite::OPEN_READWRITE | (create ? SQLite::OPEN_CREATE : 0),
                  kLockPatienceMs) {
    // NORMAL loses nothing to kill -9; a power cut may cost the last trials, never the file.
    database_.exec("PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL; PRAGMA foreign_keys=ON");
  }

  Status CreateTables() {
    if (Layout() != 0)
      return Fail(ErrorCode::kUsage,
                  StrCat(path(), " already holds a sweep: continue it with --resume"));
    SQLite::Transaction transaction(database_, kWriter);
    database_.exec(kTables);
    database_.exec(StrCat("PRAGMA user_version=", kLayout));
    transaction.commit();
    return {};
  }

  Status CheckLayout() {
    const int layout = Layout();
    if (layout == kLayout) return {};
    return Fail(ErrorCode::kUnsupported,
                StrCat(path(), " has layout ", layout, ", this version reads layout ", kLayout,
                       "; use the version that wrote it, or sweep into a new folder"));
  }

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
        Execute(put, row.id, row.label, row.engine, row.settings.Dump(), row.options.Dump(),
                int{row.is_baseline}, row.cores, row.infeasible, Json(row.same_as).Dump());
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
      PutRequests(id, trial.requests);
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
    return Guarded(path(), [&] { return ReadRequests(slot); });
  }

 private:
  const std::string& path() const { return database_.getFilename(); }
  int Layout() { return database_.execAndGet("PRAGMA user_version").getInt(); }

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
      PINION_ASSIGN(row.settings, columns.AsJson());
      PINION_ASSIGN(row.options, columns.AsJson());
      row.is_baseline = columns.Int() != 0;
      row.cores = columns.Int();
      row.infeasible = columns.Text();
      PINION_ASSIGN(const Json same_as, columns.AsJson());
      row.same_as = StringsIn(same_as);
      rows.push_back(std::move(row));
    }
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

  void PutRequests(int64_t trial, const std::vector<RequestRow>& requests) {
    SQLite::Statement put(database_,
                          "INSERT INTO requests VALUES(?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)");
    for (const RequestRow& row : requests) {
      const RequestRecord& one = row.record;
      const std::string token_us = PackTimes(one.token_ns, one.sent_ns);
      put.reset();
      Binder bind(put);
      bind(trial, row.load, row.level.clients, row.level.rate, one.conversation, one.turn,
           one.scheduled_ns, one.sent_ns, one.ended_ns, one.output_len, one.prompt_tokens,
           one.output_tokens, one.cached_tokens, one.status, one.error, int{one.cut});
      put.bindNoCopy(bind.next(), token_us.data(), static_cast<int>(token_us.size()));
      put.exec();
    }
  }

  Result<std::vector<RequestRow>> ReadRequests(const Slot& slot) {
    SQLite::Statement get(
        database_,
        "SELECT load,concurrency,rate,conversation,turn,scheduled_ns,sent_ns,ended_ns,"
        "output_len,prompt_tokens,output_tokens,cached_tokens,status,error,cut,token_us "
        "FROM requests WHERE trial = (SELECT id FROM trial WHERE candidate = ? AND copy = ? AND "
        "phase = ? AND round = ? AND attempt = ?) ORDER BY rowid");
    SQLite::bind(get, slot.candidate, slot.copy, Name(slot.phase), slot.round, slot.attempt);
    std::vector<RequestRow> rows;
    while (get.executeStep()) {
      Columns columns(get);
      RequestRow row;
      RequestRecord& one = row.record;
      row.load = columns.Text();
      row.level.clients = columns.Int();
      row.level.rate = columns.Real();
      one.conversation = static_cast<size_t>(columns.Int64());
      one.turn = static_cast<size_t>(columns.Int64());
      one.scheduled_ns = columns.Int64();
      one.sent_ns = columns.Int64();
      one.ended_ns = columns.Int64();
      one.output_len = columns.Int();
      one.prompt_tokens = columns.MaybeInt();
      one.output_tokens = columns.MaybeInt();
      one.cached_tokens = columns.MaybeInt();
      one.status = columns.Int();
      one.error = columns.Text();
      one.cut = columns.Int() != 0;
      PINION_ASSIGN(one.token_ns, UnpackTimes(columns.Text(), one.sent_ns));
      rows.push_back(std::move(row));
    }
    return rows;
  }

  SQLite::Database database_;
};

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
  return Guarded(path, [&]() -> Result<std::unique_ptr<Store>> {
    auto store = std::make_unique<SqliteStore>(path, mode == Mode::kCreate);
    PINION_TRY(mode == Mode::kCreate ? store->CreateTables() : store->CheckLayout());
    return store;
  });
}

}  // namespace pinion::harness
