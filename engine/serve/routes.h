#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/serve/http.h"
#include "engine/serve/openapi.h"

namespace pinion {

class AdminApi;
class Frontend;

// Gives a request to the one of the two that its path belongs to, and describes both at
// /openapi.json. Thread rule: the server's event loop.
class Router {
 public:
  // Both outlive the object. `root_path`: see HttpRules.
  Router(AdminApi& admin, Frontend& frontend, std::string root_path = {})
      : admin_(admin), frontend_(frontend), root_path_(std::move(root_path)) {}

  // 404, with all paths that the model can answer, for a path that none of them owns.
  void Route(HttpRequest request, std::shared_ptr<HttpReply> reply);
  // Whether somebody knows this path.
  bool Knows(std::string_view path) const;

 private:
  // The endpoints that this server offers, in the order of the paths.
  std::vector<EndpointFacts> Offered() const;
  void Describe(const HttpRequest& request, HttpReply& reply);

  AdminApi& admin_;
  Frontend& frontend_;
  std::string root_path_;
  std::string description_;  // once it was asked for
};

}  // namespace pinion
