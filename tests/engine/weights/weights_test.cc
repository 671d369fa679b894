#include "engine/weights/weights.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>
#include <utility>

#include "engine/base/check.h"
#include "engine/base/progress.h"
#include "engine/checkpoint/model.h"
#include "engine/spec/tensor_list.h"
#include "engine/weights/stages.h"
#include "tests/test_data.h"

namespace pinion {
namespace {

// Weights that count how often each row of each tensor is read and let go.
class CountingSource : public TensorSource {
 public:
  explicit CountingSource(std::shared_ptr<const TensorSource> source)
      : source_(std::move(source)) {}
  Result<TensorInfo> Find(const std::string& name) const override { return source_->Find(name); }
  std::vector<std::string> Names() const override { return source_->Names(); }
  const std::byte* Rows(const TensorInfo& info, size_t row, size_t count,
                        std::vector<std::byte>& scratch) const override {
    CountIn(read_, info, row, count);
    return source_->Rows(info, row, count, scratch);
  }
  void Release(const TensorInfo& info, size_t row, size_t count) const override {
    CountIn(released_, info, row, count);
  }
  using Counts = std::map<std::string, std::vector<int>>;  // by tensor and row
  const Counts& read() const { return read_; }
  const Counts& released() const { return released_; }

 private:
  void CountIn(Counts& counts, const TensorInfo& info, size_t row, size_t count) const {
    const std::lock_guard lock(mutex_);
    auto& times = counts[info.name];
    times.resize(static_cast<size_t>(info.shape[0]));
    for (size_t i = row; i < row + count; ++i) ++times.at(i);
  }

  std::shared_ptr<const TensorSource> source_;
  mutable std::mutex mutex_;
  mutable Counts read_, released_;
};

// Weights of whose matrices in `cut` only the columns of the second half can be read: whoever reads
// another is ended by SIGSEGV. Half a row of them is whole pages.
class SecondHalves : public TensorSource {
 public:
  SecondHalves(std::shared_ptr<const TensorSource> source, std::vector<std::string> cut)
      : source_(std::move(source)), cut_(std::move(cut)) {}
  ~SecondHalves() override {
    for (const auto& [data, bytes] : mapped_) munmap(data, bytes);
  }
  Result<TensorInfo> Find(const std::string& name) const override { return source_->Find(name); }
  std::vector<std::string> Names() const override { return source_->Names(); }
  const std::byte* Rows(const TensorInfo& info, size_t row, size_t count,
                        std::vector<std::byte>& scratch) const override {
    const std::byte* rows = source_->Rows(info, row, count, scratch);
    if (std::find(cut_.begin(), cut_.end(), info.name) == cut_.end()) return rows;
    const size_t row_bytes = RowElements(info.shape) * kernels::SizeOf(info.dtype);
    CHECK(row_bytes / 2 % static_cast<size_t>(sysconf(_SC_PAGESIZE)) == 0) << row_bytes;
    const size_t bytes = count * row_bytes;
    void* const data =
        mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(data != MAP_FAILED);
    std::memcpy(data, rows, bytes);
    for (size_t at = 0; at < bytes; at += row_bytes)
      CHECK(mprotect(static_cast<std::byte*>(data) + at, row_bytes / 2, PROT_NONE) == 0);
    mapped_.emplace_back(data, bytes);
    return static_cast<const std::byte*>(data);
  }
  void Release(const TensorInfo&, size_t, size_t) const override {}
  size_t handed_out() const { return mapped_.size(); }

