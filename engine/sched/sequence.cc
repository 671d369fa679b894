#include "engine/sched/sequence.h"

#include <utility>

namespace pinion {

const char* Name(FinishReason reason) {
  switch (reason) {
    case FinishReason::kNone:
      return "";
    case FinishReason::kStop:
      return "stop";
    case FinishReason::kLength:
      return "length";
    case FinishReason::kAborted:
      return "abort";
  }
  return "";
}

bool ComesBefore(const Sequence& a, const Sequence& b) {
  return std::pair(a.priority, a.number) < std::pair(b.priority, b.number);
}

}  // namespace pinion
