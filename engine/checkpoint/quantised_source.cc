#include "engine/checkpoint/quantised_source.h"

#include <algorithm>

#include "engine/spec/tensor_list.h"

namespace pinion {
namespace {

class QuantisedSource : public TensorSource {
 public:
  QuantisedSource(std::unique_ptr<TensorSource> plain, QuantisedTensors quantised)
      : plain_(std::move(plain)), quantised_(std::move(quantised)) {}

  Result<TensorInfo> Find(const std::string& name) const override {
    const QuantisedTensor* tensor = Quantised(name);
    if (!tensor) return plain_->Find(name);
    const std::vector<int64_t> shape{static_cast<int64_t>(tensor->rows()),
                                     static_cast<int64_t>(tensor->columns())};
    return TensorInfo{name, kernels::Dtype::kF32, shape, ""};
  }
  std::vector<std::string> Names() const override {
    std::vector<std::string> names = plain_->Names();
    for (const auto& [name, tensor] : quantised_) names.push_back(name);
    std::sort(names.begin(), names.end());
    names.erase(std::unique(names.begin(), names.end()), names.end());
    return names;
  }
  const std::byte* Rows(const TensorInfo& info, size_t row, size_t count,
                        std::vector<std::byte>& scratch) const override {
    const QuantisedTensor* tensor = Quantised(info.name);
    if (!tensor) return plain_->Rows(info, row, count, scratch);
    const size_t bytes = count * tensor->columns() * sizeof(float);
    scratch.resize(std::max(scratch.size(), bytes));
    Dequantise(*tensor, row, count, reinterpret_cast<float*>(scratch.data()));
    return scratch.data();
  }
  const QuantisedTensor* Quantised(const std::string& name) const override {
    const auto found = quantised_.find(name);
    return found == quantised_.end() ? nullptr : found->second.get();
  }
  std::optional<StoredTensor> Stored(const std::string& name) const override {
    return plain_->Stored(name);
  }
  void Release(const TensorInfo& info, size_t row, size_t count) const override {
    const QuantisedTensor* tensor = Quantised(info.name);
    tensor ? tensor->Release(row, count) : plain_->Release(info, row, count);
  }

 private:
  std::unique_ptr<TensorSource> plain_;
  QuantisedTensors quantised_;
};

bool IsLinear(const TensorSpec& tensor) {
  const bool linear = tensor.role == TensorRole::kLinear ||
                      tensor.role == TensorRole::kAttentionOutput ||
                      tensor.role == TensorRole::kMlpOutput;
  return linear && tensor.shape.size() == 2 && tensor.name.ends_with(".weight");
}

}  // namespace

std::unique_ptr<TensorSource> WithQuantised(std::unique_ptr<TensorSource> plain,
                                            QuantisedTensors quantised) {
  return std::make_unique<QuantisedSource>(std::move(plain), std::move(quantised));
}

std::vector<std::string> LinearWeights(const DecoderSpec& spec) {
  std::vector<std::string> names;
  for (const TensorSpec& tensor : TensorList(spec))
    if (IsLinear(tensor)) names.push_back(tensor.name);
  return names;
}

Result<std::unique_ptr<TensorSource>> OpenQuantisedLinears(std::unique_ptr<TensorSource> stored,
                                                           const DecoderSpec& spec,
                                                           const QuantScheme& scheme) {
  constexpr size_t kSuffix = std::string_view(".weight").size();
  const StoredLookup lookup = [&](const std::string& name) { return stored->Stored(name); };
  QuantisedTensors quantised;
  std::vector<std::string> names = LinearWeights(spec);
  if (!spec.tied_head && spec.has_head()) names.push_back(spec.names.head);
  for (const std::string& name : names) {
    const std::string module = name.substr(0, name.size() - kSuffix);
    PINION_ASSIGN(auto opened, OpenQuantised(scheme, module, lookup));
    if (opened) quantised.emplace(name, std::move(opened));
  }
  return WithQuantised(std::move(stored), std::move(quantised));
}

}  // namespace pinion
