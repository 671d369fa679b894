#pragma once

#include <memory>

#include "engine/serve/http.h"

namespace pinion {

class AdminApi;
class Frontend;

// Gives a request to the one of the two that its path belongs to; 404, with all paths, if to none.
void Route(AdminApi& admin, Frontend& frontend, HttpRequest request,
           std::shared_ptr<HttpReply> reply);

}  // namespace pinion
