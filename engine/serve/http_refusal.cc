#include "engine/serve/http_refusal.h"

#include <utility>

namespace pinion {

HttpRefusal MakeRefusal(int status, std::string message, HttpFields headers) {
  return {status, ToJson(ApiError{status, std::move(message), "", ""}).Dump(), std::move(headers)};
}

HttpRefusal MakeRefusal(const ApiError& error) {
  HttpRefusal refusal{error.status, ToJson(error).Dump(), {}};
  if (error.status == 503) refusal.headers.emplace_back("Retry-After", "5");
  return refusal;
}

}  // namespace pinion
