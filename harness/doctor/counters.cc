#include "harness/doctor/counters.h"

#include "engine/base/strings.h"
#include "harness/counters/counters.h"

namespace pinion::harness {

std::vector<Check> ExamineCounterChecks(const DoctorTarget& target) {
  CounterTarget here;
  here.root = target.root.ends_with('/') ? target.root : target.root + "/";
  const std::vector<CounterReading> readings = ExamineCounters(here);
  std::vector<Check> checks;
  for (size_t i = 0; i < readings.size(); ++i) {
    Check check;
    check.name = StrCat(kCounterPrefix, readings[i].quantity);
    if (readings[i].source.empty()) {
      check.state = Check::State::kNotAvailable;
      check.reason = readings[i].unavailable;
      check.fix = readings[i].fix;
    } else {
      check.state = Check::State::kOk;
      check.found = readings[i].source;
      check.reason = CounterOrder()[i].shown;
    }
    checks.push_back(std::move(check));
  }
  return checks;
}

}  // namespace pinion::harness
