#pragma once

#include <map>
#include <vector>

#include "harness/sweep/protocol.h"

namespace pinion::harness {

// Stored trials; the protocol ends at the first that is missing.
class StoredSource : public TrialSource {
 public:
  explicit StoredSource(const std::vector<TrialRow>& trials) {
    for (const TrialRow& trial : trials) stored_[trial] = trial;
  }
  Result<std::optional<TrialRow>> Run(const Slot& slot, int, const ProgressLine&) override {
    const auto found = stored_.find(slot);
    return found == stored_.end() ? std::optional<TrialRow>() : found->second;
  }
  const std::map<Slot, TrialRow>& Stored() const override { return stored_; }

 protected:
  std::map<Slot, TrialRow> stored_;
};

}  // namespace pinion::harness
