#include "engine/serve/prefill_sockets.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "engine/base/strings.h"
#include "engine/transfer/address.h"

namespace pinion {

using Role = PrefillOptions::Role;

PrefillSockets::~PrefillSockets() {
  std::error_code ignored;
  if (!folder_.empty()) std::filesystem::remove_all(folder_, ignored);
}

Status PrefillSockets::Connect(size_t prefill, std::vector<ReplicaPlan>& replicas) {
  if (prefill == 0) return {};
  const char* const temporary = std::getenv("TMPDIR");
  std::string folder = StrCat(temporary && *temporary ? temporary : "/tmp", "/pinion-XXXXXX");
  if (!mkdtemp(folder.data()))
    return Fail(ErrorCode::kIo,
                StrCat("cannot make the folder ", folder, ": ", std::strerror(errno),
                       "; set TMPDIR to one that can be written"));
  folder_ = folder;
  std::vector<std::string> addresses;
  for (size_t i = 0; i < prefill; ++i) {
    addresses.push_back(StrCat("unix:", folder_, "/", i));
    PINION_TRY(ParseAddress(addresses.back(), "the socket between engines"));
  }
  for (size_t i = 0; i < replicas.size(); ++i) {
    PrefillOptions& own = replicas[i].options.prefill;
    own.role = i < prefill ? Role::kPrefill : Role::kDecode;
    if (i < prefill)
      own.listen = addresses[i];
    else
      own.from = addresses;
  }
  return {};
}

}  // namespace pinion
