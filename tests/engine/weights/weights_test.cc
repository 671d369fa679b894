#include "engine/weights/weights.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <utility>

#include "engine/base/progress.h"
#include "engine/checkpoint/model.h"
#include "tests/test_data.h"

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

// Made-up weights that count the rows of matrices that were read since the last progress.
class WatchedSource : public TensorSource {
 public:
  WatchedSource(std::shared_ptr<const TensorSource> source, const MemoryFile& counts)
      : source_(std::move(source)), counts_(counts) {}
  Result<TensorInfo> Find(const std::string& name) const override { return source_->Find(name); }
  std::vector<std::string> Names() const override { return source_->Names(); }
  const std::byte* Rows(const TensorInfo& info, size_t row, size_t count,
                        std::vector<std::byte>& scratch) const override {
    const uint64_t now = progress::ReadCounts(counts_);
    if (std::exchange(last_, now) != now) silent_rows_ = 0;
    if (info.shape.size() > 1) silent_rows_ += count;
    most_ = std::max(most_, silent_rows_);
    return source_->Rows(info, row, count, scratch);
  }
  void Release(const TensorInfo&, size_t, size_t) const override {}
  size_t most() const { return most_; }

 private:
  std::shared_ptr<const TensorSource> source_;
  const MemoryFile& counts_;
  mutable uint64_t last_ = 0;
  mutable size_t silent_rows_ = 0, most_ = 0;
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

// However large the model: a watcher of the process sees that it loads.
TEST(LoadWeights, EveryBlockIsProgress) {
  const auto counts = progress::MakeCounts();
  ASSERT_TRUE(counts && progress::CountIn(counts->fd()));
  for (const char* name : {"llama", "mixtral", "deepseekv3"}) {
    const auto files = FindModel(tests::TestData() + "/models/" + name);
    ASSERT_TRUE(files) << name;
    auto opened = OpenWeights(*files);
    ASSERT_TRUE(opened);
    const WatchedSource source(std::move(*opened), *counts);
    auto ranks = Ranks::Start(Threads(1));
    ASSERT_TRUE(ranks);
    ASSERT_TRUE(LoadWeights(files->spec, kernels::Dtype::kBf16, true, source, **ranks));
    EXPECT_GT(source.most(), 0u);
    EXPECT_LE(source.most(), kernels::kBlockN) << name;
  }
}

}  // namespace
}  // namespace pinion
