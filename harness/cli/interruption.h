#pragma once

#include <functional>
#include <mutex>
#include <string>
#include <thread>

namespace pinion::harness {

// Ends the command in order when Ctrl-C or SIGTERM comes, however long the engine's step takes: a
// thread of its own waits for the signal, hands over what there is and ends the process (exit
// code 1), while the command computes on. A second signal ends it at once.
//
// Make it before the engine starts and on the thread that will: every later thread then leaves the
// signals to this one, and this one may run on every CPU. Its end gives them back.
class Interruption {
 public:
  // Called on that thread: prints or writes what is worth keeping, returns what standard error
  // should say of it.
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
