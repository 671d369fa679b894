#include "harness/store/tables.h"

#include "engine/base/strings.h"

namespace pinion::harness {
namespace {

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

}  // namespace

void CreateTables(SQLite::Database& database) {
  SQLite::Transaction transaction(database, kWriter);
  database.exec(kTables);
  database.exec(StrCat("PRAGMA user_version=", kLayout));
  transaction.commit();
}

Status CheckTables(SQLite::Database& database) {
  const int layout = database.execAndGet("PRAGMA user_version").getInt();
  if (layout == kLayout) return {};
  return Fail(ErrorCode::kUnsupported,
              StrCat(database.getFilename(), " has layout ", layout, ", this version reads layout ",
                     kLayout, "; use the version that wrote it, or sweep into a new folder"));
}

}  // namespace pinion::harness
