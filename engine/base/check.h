#pragma once

#include <sstream>

namespace pinion {

// Prints "file:line: check failed: cond: context" on standard error and aborts. Only through CHECK.
class CheckFailure {
 public:
  CheckFailure(const char* file, int line, const char* condition);
  [[noreturn]] ~CheckFailure();
  template <typename T>
  CheckFailure& operator<<(const T& value) {
    text_ << value;
    return *this;
  }

 private:
  std::ostringstream text_;
};

}  // namespace pinion

// For our own bugs only, never for errors that a user, a file or the machine can cause.
#define CHECK(condition) \
  while (!(condition)) ::pinion::CheckFailure(__FILE__, __LINE__, #condition)
