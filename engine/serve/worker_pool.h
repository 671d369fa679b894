#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "engine/base/result.h"
#include "engine/text/chat.h"
#include "engine/text/grammar.h"

namespace pinion {

// Threads for the work whose size a client decides: parsing, templates, tokenization. Knows nothing
// of HTTP. Clients take turns, so that one with many jobs does not push the others back; heavy jobs
// run on at most half of the workers and one client's on all but one, so that neither can ever hold
// the last worker.
// Thread rule: Submit, Stop and the counts on one thread; jobs run on the workers.
class WorkerPool {
 public:
  using RenderChat = std::function<Result<std::string>(const ChatRequest&)>;
  using CheckGrammar = std::function<Status(const Grammar&)>;

  struct Options {
    int workers = 4;                    // at least 2
    int niceness = 0;                   // added to the workers' threads, so that others come first
    RenderChat render_instead = {};     // for tests; unset: the chat helper
    CheckGrammar check_instead = {};    // for tests; unset: the grammar helper
    GrammarVocabulary vocabulary = {};  // that grammars are checked for
  };

  // The part of a worker that its job may use.
  class Worker {
   public:
    Worker(const Options& options, std::timed_mutex& turn, GrammarChecker& grammars);
    // Renders a chat template in this worker's own helper process, started at first use: helpers
    // die with the thread that starts them.
    Result<std::string> Render(const ChatRequest& request);
    // Checks a grammar in a helper process that all workers share, for it takes much memory: waits
    // for its turn, for some seconds at most.
    Status Check(const Grammar& grammar);

   private:
    const Options& options_;
    std::unique_ptr<ChatRenderer> chat_;
    std::timed_mutex& turn_;
    GrammarChecker& grammars_;
  };
  using Job = std::function<void(Worker&)>;

  explicit WorkerPool(Options options);
  ~WorkerPool();  // Stop, then waits for running jobs
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  // Jobs must not throw. Drops the job after Stop.
  void Submit(const std::string& client, bool heavy, Job job);
  // Drops queued jobs and waits up to `seconds` for running ones; false if one still runs.
  bool Stop(double seconds = 1);

  size_t queued() const;
  size_t running() const;

 private:
  // The queued jobs of one class; clients with jobs, in the order of their turns.
  struct Lane {
    std::map<std::string, std::deque<Job>> jobs;
    std::deque<std::string> turns;
  };
  struct NextJob {
    std::string client;
    bool heavy = false;
    Job job;  // empty: none may run now
  };

  void Work();
  NextJob Take();
  NextJob TakeFrom(Lane& lane, bool heavy);
  void Run(NextJob next, Worker& worker, std::unique_lock<std::mutex>& lock);

  const Options options_;
  std::timed_mutex grammars_turn_;
  GrammarChecker grammars_;
  mutable std::mutex mutex_;
  std::condition_variable more_, ended_;  // a job may run; a job has ended
  Lane heavy_, light_;
  std::map<std::string, int> running_of_;  // clients with running jobs
  size_t queued_ = 0;
  int running_ = 0, running_heavy_ = 0;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace pinion
