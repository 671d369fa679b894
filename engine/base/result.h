#pragma once

#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <utility>

namespace pinion {

// Why something failed, in as much detail as a caller can act on.
enum class ErrorCode {
  kUsage,        // the user asked for something impossible: exit code 2, HTTP 400
  kUnsupported,  // well-formed, but Pinion does not do it
  kNotFound,     // a file, tensor, model or CPU that does not exist
  kCorrupt,      // a file or message that breaks its own format
  kExhausted,    // memory, blocks, file descriptors
  kTimeout,      // it took longer than it may
  kIo,           // the operating system refused
  kFailed,       // any other failure outside our control
};

// An error with an external cause; our own bugs go to CHECK instead.
// `message` is one sentence in lower case that names the offending value, the allowed ones and a
// fix. Context is added on the way up: error.In("loading x") -> "loading x: ...".
struct Error {
  ErrorCode code = ErrorCode::kFailed;
  std::string message;

  Error In(std::string_view context) && {
    message.insert(0, ": ").insert(0, context);
    return std::move(*this);
  }
};

template <typename T>
using Result = tl::expected<T, Error>;
using Status = Result<void>;

inline tl::unexpected<Error> Fail(ErrorCode code, std::string message) {
  return tl::unexpected<Error>(Error{code, std::move(message)});
}
inline tl::unexpected<Error> Unexpected(Error error) {
  return tl::unexpected<Error>(std::move(error));
}

// The process exit code that a command returns for an error: 2 bad usage, 1 everything else.
inline int ExitCode(const Error& error) { return error.code == ErrorCode::kUsage ? 2 : 1; }

}  // namespace pinion

// A function cannot return for its caller, so these two are macros.
// PINION_TRY(expr): returns expr's error from the enclosing function, if it has one.
// PINION_ASSIGN(auto x, expr): the same, and otherwise binds the value.
#define PINION_CONCAT_(a, b) a##b
#define PINION_CONCAT(a, b) PINION_CONCAT_(a, b)
#define PINION_TRY(expr)                                           \
  do {                                                             \
    if (auto pinion_try_ = (expr); !pinion_try_)                   \
      return ::pinion::Unexpected(std::move(pinion_try_).error()); \
  } while (false)
#define PINION_ASSIGN(lhs, expr) PINION_ASSIGN_(lhs, expr, PINION_CONCAT(pinion_result_, __LINE__))
#define PINION_ASSIGN_(lhs, expr, tmp)                           \
  auto tmp = (expr);                                             \
  if (!tmp) return ::pinion::Unexpected(std::move(tmp).error()); \
  lhs = std::move(*tmp)