 private:
  std::shared_ptr<const TensorSource> source_;
  const std::vector<std::string> cut_;
  mutable std::vector<std::pair<void*, size_t>> mapped_;
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

// The reads of a process that has rank `first` of `total`, a thread of its own.
CountingSource::Counts ReadBy(const DecoderSpec& spec, std::shared_ptr<const TensorSource> weights,
                              RankSpan span) {
  const CountingSource source(std::move(weights));
  auto ranks = Ranks::Start(Threads(1));
  CHECK(ranks);
  CHECK(LoadWeights(spec, kernels::Dtype::kBf16, true, source, **ranks, span));
  return source.read();
}

// Of what is cut by rows, each process reads its own; of what is cut by columns, see below. The
// embedding's rows are read when tokens ask for them.
TEST(LoadWeights, AProcessReadsTheRowsOfItsRankAlone) {
  for (const char* model : {"preset:tiny", "llama"}) {
    const std::string name = model;
    const auto files = FindModel(name[0] == 'p' ? name : tests::TestData() + "/models/" + name);
    ASSERT_TRUE(files);
    const auto weights = std::shared_ptr<const TensorSource>(OpenWeights(*files).value());
    const auto first = ReadBy(files->spec, weights, {0, 2});
    const auto second = ReadBy(files->spec, weights, {1, 2});
    size_t cut = 0;
    for (const std::string& tensor : weights->Names()) {
      const auto rows = static_cast<size_t>(weights->Find(tensor)->shape[0]);
      const bool by_columns = tensor.find("o_proj") != std::string::npos ||
                              tensor.find("down_proj") != std::string::npos;
      const bool is_head =
          tensor == (files->spec.tied_head ? files->spec.names.embedding : files->spec.names.head);
      if (tensor == files->spec.names.embedding && !is_head) {
        EXPECT_FALSE(first.contains(tensor) || second.contains(tensor)) << tensor;
        continue;
      }
      ASSERT_TRUE(first.contains(tensor) && second.contains(tensor)) << tensor;
      const std::vector<int> once(rows, 1);
      if (by_columns || weights->Find(tensor)->shape.size() < 2) {
        EXPECT_EQ(first.at(tensor), once) << tensor;
        EXPECT_EQ(second.at(tensor), once) << tensor;
        continue;
      }
      ++cut;
      std::vector<int> together = first.at(tensor);
      for (size_t row = 0; row < rows; ++row) together[row] += second.at(tensor)[row];
      EXPECT_EQ(together, once) << tensor;
      for (const auto* read : {&first, &second}) {
        const auto own = std::count(read->at(tensor).begin(), read->at(tensor).end(), 1);
        EXPECT_LE(static_cast<size_t>(own), rows / 2 + kernels::kBlockN) << tensor;
        EXPECT_GT(own, 0) << tensor;
      }
    }
    EXPECT_EQ(cut, 5 * static_cast<size_t>(files->spec.layers) + 1)
        << "q, k, v, gate, up; the head";
  }
}

TEST(LoadWeights, AProcessReadsTheColumnsOfItsRankAlone) {
  auto files = FindModel("preset:tiny");
  ASSERT_TRUE(files);
  DecoderSpec& spec = files->spec;
  // Rows of o and of down that are two pages of floats.
  spec.intermediate = static_cast<int>(2 * sysconf(_SC_PAGESIZE) / 4);
  spec.kv_heads = 4, spec.head_dim = 128, spec.heads = spec.intermediate / spec.head_dim;
  spec.checkpoint_dtype = "float32";
  std::vector<std::string> cut;
  for (int layer = 0; layer < spec.layers; ++layer)
    for (const std::string& name : {spec.names.o, spec.names.down})
      cut.push_back(LayerTensor(name, layer) + ".weight");
  auto opened = OpenWeights(*files);
  ASSERT_TRUE(opened) << opened.error().message;
  const SecondHalves source(std::move(*opened), cut);
  auto ranks = Ranks::Start(Threads(1));
  ASSERT_TRUE(ranks);
  ASSERT_TRUE(LoadWeights(spec, kernels::Dtype::kF32, true, source, **ranks, {1, 2}));
  EXPECT_GE(source.handed_out(), cut.size());
}

// Stages share nothing but a head that is the embedding, of which the first reads rows for tokens.
TEST(LoadWeights, AProcessReadsTheLayersOfItsStageAlone) {
  for (const char* model : {"llama", "mixtral", "deepseekv3", "lfm2"}) {
    const auto files = FindModel(tests::TestData() + "/models/" + model);
    ASSERT_TRUE(files) << model;
    const DecoderSpec& spec = files->spec;
    const auto weights = std::shared_ptr<const TensorSource>(OpenWeights(*files).value());
    const auto whole = ReadBy(spec, weights, {0, 1});
    std::map<std::string, int> stages_of;
    for (const DecoderSpec& stage : StageSpecs(spec, kernels::Dtype::kBf16, 2)) {
      const auto read = ReadBy(stage, weights, {0, 1});
      EXPECT_LT(read.size(), whole.size()) << model;
      for (const auto& [tensor, rows] : read) {
        ++stages_of[tensor];
        EXPECT_EQ(rows, whole.at(tensor)) << model << ' ' << tensor;
      }
    }
    EXPECT_EQ(stages_of.size(), whole.size()) << model;
    for (const auto& [tensor, stages] : stages_of) EXPECT_EQ(stages, 1) << model << ' ' << tensor;
  }
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
