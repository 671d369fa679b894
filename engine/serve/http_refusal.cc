#include "engine/serve/http_refusal.h"

#include <utility>

#include "engine/base/strings.h"
#include "engine/serve/message_writer.h"

namespace pinion {

std::string ErrorBody(std::string_view path, const ApiError& error) {
  constexpr std::string_view kMessages = "/v1/messages";
  const bool messages = path.starts_with(kMessages) &&
                        (path.size() == kMessages.size() || path[kMessages.size()] == '/');
  return (messages ? MessagesError(error) : ToJson(error)).Dump();
}

HttpRefusal MakeRefusal(int status, std::string message, HttpFields headers) {
  return {status, ToJson(ApiError{status, std::move(message), "", ""}).Dump(), std::move(headers)};
}

HttpRefusal MakeRefusal(const ApiError& error) {
  HttpRefusal refusal{error.status, ToJson(error).Dump(), {}};
  if (error.status == 503) refusal.headers.emplace_back("Retry-After", "5");
  return refusal;
}

void RefuseMethod(HttpReply& reply, const HttpHead& head, std::string_view methods) {
  const ApiError error{
      405, StrCat(head.method.substr(0, 20), " is not allowed for ", head.path, ", use ", methods),
      "", ""};
  std::string allowed(methods);
  if (allowed.starts_with("GET")) allowed.insert(3, ", HEAD");
  reply.AddHeader("Allow", std::move(allowed));
  reply.Send(error.status, "application/json", ErrorBody(head.path, error));
}

}  // namespace pinion
