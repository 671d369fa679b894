#include "engine/serve/http_setup.h"

#include <string>
#include <utility>
#include <vector>

#include "engine/base/log.h"
#include "engine/base/nofile.h"
#include "engine/base/strings.h"
#include "engine/serve/own_names.h"

namespace pinion {
namespace {

// A limit that cannot be raised leaves a server for fewer clients.
Result<size_t> ConnectionsOf(const HttpRules& rules) {
  const auto limits = RaiseNofile();
  if (!limits) {
    LogWarning(limits.error().message);
    return rules.max_connections;
  }
  if (limits->now < kFewestDescriptors)
    return Fail(ErrorCode::kFailed,
                StrCat("this process may have ", limits->now, " descriptors, and a server needs ",
                       kFewestDescriptors, " or more; allow them with ulimit -n"));
  const size_t connections = ConnectionsWithin(limits->now, rules.max_connections);
  LogInfo(StrCat("descriptors: ", limits->now, " (was ", limits->before, "), connections: at most ",
                 connections));
  if (connections < rules.max_connections)
    LogWarning(StrCat("--max-connections ", rules.max_connections,
                      " needs more descriptors; allow them with ulimit -Hn ",
                      rules.max_connections + 128));
  return connections;
}

std::vector<std::string> NamesOfThisMachine() {
  auto names = OwnNames();
  if (names) return std::move(*names);
  LogWarning(StrCat(names.error().message, "; --allowed-hosts names them"));
  return {};
}

}  // namespace

Result<std::unique_ptr<HttpSetup>> HttpSetup::Make(const ServeOptions& options,
                                                   std::shared_ptr<MemoryBudget> memory,
                                                   std::function<void(const AccessRecord&)> count) {
  auto setup = std::unique_ptr<HttpSetup>(new HttpSetup);
  const HttpRules& rules = options.http;
  HttpOptions& http = setup->http_;
  http.host = options.host;
  http.port = options.port;
  http.max_body_bytes = options.limits.max_body_bytes;
  PINION_ASSIGN(http.max_connections, ConnectionsOf(rules));
  http.header_seconds = rules.header_seconds;
  http.sse_keep_alive_seconds = rules.sse_keep_alive_s;
  http.root_path = rules.root_path;
  http.ssl_certfile = rules.ssl_certfile;
  http.ssl_keyfile = rules.ssl_keyfile;
  http.memory = std::move(memory);
  setup->gate_.emplace(rules, options.host, NamesOfThisMachine());
  http.check = [gate = &*setup->gate_](const HttpHead& head) { return gate->Check(head); };
  if (!rules.access_log.empty()) {
    PINION_ASSIGN(setup->log_, AccessLog::Open(rules.access_log));
  }
  http.log = [log = setup->log_.get(), count = std::move(count)](const AccessRecord& record) {
    if (log) log->Add(record);
    if (count) count(record);
  };
  return setup;
}

}  // namespace pinion
