#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace pinion {

// A thread that does one job after another: thread 0 of a stage's ranks, which must start them, run
// them and end them. Post and Wait: from one other thread.
class StageThread {
 public:
  StageThread();
  ~StageThread();
  StageThread(const StageThread&) = delete;
  StageThread& operator=(const StageThread&) = delete;

  void Post(std::function<void()> job);
  void Wait();  // until all jobs are done
  void Do(std::function<void()> job) {
    Post(std::move(job));
    Wait();
  }

 private:
  void Loop();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> jobs_;
  bool busy_ = false, ends_ = false;
  std::thread thread_;
};

}  // namespace pinion
