#pragma once

#include <SQLiteCpp/SQLiteCpp.h>
#include <SQLiteCpp/VariadicBind.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <type_traits>

#include "engine/base/json.h"
#include "engine/base/result.h"

namespace pinion::harness {

// How the store's files speak SQLite: errors as values, columns and parameters in order.

// SQLite's exception as an error whose message names the file and the way out.
Error ErrorOf(const SQLite::Exception& thrown, const std::string& path);

// Calls `work`, which returns a Result; an exception of SQLite becomes its error.
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

 private:
  SQLite::Statement& row_;
  int at_ = 0;
};

// A writer takes its lock at once: SQLite does not let a reader wait to become a writer.
inline constexpr auto kWriter = SQLite::TransactionBehavior::IMMEDIATE;

}  // namespace pinion::harness
