#include "engine/serve/routes.h"

#include <algorithm>
#include <string>
#include <vector>

#include "engine/base/strings.h"
#include "engine/serve/admin.h"
#include "engine/serve/frontend.h"

namespace pinion {

void Route(AdminApi& admin, Frontend& frontend, HttpRequest request,
           std::shared_ptr<HttpReply> reply) {
  if (admin.Handle(request, reply) || frontend.Handle(request, reply)) return;
  std::vector<std::string> paths = Frontend::Paths();
  for (std::string& path : admin.Paths()) paths.push_back(std::move(path));
  std::sort(paths.begin(), paths.end());
  const ApiError error{404,
                       StrCat("there is no '", request.path.substr(0, 200),
                              "'; this server answers ", Join(paths, ", ")),
                       "", ""};
  reply->Send(error.status, "application/json", ToJson(error).Dump());
}

bool Answers(const AdminApi& admin, std::string_view path) {
  const auto has = [path](const std::vector<std::string>& paths) {
    return std::find(paths.begin(), paths.end(), path) != paths.end();
  };
  return has(Frontend::Paths()) || has(admin.Paths());
}

}  // namespace pinion
