#include "engine/serve/stray_signals.h"

#include <signal.h>

#include <initializer_list>

namespace pinion {

void IgnoreStraySignals() {
  for (const int number : {SIGHUP, SIGUSR1, SIGUSR2, SIGALRM}) signal(number, SIG_IGN);
}

void IgnoreStopSignals() {
  for (const int number : {SIGTERM, SIGINT}) signal(number, SIG_IGN);
}

}  // namespace pinion
