#include "harness/engines/replicas.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "engine/base/strings.h"
#include "engine/run/replicas.h"

namespace pinion::harness {
namespace {

Result<std::unique_ptr<EngineServer>> StartWithLog(const EngineCommand& command, int port,
                                                   const std::string& log) {
  if (log.empty()) return EngineServer::Start(command, port, STDERR_FILENO);
  const int fd = open(log.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd < 0) return Fail(ErrorCode::kIo, StrCat("cannot write ", log, ": ", std::strerror(errno)));
  auto server = EngineServer::Start(command, port, fd);
  close(fd);
  return server;
}

}  // namespace

Result<std::vector<EngineCommand>> CommandsFor(const EngineChoice& engine,
                                               const EngineOptions& options, const Plan& whole,
                                               const Machine& machine,
                                               const std::vector<int>& ports,
                                               const ServedLoad& load) {
  const int count = static_cast<int>(ports.size());
  const bool outright = count > 1 || engine.is_pinion();
  ServedLoad share = load;
  share.clients = (load.clients + count - 1) / count;
  std::vector<EngineCommand> commands;
  for (int index = 0; index < count; ++index) {
    const Plan plan = PlanOfReplica(whole, count, index);
    PINION_ASSIGN(EngineCommand made,
                  CommandFor(engine, outright ? OptionsOfReplica(options, plan) : options, plan,
                             machine, ports[static_cast<size_t>(index)], share));
    if (const auto cpus = CpusOfReplica(plan); outright && !cpus.empty()) made.cpus = cpus;
    for (auto& variable : EnvironmentOfReplica(plan))
      if (outright) made.command.environment.push_back(std::move(variable));
    commands.push_back(std::move(made));
  }
  return commands;
}

Replicas::~Replicas() {
  for (const auto& server : servers_) server->AskToStop();
}

Status Replicas::Start(const EngineChoice& engine, const std::vector<EngineCommand>& commands,
                       const std::vector<int>& ports, const std::string& log,
                       const std::function<bool()>& interrupted) {
  count_ = commands.size();
  for (size_t i = 0; i < count_; ++i) {
    logs_.push_back(count_ == 1 || log.empty() ? "" : StrCat(log, "-replica", i + 1, ".log"));
    PINION_ASSIGN(auto server, StartWithLog(commands[i], ports[i], logs_.back()));
    servers_.push_back(std::move(server));
  }
  for (size_t i = 0; i < count_; ++i)
    if (const Status ready = servers_[i]->WaitUntilReady(engine, interrupted); !ready)
      return Fail(ready.error().code, StrCat(NameOf(i), " ", ready.error().message));
  return {};
}

std::string Replicas::NameOf(size_t index) const {
  return count_ == 1 ? "the server" : StrCat("replica ", index + 1, " of ", count_);
}

std::vector<ServerUrl> Replicas::urls() const {
  std::vector<ServerUrl> urls;
  for (const auto& server : servers_) urls.push_back(server->url());
  return urls;
}

double Replicas::start_s() const {
  double longest = 0;
  for (const auto& server : servers_) longest = std::max(longest, server->start_s());
  return longest;
}

std::vector<pid_t> Replicas::processes() const {
  std::vector<pid_t> all;
  for (const auto& server : servers_)
    for (const pid_t process : server->processes()) all.push_back(process);
  return all;
}

uint64_t Replicas::peak_rss_bytes() const {
  uint64_t bytes = 0;
  for (const auto& server : servers_) bytes += server->peak_rss_bytes();
  return bytes;
}

std::string Replicas::WhyEnded() {
  for (size_t i = 0; i < servers_.size(); ++i)
    if (const std::string why = servers_[i]->WhyEnded(); !why.empty())
      return StrCat(NameOf(i), " ", why);
  return "";
}

std::vector<std::string> Replicas::LogsOfEnded() {
  std::vector<std::string> logs;
  for (size_t i = 0; i < servers_.size(); ++i)
    if (!logs_[i].empty() && !servers_[i]->WhyEnded().empty()) logs.push_back(logs_[i]);
  return logs;
}

}  // namespace pinion::harness
