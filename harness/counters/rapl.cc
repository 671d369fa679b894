#include "harness/counters/energy.h"
#include "harness/counters/sources.h"

namespace pinion::harness {
namespace {

class Rapl final : public CounterSource {
 public:
  explicit Rapl(std::string root) : root_(std::move(root)) {}

  std::optional<CounterGap> Examine() override {
    const EnergyReading now = EnergyReading::Now(root_);
    if (now.unavailable.empty()) return std::nullopt;
    return CounterGap(now.unavailable, now.fix);
  }

  std::optional<CounterGap> Start() override {
    before_ = EnergyReading::Now(root_);
    return std::nullopt;
  }

  CountedValues Stop(double seconds) override {
    const auto joules = JoulesBetween(before_, EnergyReading::Now(root_));
    if (!joules) return tl::unexpected(CounterGap(joules.error()));
    return std::vector<CounterValue>{{"package_watts", *joules / seconds}};
  }

 private:
  const std::string root_;
  EnergyReading before_;
};

}  // namespace

Source RaplSource(const CounterTarget& target) { return std::make_unique<Rapl>(target.root); }

}  // namespace pinion::harness
