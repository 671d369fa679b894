#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "engine/calibrate/calibration.h"
#include "engine/calibrate/layer_quantiser.h"
#include "engine/checkpoint/quantised_source.h"
#include "engine/checkpoint/tensors.h"

namespace pinion {

// A plain checkpoint whose layers are calibrated and quantised as their tensors are read, one layer
// at a time: in the order of the computation each is made once, and no more than one is in memory.
// Thread rule: one thread.
class CalibratedSource : public TensorSource {
 public:
  CalibratedSource(std::unique_ptr<TensorSource> plain, StartedModel& model,
                   const QuantScheme& scheme, Calibration& calibration);

  Result<TensorInfo> Find(const std::string& name) const override { return plain_->Find(name); }
  std::vector<std::string> Names() const override { return plain_->Names(); }
  const std::byte* Rows(const TensorInfo& info, size_t row, size_t count,
                        std::vector<std::byte>& scratch) const override;
  const QuantisedTensor* Quantised(const std::string& name) const override;
  void Release(const TensorInfo& info, size_t row, size_t count) const override {
    plain_->Release(info, row, count);
  }

  // The layer, made now unless it is the one that was made last.
  const QuantisedLayer& Layer(int layer) const;

 private:
  std::unique_ptr<TensorSource> plain_;
  StartedModel& model_;
  const QuantScheme& scheme_;
  Calibration& calibration_;
  QuantisedTensors linears_;
  std::map<std::string, int> layer_of_;  // of every tensor in a layer
  mutable int current_ = -1;
  mutable QuantisedLayer layer_;
};

}  // namespace pinion
