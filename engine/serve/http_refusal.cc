#include "engine/serve/http_refusal.h"

#include <utility>

#include "engine/serve/schema.h"

namespace pinion {

HttpRefusal MakeRefusal(int status, std::string message, HttpFields headers) {
  return {status, ToJson(ApiError{status, std::move(message), "", ""}).Dump(), std::move(headers)};
}

}  // namespace pinion
