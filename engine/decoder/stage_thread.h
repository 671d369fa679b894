#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

namespace pinion {

// A thread that does one job after another: thread 0 of a stage's ranks, which must start them, run
// them and end them. Post and Wait: from one other thread, in turns.
class StageThread {
 public:
  StageThread();
  ~StageThread();
  StageThread(const StageThread&) = delete;
  StageThread& operator=(const StageThread&) = delete;

  void Post(std::function<void()> job);
  void Wait();  // until the job is done
  void Do(std::function<void()> job) {
    Post(std::move(job));
    Wait();
  }

 private:
  void Loop();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::function<void()> job_;
  bool busy_ = false, ends_ = false;
  std::thread thread_;
};

}  // namespace pinion
