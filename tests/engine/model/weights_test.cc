#include "engine/model/weights.h"

#include <gtest/gtest.h>

#include <map>
#include <mutex>

#include "engine/model/model.h"

namespace pinion {
namespace {

// Made-up weights that count how often each row of each tensor is let go.
class CountingSource : public TensorSource {
 public:
  explicit CountingSource(std::shared_ptr<const TensorSource> source)
      : source_(std::move(source)) {}
  Result<TensorInfo> Find(const std::string& name) const override { return source_->Find(name); }
  std::vector<std::string> Names() const override { return source_->Names(); }
  const std::byte* Rows(const TensorInfo& info, size_t row, size_t count,
                        std::vector<std::byte>& scratch) const override {
    return source_->Rows(info, row, count, scratch);
  }
  void Release(const TensorInfo& info, size_t row, size_t count) const override {
    const std::lock_guard lock(mutex_);
    auto& times = released_[info.name];
    times.resize(static_cast<size_t>(info.shape[0]));
    for (size_t i = row; i < row + count; ++i) ++times.at(i);
  }
  const std::map<std::string, std::vector<int>>& released() const { return released_; }

 private:
  std::shared_ptr<const TensorSource> source_;
  mutable std::mutex mutex_;
  mutable std::map<std::string, std::vector<int>> released_;
};

Plan Threads(int threads) {
  Plan plan;
  plan.ranks.push_back({0, {}, {}, threads});
  return plan;
}

TEST(LoadWeights, LetsEveryRowOfEveryMatrixGoOnce) {
  const auto files = FindModel("preset:tiny");
  ASSERT_TRUE(files);
  auto opened = OpenWeights(*files);
  ASSERT_TRUE(opened);
  const CountingSource source(std::move(*opened));
  auto ranks = Ranks::Start(Threads(3));
  ASSERT_TRUE(ranks);
  ASSERT_TRUE(LoadWeights(files->spec, kernels::Dtype::kBf16, true, source, **ranks));
  size_t matrices = 0;
  for (const std::string& name : source.Names()) {
    const TensorInfo info = source.Find(name).value();
    if (info.shape.size() < 2) continue;
    ++matrices;
    const auto found = source.released().find(name);
    ASSERT_NE(found, source.released().end()) << name;
    EXPECT_EQ(found->second, std::vector<int>(static_cast<size_t>(info.shape[0]), 1)) << name;
  }
  EXPECT_EQ(matrices, source.released().size());
  EXPECT_GE(matrices, 7u * static_cast<size_t>(files->spec.layers));
}

}  // namespace
}  // namespace pinion
