#include "engine/serve/routes.h"

#include <algorithm>
#include <utility>

#include "engine/base/strings.h"
#include "engine/serve/admin.h"
#include "engine/serve/frontend.h"
#include "engine/serve/http_refusal.h"

namespace pinion {
namespace {

constexpr EndpointFacts kDescription = {"/openapi.json", "GET", "This document"};

}  // namespace

void Router::Route(HttpRequest request, std::shared_ptr<HttpReply> reply) {
  if (request.path == kDescription.path) return Describe(request, *reply);
  if (admin_.Handle(request, reply) || frontend_.Handle(request, reply)) return;
  std::vector<std::string> paths;
  for (const EndpointFacts& endpoint : Offered())
    if (paths.empty() || paths.back() != endpoint.path) paths.emplace_back(endpoint.path);
  const ApiError error{404,
                       StrCat("there is no '", request.path.substr(0, 200),
                              "'; this server answers ", Join(paths, ", ")),
                       "", ""};
  reply->Send(error.status, "application/json", ToJson(error).Dump());
}

bool Router::Knows(std::string_view path) const {
  return path == kDescription.path || admin_.Knows(path) || Frontend::Knows(path);
}

std::vector<EndpointFacts> Router::Offered() const {
  std::vector<EndpointFacts> all = frontend_.Offered();
  for (const EndpointFacts& endpoint : admin_.Offered()) all.push_back(endpoint);
  all.push_back(kDescription);
  std::sort(all.begin(), all.end(),
            [](const EndpointFacts& a, const EndpointFacts& b) { return a.path < b.path; });
  return all;
}

void Router::Describe(const HttpRequest& request, HttpReply& reply) {
  if (request.method != kDescription.method)
    return RefuseMethod(reply, request, kDescription.method);
  if (description_.empty())
    description_ = OpenApiDocument(Offered(), frontend_.field_rules(), root_path_).Dump();
  reply.Send(200, kDescription.media, description_);
}

}  // namespace pinion
