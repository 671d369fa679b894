#include "engine/serve/page.h"

#include <string>
#include <string_view>

namespace pinion {

// Of page_source.cc, which the build makes.
extern const std::string_view kPageText, kPagePolicy;

void SendPage(HttpReply& reply) {
  reply.AddHeader("Content-Security-Policy", std::string(kPagePolicy));
  reply.AddHeader("X-Content-Type-Options", "nosniff");
  reply.AddHeader("Referrer-Policy", "no-referrer");
  reply.AddHeader("Cross-Origin-Opener-Policy", "same-origin");
  reply.AddHeader("Cache-Control", "no-cache");  // another version of the server has another page
  reply.Send(200, "text/html; charset=utf-8", std::string(kPageText));
}

}  // namespace pinion
