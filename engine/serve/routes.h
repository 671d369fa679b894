#pragma once

#include <memory>
#include <string_view>

#include "engine/serve/http.h"

namespace pinion {

class AdminApi;
class Frontend;

// Gives a request to the one of the two that its path belongs to; 404, with all paths, if to none.
void Route(AdminApi& admin, Frontend& frontend, HttpRequest request,
           std::shared_ptr<HttpReply> reply);

// Whether one of them answers this path.
bool Answers(const AdminApi& admin, std::string_view path);

}  // namespace pinion
