#include "engine/serve/worker_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <string>

#include "engine/base/strings.h"

namespace pinion {
namespace {

// A job that runs until it is let go.
class Held {
 public:
  WorkerPool::Job job() {
    return [this](WorkerPool::Worker&) {
      started_.set_value();
      go_.get_future().wait();
    };
  }
  void AwaitStart() { started_.get_future().wait(); }
  void LetGo() { go_.set_value(); }

 private:
  std::promise<void> started_, go_;
};

// Runs `job` behind what is queued already, and waits for it.
void Await(WorkerPool& pool, const std::string& client, bool heavy = false) {
  std::promise<void> done;
  pool.Submit(client, heavy, [&](WorkerPool::Worker&) { done.set_value(); });
  done.get_future().wait();
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
  EXPECT_EQ(pool.running(), 2u);
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
  WorkerPool pool({.workers = 2, .render_instead = [](const ChatRequest& chat) {
                     return Result<std::string>(chat.chat_template + "!");
                   }});
  std::promise<std::string> text;
  pool.Submit("a", false, [&](WorkerPool::Worker& worker) {
    text.set_value(*worker.Render({"hi", {}, {}, {}, false}));
  });
  EXPECT_EQ(text.get_future().get(), "hi!");
}

}  // namespace
}  // namespace pinion
