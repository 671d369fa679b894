#include "harness/store/sqlite.h"

#include "engine/base/strings.h"

namespace pinion::harness {
namespace {

constexpr int kLockPatienceMs = 5000;

}  // namespace

Result<std::unique_ptr<Database>> Database::Open(const std::string& path, bool create) {
  // Readers need write access too: WAL keeps its index in a shared file.
  const int flags = SQLITE_OPEN_READWRITE | (create ? SQLITE_OPEN_CREATE : 0);
  sqlite3* handle = nullptr;
  const int code = sqlite3_open_v2(path.c_str(), &handle, flags, nullptr);
  if (!handle) return Fail(ErrorCode::kExhausted, "no memory for SQLite");
  std::unique_ptr<Database> database(new Database(handle, path));
  if (code != SQLITE_OK) return database->Failure();
  sqlite3_busy_timeout(handle, kLockPatienceMs);
  return database;
}

tl::unexpected<Error> Database::Failure() const {
  const int code = sqlite3_errcode(handle_) & 0xff;
  switch (code) {
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      return Fail(ErrorCode::kExhausted,
                  StrCat(path_, " is locked by another process; wait for it or end it"));
    case SQLITE_FULL:
      return Fail(ErrorCode::kExhausted, StrCat("no space left to write ", path_,
                                                "; make room and continue with --resume"));
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
      return Fail(ErrorCode::kCorrupt,
                  StrCat(path_, " is not an intact database (", sqlite3_errmsg(handle_),
                         "); restore it, or sweep into a new folder"));
    case SQLITE_READONLY:
    case SQLITE_CANTOPEN:
    case SQLITE_IOERR:
      return Fail(ErrorCode::kIo,
                  StrCat("cannot read or write ", path_, ": ", sqlite3_errmsg(handle_)));
    default:
      return Fail(ErrorCode::kFailed, StrCat(path_, ": ", sqlite3_errmsg(handle_)));
  }
}

Status Database::Run(const std::string& sql) const {
  if (sqlite3_exec(handle_, sql.c_str(), nullptr, nullptr, nullptr) != SQLITE_OK) return Failure();
  return {};
}

Result<Statement> Statement::Prepare(const Database& database, const char* sql) {
  sqlite3_stmt* raw = nullptr;
  if (sqlite3_prepare_v2(database.handle(), sql, -1, &raw, nullptr) != SQLITE_OK)
    return database.Failure();
  return Statement(database, raw);
}

Statement& Statement::Bind(const std::string& text) {
  sqlite3_bind_text(raw_, ++bound_, text.data(), static_cast<int>(text.size()), SQLITE_TRANSIENT);
  return *this;
}

Statement& Statement::Bind(double value) {
  sqlite3_bind_double(raw_, ++bound_, value);
  return *this;
}

Statement& Statement::Bind(int64_t value) {
  sqlite3_bind_int64(raw_, ++bound_, value);
  return *this;
}

Status Statement::Finish() {
  const int code = sqlite3_step(raw_);
  const bool done = code == SQLITE_DONE || code == SQLITE_ROW;
  Status status = done ? Status() : Status(database_->Failure());
  sqlite3_reset(raw_);
  bound_ = 0;
  return status;
}

Result<bool> Statement::Next() {
  const int code = sqlite3_step(raw_);
  column_ = 0;
  if (code == SQLITE_ROW) return true;
  if (code == SQLITE_DONE) return false;
  return database_->Failure();
}

std::string Statement::Text() {
  const auto* text = reinterpret_cast<const char*>(sqlite3_column_text(raw_, column_));
  const int bytes = sqlite3_column_bytes(raw_, column_++);
  return text ? std::string(text, static_cast<size_t>(bytes)) : std::string();
}

Status Transaction::Begin(Kind kind) {
  // A writer takes its lock at once: SQLite does not let a reader wait to become a writer.
  PINION_TRY(database_.Run(kind == Kind::kWrite ? "BEGIN IMMEDIATE" : "BEGIN"));
  open_ = true;
  return {};
}

Status Transaction::Commit() {
  PINION_TRY(database_.Run("COMMIT"));
  open_ = false;
  return {};
}

}  // namespace pinion::harness
