#include "engine/serve/own_names.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstring>

#include "engine/base/strings.h"

namespace pinion {
namespace {

// "" for anything but an Internet address.
std::string TextOf(const sockaddr* address) {
  char text[INET6_ADDRSTRLEN] = "";
  if (address && address->sa_family == AF_INET)
    inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(address)->sin_addr, text, sizeof text);
  else if (address && address->sa_family == AF_INET6)
    inet_ntop(AF_INET6, &reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr, text,
              sizeof text);
  return text;
}

}  // namespace

Result<std::vector<std::string>> OwnNames() {
  std::vector<std::string> names;
  char name[HOST_NAME_MAX + 1] = "";
  if (gethostname(name, sizeof name - 1) == 0 && name[0] != '\0') names.push_back(name);
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0)
    return Fail(ErrorCode::kIo,
                StrCat("cannot list this machine's addresses: ", std::strerror(errno)));
  for (const ifaddrs* one = all; one; one = one->ifa_next)
    if (std::string text = TextOf(one->ifa_addr); !text.empty()) names.push_back(std::move(text));
  freeifaddrs(all);
  return names;
}

}  // namespace pinion
