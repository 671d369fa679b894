#include "engine/serve/worker_pool.h"

#include <malloc.h>
#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <utility>

#include "engine/base/check.h"
#include "engine/base/trace.h"

namespace pinion {

namespace {

// Three other checks of 2 s each.
constexpr std::chrono::seconds kMostTurnSeconds(8);

}  // namespace

WorkerPool::Worker::Worker(const Options& options, std::timed_mutex& turn, GrammarChecker& grammars)
    : options_(options), turn_(turn), grammars_(grammars) {}

Result<std::string> WorkerPool::Worker::Render(const ChatRequest& request) {
  if (options_.render_instead) return options_.render_instead(request);
  if (!chat_) {
    PINION_ASSIGN(chat_, ChatRenderer::Start());
  }
  return chat_->Render(request);
}

Status WorkerPool::Worker::Check(const Grammar& grammar) {
  if (options_.check_instead) return options_.check_instead(grammar);
  const std::unique_lock turn(turn_, kMostTurnSeconds);
  if (!turn)
    return Fail(ErrorCode::kTimeout, "other requests' grammars are being checked; try again");
  return grammars_.Check(grammar);
}

WorkerPool::WorkerPool(Options options)
    : options_(std::move(options)), grammars_(options_.vocabulary) {
  CHECK(options_.workers >= 2) << options_.workers;
  for (int i = 0; i < options_.workers; ++i) threads_.emplace_back([this] { Work(); });
}

WorkerPool::~WorkerPool() {
  Stop(0);
  for (std::thread& thread : threads_) thread.join();
}

void WorkerPool::Submit(const std::string& client, bool heavy, Job job) {
  {
    const std::lock_guard lock(mutex_);
    if (stopping_) return;
    Lane& lane = heavy ? heavy_ : light_;
    auto& jobs = lane.jobs[client];
    if (jobs.empty()) lane.turns.push_back(client);
    jobs.push_back(std::move(job));
    ++queued_;
  }
  more_.notify_one();
}

bool WorkerPool::Stop(double seconds) {
  Lane dropped_heavy, dropped_light;  // destroyed without the lock: jobs own requests
  std::unique_lock lock(mutex_);
  stopping_ = true;
  std::swap(heavy_, dropped_heavy);
  std::swap(light_, dropped_light);
  queued_ = 0;
  more_.notify_all();
  return ended_.wait_for(lock, std::chrono::duration<double>(seconds),
                         [this] { return running_ == 0; });
}

size_t WorkerPool::queued() const {
  const std::lock_guard lock(mutex_);
  return queued_;
}

size_t WorkerPool::running() const {
  const std::lock_guard lock(mutex_);
  return static_cast<size_t>(running_);
}

void WorkerPool::Work() {
  trace::NameThread("worker");
  // The kernel takes a thread for a process here. Failing would only cost others a little time.
  if (options_.niceness > 0)
    setpriority(PRIO_PROCESS, static_cast<id_t>(gettid()), options_.niceness);
  Worker worker(options_, grammars_turn_, grammars_);
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    if (NextJob next = Take(); next.job)
      Run(std::move(next), worker, lock);
    else
      more_.wait(lock);
  }
}

// Heavy jobs come first: they are few at a time, so light ones always have the other workers, while
// light ones first could keep heavy ones waiting for ever.
WorkerPool::NextJob WorkerPool::Take() {
  if (running_heavy_ < options_.workers / 2)
    if (NextJob next = TakeFrom(heavy_, true); next.job) return next;
  return TakeFrom(light_, false);
}

WorkerPool::NextJob WorkerPool::TakeFrom(Lane& lane, bool heavy) {
  for (auto turn = lane.turns.begin(); turn != lane.turns.end(); ++turn) {
    const auto running = running_of_.find(*turn);
    if (running != running_of_.end() && running->second >= options_.workers - 1) continue;
    NextJob next{*turn, heavy, {}};
    lane.turns.erase(turn);
    const auto found = lane.jobs.find(next.client);
    next.job = std::move(found->second.front());
    found->second.pop_front();
    if (found->second.empty())
      lane.jobs.erase(found);
    else
      lane.turns.push_back(next.client);
    --queued_;
    return next;
  }
  return {};
}

void WorkerPool::Run(NextJob next, Worker& worker, std::unique_lock<std::mutex>& lock) {
  ++running_;
  ++running_of_[next.client];
  running_heavy_ += next.heavy;
  lock.unlock();
  next.job(worker);
  next.job = nullptr;
  // glibc would keep what a large request took.
  if (next.heavy) malloc_trim(0);
  lock.lock();
  --running_;
  if (--running_of_[next.client] == 0) running_of_.erase(next.client);
  running_heavy_ -= next.heavy;
  more_.notify_all();  // jobs that a limit held back may run now
  ended_.notify_all();
}

}  // namespace pinion
