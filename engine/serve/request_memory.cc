#include "engine/serve/request_memory.h"

#include "engine/base/strings.h"

namespace pinion {

ApiError OutOfMemory(const MemoryShare& memory, size_t more, const std::string& what) {
  MemoryBudget& budget = *memory.budget();
  const std::string needs = StrCat(what, " take up to ", FormatBytes(more));
  const std::string one = FormatBytes(budget.client_limit()), all = FormatBytes(budget.limit());
  const auto shortage = memory.WhyNot(more);
  if (shortage == MemoryShare::Shortage::kNever)
    return {413,
            StrCat(needs, "; one client may have ", one, " at a time, half of the ", all,
                   " for all requests together (--request-memory)"),
            "", ""};
  budget.CountRejection();
  return {503,
          shortage == MemoryShare::Shortage::kClient
              ? StrCat(needs, "; this client's other requests hold too much of the ", one,
                       " that one client may have, half of the ", all,
                       " for all requests together (--request-memory); try again later")
              : StrCat(needs, "; this server has ", all,
                       " for all requests together (--request-memory), which others use now; try "
                       "again later"),
          "", kRequestMemory};
}

ApiResult<void> Reserve(MemoryShare& memory, size_t more, const std::string& what) {
  if (memory.Grow(more)) return {};
  return Unexpected(OutOfMemory(memory, more, what));
}

}  // namespace pinion
