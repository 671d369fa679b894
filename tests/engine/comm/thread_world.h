#pragma once

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "engine/base/check.h"
#include "engine/comm/communicator.h"

namespace pinion::testing {

// Threads in place of processes: what they tell each other goes through one mailbox. It shows what
// the functions of a Communicator do, checked by communicator_cases.h, but is not a transport: it
// has no row in engine/comm/world.cc, launches and joins nothing, and loses no process.
class ThreadWorld {
 public:
  explicit ThreadWorld(size_t processes) : mail_(processes) {
    members_.reserve(processes);
    for (size_t process = 0; process < processes; ++process) members_.emplace_back(*this, process);
  }

  // body(world) on one thread for each process, all at once.
  void Run(const std::function<void(Communicator&)>& body) {
    std::vector<std::thread> threads;
    for (Member& member : members_) threads.emplace_back([&] { body(member); });
    for (std::thread& thread : threads) thread.join();
  }

 private:
  class Member final : public Communicator {
   public:
    Member(ThreadWorld& world, size_t process) : world_(world), process_(process) {}
    size_t process() const override { return process_; }
    size_t processes() const override { return world_.mail_.size(); }

    void Gather(const void* mine, size_t bytes, void* all) override {
      const auto mail = world_.Exchange(process_, {mine, bytes});
      for (size_t process = 0; process < mail.size(); ++process)
        if (bytes > 0)
          std::memcpy(static_cast<char*>(all) + process * bytes, mail[process].data(), bytes);
    }
    void GatherAtLeader(const void* mine, const std::vector<size_t>& bytes, void* all) override {
      const auto mail = world_.Exchange(process_, {mine, bytes[process_]});
      if (process_ != 0) return;
      char* to = static_cast<char*>(all);
      for (size_t process = 0; process < mail.size(); to += bytes[process], ++process)
        std::memcpy(to, mail[process].data(), bytes[process]);
    }
    void Broadcast(void* data, size_t bytes) override {
      const auto mail = world_.Exchange(process_, {data, bytes});
      std::memcpy(data, mail[0].data(), bytes);
    }
    void Send(size_t process, int channel, const void* data, size_t bytes) override {
      const std::lock_guard lock(world_.mutex_);
      const char* from = static_cast<const char*>(data);
      world_.letters_[{process_, process, channel}].emplace_back(from, from + bytes);
      world_.ready_.notify_all();
    }
    void Receive(size_t process, int channel, void* data, size_t bytes) override {
      std::unique_lock lock(world_.mutex_);
      auto& letters = world_.letters_[{process, process_, channel}];
      world_.ready_.wait(lock, [&] { return !letters.empty(); });
      CHECK(letters.front().size() == bytes) << letters.front().size();
      std::memcpy(data, letters.front().data(), bytes);
      letters.pop_front();
    }
    // The members of a part meet in a world that the first of them makes.
    std::unique_ptr<Communicator> Part(int part) override {
      std::vector<int> parts(processes());
      Gather(&part, sizeof part, parts.data());
      const auto count = static_cast<size_t>(std::count(parts.begin(), parts.end(), part));
      const auto before = static_cast<size_t>(
          std::count(parts.begin(), parts.begin() + static_cast<ptrdiff_t>(process_), part));
      const std::lock_guard lock(world_.mutex_);
      auto& made = world_.parts_[part];
      if (!made) made = std::make_unique<ThreadWorld>(count);
      return std::make_unique<Member>(*made, before);
    }

   private:
    ThreadWorld& world_;
    const size_t process_;
  };

  // Everyone's bytes, once all have come; they must all have the same size, unless they are
  // gathered at the leader.
  std::vector<std::vector<char>> Exchange(size_t process, std::pair<const void*, size_t> mine) {
    const auto [data, bytes] = mine;
    std::unique_lock lock(mutex_);
    ready_.wait(lock, [&] { return left_ == 0; });  // the last exchange is over for all
    mail_[process].resize(bytes);
    if (bytes > 0) std::memcpy(mail_[process].data(), data, bytes);
    if (++came_ == mail_.size()) {
      came_ = 0;
      left_ = mail_.size();
      ready_.notify_all();
    } else {
      ready_.wait(lock, [&] { return left_ > 0; });
    }
    auto copy = mail_;
    if (--left_ == 0) ready_.notify_all();
    return copy;
  }

  std::mutex mutex_;
  std::condition_variable ready_;
  std::vector<std::vector<char>> mail_;
  size_t came_ = 0, left_ = 0;
  std::map<std::tuple<size_t, size_t, int>, std::deque<std::vector<char>>> letters_;
  std::map<int, std::unique_ptr<ThreadWorld>> parts_;
  std::vector<Member> members_;
};

}  // namespace pinion::testing
