#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "engine/base/descriptor.h"
#include "engine/base/process.h"
#include "engine/base/result.h"

namespace pinion::harness {

// A child that answers one line on its standard output for each line on its standard input. It is
// ended with this object. Thread rule: one thread, the one that started it.
class LineProcess {
 public:
  // `options` without standard input and output. `name` is its name in errors: "the load
  // generator". Errors (kIo): no process can be started.
  static Result<LineProcess> Start(Process::Options options, std::string name);

  // The answer to `line`, both without their line ends. `why_stop` is asked five times a second
  // while the process does not read or does not answer: a text ends it, with that error (kFailed).
  // Errors (kFailed): the process ended. An answer may only begin when the whole line is read.
  Result<std::string> Ask(std::string_view line, const std::function<std::string()>& why_stop);

 private:
  LineProcess(Process process, Descriptor socket, std::string name)
      : process_(std::move(process)), socket_(std::move(socket)), name_(std::move(name)) {}
  Status Write(std::string_view text, const std::function<std::string()>& why_stop);
  // Returns when a poll event has come; an error if `why_stop` has a text.
  Status WaitFor(short event, const std::function<std::string()>& why_stop);
  Status Ended();

  Process process_;
  Descriptor socket_;
  std::string name_;
};

}  // namespace pinion::harness
