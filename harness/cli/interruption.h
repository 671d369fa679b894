#pragma once

#include <functional>
#include <mutex>
#include <string>
#include <thread>

namespace pinion::harness {

// Ends the command in order when Ctrl-C or SIGTERM comes, however long the engine's step takes: a
// thread of its own waits for the signal, reports the results so far and ends the process (exit
// code 1), while the command keeps computing. A second signal ends it at once.
//
// Create it before the engine, on the thread that creates the engine: every later thread leaves the
// signals to the watching thread, which may run on every CPU. The destructor restores the signals.
class Interruption {
 public:
  // `last_words` runs on the watching thread: it prints or writes the results so far and returns
  // the sentence for standard error.
  explicit Interruption(std::function<std::string()> last_words);
  ~Interruption();
  Interruption(const Interruption&) = delete;
  Interruption& operator=(const Interruption&) = delete;

 private:
  void Watch();

  const std::function<std::string()> last_words_;
  bool over_ = false;  // guarded by mutex_
  std::mutex mutex_;
  std::thread watcher_;
};

}  // namespace pinion::harness
