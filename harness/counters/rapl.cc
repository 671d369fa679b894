#include "harness/counters/energy.h"
#include "harness/counters/sources.h"

namespace pinion::harness {
namespace {

class Rapl final : public CounterSource {
 public:
  explicit Rapl(std::string root) : root_(std::move(root)) {}
  const char* name() const override { return "rapl"; }

  Status Start() override {
    before_ = EnergyReading::Now(root_);
    if (before_.unavailable.empty()) return {};
    return Fail(ErrorCode::kUnsupported, before_.unavailable);
  }

  Result<std::vector<CounterValue>> Stop() override {
    PINION_ASSIGN(const double joules, JoulesBetween(before_, EnergyReading::Now(root_)));
    return std::vector<CounterValue>{{"joules", joules}};
  }

 private:
  const std::string root_;
  EnergyReading before_;
};

}  // namespace

std::unique_ptr<CounterSource> RaplSource(const CounterTarget& target) {
  return std::make_unique<Rapl>(target.root);
}

}  // namespace pinion::harness
