#include "engine/serve/worker_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <memory>
#include <string>
#include <thread>

#include "engine/base/strings.h"

namespace pinion {
namespace {

// A job that runs until it is let go. Its state is its own as well: a worker may still be about to
// wait, or to wake its waiter, when the test is over.
class Held {
 public:
  WorkerPool::Job job() {
    return [signals = signals_](WorkerPool::Worker&) {
      signals->started.set_value();
      signals->gone.wait();
    };
  }
  void AwaitStart() { signals_->start.wait(); }
  void LetGo() { signals_->go.set_value(); }

 private:
  struct Signals {
    std::promise<void> started, go;
    std::future<void> start = started.get_future(), gone = go.get_future();
  };
  std::shared_ptr<Signals> signals_ = std::make_shared<Signals>();
};

// Runs `job` behind what is queued already, and waits for it.
void Await(WorkerPool& pool, const std::string& client, bool heavy = false) {
  const auto done = std::make_shared<std::promise<void>>();
  const std::future<void> end = done->get_future();
  pool.Submit(client, heavy, [done](WorkerPool::Worker&) { done->set_value(); });
  end.wait();
}

// A job that has said so is still counted for a moment.
void AwaitRunning(const WorkerPool& pool, size_t jobs) {
  while (pool.running() != jobs) std::this_thread::yield();
}

TEST(WorkerPool, SharesWorkersAmongClientsInTurn) {
  WorkerPool pool({.workers = 2});
  Held one, two;
  pool.Submit("x", false, one.job());
  one.AwaitStart();
  pool.Submit("y", false, two.job());
  two.AwaitStart();
  std::mutex mutex;
  std::string order;
  const auto note = [&](char name) {
    return [&, name](WorkerPool::Worker&) {
      const std::lock_guard lock(mutex);
      order += name;
    };
  };
  for (int i = 0; i < 4; ++i) pool.Submit("a", false, note('a'));
  for (int i = 0; i < 2; ++i) pool.Submit("b", false, note('b'));
  pool.Submit("c", false, note('c'));
  EXPECT_EQ(pool.queued(), 7u);
  one.LetGo();  // the other worker stays busy: the order is that of one worker
  Await(pool, "d");
  while (pool.queued() > 0 || pool.running() > 1) std::this_thread::yield();
  EXPECT_EQ(order, "abcabaa");
  two.LetGo();
}

TEST(WorkerPool, HeavyJobsNeverTakeTheLastWorkers) {
  WorkerPool pool({.workers = 4});
  std::array<Held, 4> heavy;
  for (size_t i = 0; i < heavy.size(); ++i) pool.Submit(StrCat("h", i), true, heavy[i].job());
  heavy[0].AwaitStart();
  heavy[1].AwaitStart();
  Await(pool, "light");
  EXPECT_EQ(pool.queued(), 2u);
  AwaitRunning(pool, 2);
  heavy[0].LetGo();
  heavy[2].AwaitStart();
  heavy[1].LetGo();
  heavy[3].AwaitStart();
  heavy[2].LetGo();
  heavy[3].LetGo();
}

TEST(WorkerPool, OneClientNeverTakesTheLastWorker) {
  WorkerPool pool({.workers = 3});
  std::array<Held, 3> looping;
  for (Held& held : looping) pool.Submit("loops", false, held.job());
  looping[0].AwaitStart();
  looping[1].AwaitStart();
  Await(pool, "other");
  EXPECT_EQ(pool.queued(), 1u);
  looping[0].LetGo();
  looping[2].AwaitStart();
  looping[1].LetGo();
  looping[2].LetGo();
}

TEST(WorkerPool, StopDropsQueuedJobs) {
  WorkerPool pool({.workers = 2});
  Held one;
  std::atomic<int> ran = 0;
  pool.Submit("a", false, one.job());
  one.AwaitStart();
  pool.Submit("a", false, [&](WorkerPool::Worker&) { ++ran; });
  EXPECT_FALSE(pool.Stop(0));
  pool.Submit("b", false, [&](WorkerPool::Worker&) { ++ran; });
  one.LetGo();
  EXPECT_TRUE(pool.Stop(60));
  EXPECT_EQ(ran, 0);
  EXPECT_EQ(pool.queued(), 0u);
}

TEST(WorkerPool, RendersOnTheWorker) {
  std::promise<std::string> text;  // outlives the pool, whose worker sets it
  WorkerPool pool({.workers = 2, .render_instead = [](const ChatRequest& chat) {
                     return Result<std::string>(chat.chat_template + "!");
                   }});
  pool.Submit("a", false, [&](WorkerPool::Worker& worker) {
    text.set_value(*worker.Render({"hi", {}, {}, {}, false}));
  });
  EXPECT_EQ(text.get_future().get(), "hi!");
}

}  // namespace
}  // namespace pinion
