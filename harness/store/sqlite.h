#pragma once

#include <sqlite3.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "engine/base/json.h"
#include "engine/base/result.h"

// An adapter for SQLite with Result errors and RAII handles. One thread at a time.

namespace pinion::harness {

// A connection to one file.
class Database {
 public:
  // `create`: creates a missing file. Waits up to 5 s for another process's lock.
  static Result<std::unique_ptr<Database>> Open(const std::string& path, bool create);
  Database(const Database&) = delete;
  Database& operator=(const Database&) = delete;
  ~Database() { sqlite3_close(handle_); }

  sqlite3* handle() const { return handle_; }
  // Statements that yield no rows, separated by ';'.
  Status Run(const std::string& sql) const;
  int64_t last_row() const { return sqlite3_last_insert_rowid(handle_); }
  // SQLite's last error, with a message that names the file and the way out.
  tl::unexpected<Error> Failure() const;

 private:
  Database(sqlite3* handle, std::string path) : handle_(handle), path_(std::move(path)) {}
  sqlite3* handle_;
  std::string path_;
};

// A prepared statement: bind in order, step, read columns in order. Move-only; the database
// outlives it.
class Statement {
 public:
  static Result<Statement> Prepare(const Database& database, const char* sql);
  Statement(Statement&& other) noexcept
      : database_(other.database_), raw_(std::exchange(other.raw_, nullptr)) {}
  Statement& operator=(Statement&&) = delete;
  ~Statement() { sqlite3_finalize(raw_); }

  Statement& Bind(const std::string& text);
  Statement& Bind(const char* text) { return Bind(std::string(text)); }
  Statement& Bind(const Json& json) { return Bind(json.Dump()); }
  Statement& Bind(double value);
  Statement& Bind(int64_t value);
  Statement& Bind(int value) { return Bind(static_cast<int64_t>(value)); }
  Statement& Bind(bool value) { return Bind(static_cast<int64_t>(value)); }

  // Binds all arguments in order and runs a statement that yields no rows; it can be reused.
  template <typename... Args>
  Status Execute(const Args&... args) {
    (Bind(args), ...);
    return Finish();
  }

  // Steps to the next row; false if there is none.
  Result<bool> Next();
  std::string Text();
  int64_t Int() { return sqlite3_column_int64(raw_, column_++); }
  double Real() { return sqlite3_column_double(raw_, column_++); }
  Result<Json> AsJson() { return Json::Parse(Text()); }

 private:
  Statement(const Database& database, sqlite3_stmt* raw) : database_(&database), raw_(raw) {}
  Status Finish();

  const Database* database_;
  sqlite3_stmt* raw_;
  int bound_ = 0, column_ = 0;
};

// A transaction; readers see one state of the file. Rolls back unless it was committed; the
// database outlives it.
class Transaction {
 public:
  enum class Kind { kRead, kWrite };

  explicit Transaction(const Database& database) : database_(database) {}
  ~Transaction() {
    if (open_) (void)database_.Run("ROLLBACK");
  }
  Status Begin(Kind kind);
  Status Commit();

 private:
  const Database& database_;
  bool open_ = false;
};

}  // namespace pinion::harness
