#include "harness/cli/stop_request.h"

#include <signal.h>

namespace pinion::harness {
namespace {

volatile sig_atomic_t requested = 0;

}  // namespace

void CatchStopRequests(std::initializer_list<int> signals, bool second_ends) {
  struct sigaction action = {};
  action.sa_handler = [](int) { requested = 1; };
  action.sa_flags = second_ends ? static_cast<int>(SA_RESETHAND) : 0;
  for (const int number : signals) sigaction(number, &action, nullptr);
}

bool StopRequested() { return requested != 0; }

}  // namespace pinion::harness
