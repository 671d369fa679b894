#pragma once

// Tables of functions that stand between the decoder and the kernels: one checks every attention
// against double precision, the other makes a reference of the scalar path.
// One thread and one decoder at a time: functions of a table have no state of their own.

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "tests/kernels/attention_reference.h"
#include "tests/kernels/kv_scheme.h"

namespace pinion::testing {

// A decoder's calls to its cache, in order. With one thread, equal steps make equal calls.
struct CacheTraffic {
  struct Write {
    std::vector<float> k, v;  // as passed, not yet rounded; v: empty if latent
  };
  std::vector<Write> writes;
  std::vector<std::vector<float>> queries;  // of each call of attention: [rows][key_dim]
};

// Calls write(one) for each token of a call, as for a call of that token alone.
template <typename Write>
void ByToken(const kernels::KvWriteArgs& args, const Write& write) {
  for (size_t token = 0; token < args.tokens; ++token) {
    kernels::KvWriteArgs one = args;
    one.tokens = 1;
    one.slot += token;
    one.k += token * args.stride;
    if (args.values != nullptr) one.v += token * args.stride;
    write(one);
  }
}

inline std::vector<float> QueriesOf(const kernels::AttentionArgs& args) {
  std::vector<float> rows;
  for (size_t t = 0; t < args.tokens; ++t)
    rows.insert(rows.end(), args.q[t], args.q[t] + args.group * args.key_dim);
  return rows;
}

// The rounded rows behind the addresses that a decoder wrote them to.
class HeldRows {
 public:
  struct Run {
    std::vector<float> k, v, value_scales;
    kernels::testing::CachedTokens As(const kernels::AttentionArgs& args) const {
      return {k.data(),       v.data(),   value_scales.data(), args.key_dim,
              args.value_dim, args.scale, args.soft_cap};
    }
  };

  // The values that the cache should hold of a token. `v` is empty if latent.
  void Put(const kernels::KvWriteArgs& args, kernels::testing::CachedRow k,
           kernels::testing::CachedRow v) {
    rows_[{args.keys, args.slot}] = std::move(k);
    if (args.values != nullptr) rows_[{args.values, args.slot}] = std::move(v);
  }

  Run Of(const kernels::AttentionArgs& args, int64_t begin, int64_t end) const {
    Run run;
    for (int64_t p = begin; p < end; ++p) {
      const auto at = static_cast<size_t>(p);
      const auto block = static_cast<size_t>(args.block_table[at / args.block_tokens]);
      const size_t slot = at % args.block_tokens;
      const auto& key = rows_.at({args.keys + args.key_strides.At(block), slot});
      const bool latent = args.values == nullptr;
      const auto& value =
          latent ? key : rows_.at({args.values + args.value_strides.At(block), slot});
      run.k.insert(run.k.end(), key.values.begin(), key.values.end());
      run.v.insert(run.v.end(), value.values.begin(),
                   value.values.begin() + static_cast<ptrdiff_t>(args.value_dim));
      run.value_scales.push_back(value.scale);
    }
    return run;
  }

 private:
  std::map<std::pair<const std::byte*, size_t>, kernels::testing::CachedRow> rows_;
};

// The part of a call's context that its row `row` sees.
inline std::pair<int64_t, int64_t> SeenBy(const kernels::AttentionArgs& args, size_t row) {
  const int64_t position = args.positions[row / args.group];
  return {std::max({args.context_begin, args.first_seen, position - args.window + 1}),
          std::min(args.context_end, position + 1)};
}

// Checks each call of attention on one path and type of the cache.
class CheckedAttention {
 public:
  CheckedAttention(kernels::Isa isa, kernels::KvDtype dtype)
      : isa_(isa), dtype_(dtype), kernels_(kernels::TableFor(isa)), table_(kernels_) {
    table_.kv_write = [](const kernels::KvWriteArgs& args) { watching->Write(args); };
    table_.attention = [](const kernels::AttentionArgs& args) { watching->Attend(args); };
    watching = this;
  }
  const kernels::Table* table() const { return &table_; }
  const CacheTraffic& traffic() const { return traffic_; }
  // The largest error of an output or of a sum's logarithm, by what its bound allows.
  double worst() const { return worst_; }

 private:
  void Write(const kernels::KvWriteArgs& args) {
    ByToken(args, [this](const kernels::KvWriteArgs& one) { Note(one); });
    kernels_.kv_write(args);
  }

  void Note(const kernels::KvWriteArgs& args) {
    CacheTraffic::Write write{{args.k, args.k + args.key_dim}, {}};
    if (args.values != nullptr) write.v.assign(args.v, args.v + args.value_dim);
    held_.Put(args, kernels::testing::RoundAsCached(write.k.data(), write.k.size(), dtype_),
              kernels::testing::RoundAsCached(write.v.data(), write.v.size(), dtype_));
    traffic_.writes.push_back(std::move(write));
  }

  void Attend(const kernels::AttentionArgs& args) {
    traffic_.queries.push_back(QueriesOf(args));
    kernels_.attention(args);
    for (size_t row = 0; row < args.tokens * args.group; ++row) {
      const auto [begin, end] = SeenBy(args, row);
      if (begin < end) Compare(args, row, held_.Of(args, begin, end));
    }
  }

  // A row's outputs by their sum, and the sum itself, against what the rounded rows give.
  void Compare(const kernels::AttentionArgs& args, size_t row, const HeldRows::Run& run) {
    const auto want = kernels::testing::ExactRow(
        run.As(args), args.q[row / args.group] + row % args.group * args.key_dim, 0,
        run.value_scales.size(), -INFINITY, kernels::testing::OperandRoundoff(isa_, dtype_));
    const double sum = args.sum[row];
    Compare(args.max[row] + std::log(sum), want.log_sum, want.log_sum_bound);
    for (size_t d = 0; d < args.value_dim; ++d)
      Compare(args.out[row * args.value_dim + d] / sum, want.exact[d], want.bound[d]);
  }

  void Compare(double got, double want, double bound) {
    const double error = std::abs(got - want);
    if (!(error <= worst_ * bound)) worst_ = bound > 0 ? error / bound : INFINITY;
  }

  static inline CheckedAttention* watching = nullptr;
  const kernels::Isa isa_;
  const kernels::KvDtype dtype_;
  const kernels::Table& kernels_;
  kernels::Table table_;
  CacheTraffic traffic_;
  HeldRows held_;
  double worst_ = 0;
};

// The reference: the scalar path, with attention by the test in double over keys, values and
// queries that the test has rounded as path `isa` and cache `dtype` do. Given another decoder's
// traffic it takes the rows from there, so that a rounding that falls the other way for the last
// bit of a float32 (a whole step of an int8) makes no difference between the two.
class RoundedReference {
 public:
  RoundedReference(kernels::Isa isa, kernels::KvDtype dtype, const CacheTraffic* other = nullptr)
      : isa_(isa), dtype_(dtype), other_(other), table_(kernels::TableFor(kernels::Isa::kScalar)) {
    table_.kv_write = [](const kernels::KvWriteArgs& args) { watching->Write(args); };
    table_.attention = [](const kernels::AttentionArgs& args) { watching->Attend(args); };
    watching = this;
  }
  const kernels::Table* table() const { return &table_; }
  // Of the rows taken from elsewhere, the farthest from this decoder's own, by the own's largest
  // element.
  double farthest() const { return farthest_; }

 private:
  void Write(const kernels::KvWriteArgs& args) {
    ByToken(args, [this](const kernels::KvWriteArgs& one) { Note(one); });
  }

  void Note(const kernels::KvWriteArgs& args) {
    std::vector<float> k(args.k, args.k + args.key_dim), v;
    if (args.values != nullptr) v.assign(args.v, args.v + args.value_dim);
    if (other_ != nullptr) {
      const CacheTraffic::Write& write = other_->writes.at(writes_++);
      Take(write.k, k);
      Take(write.v, v);
    }
    held_.Put(args, kernels::testing::RoundAsCached(k.data(), k.size(), dtype_),
              kernels::testing::RoundAsCached(v.data(), v.size(), dtype_));
  }

  void Attend(const kernels::AttentionArgs& args) {
    std::vector<float> rows = QueriesOf(args);
    if (other_ != nullptr) Take(other_->queries.at(attended_++), rows);
    for (size_t row = 0; row < args.tokens * args.group; ++row)
      AttendRow(args, row,
                kernels::testing::RoundAsQuery(rows.data() + row * args.key_dim, args.key_dim, isa_,
                                               dtype_));
  }

  void AttendRow(const kernels::AttentionArgs& args, size_t row,
                 const std::vector<float>& q) const {
    const auto [begin, end] = SeenBy(args, row);
    float* const out = args.out + row * args.value_dim;
    std::fill_n(out, args.value_dim, 0.0f);
    args.max[row] = -INFINITY;
    args.sum[row] = 0;
    if (begin >= end) return;
    const HeldRows::Run run = held_.Of(args, begin, end);
    double unused = 0, sum = 0;
    std::vector<double> weights = kernels::testing::ExactScores(
        run.As(args), q.data(), 0, run.value_scales.size(), {}, unused);
    const double max = *std::max_element(weights.begin(), weights.end());
    for (double& weight : weights) sum += weight = std::exp(weight - max);
    const std::vector<double> rounded = RoundWeights(weights, run.value_scales);
    for (size_t d = 0; d < args.value_dim; ++d) {
      double total = 0;
      for (size_t p = 0; p < rounded.size(); ++p)
        total += rounded[p] * run.v[p * args.value_dim + d];
      out[d] = static_cast<float>(total);
    }
    args.max[row] = static_cast<float>(max);
    args.sum[row] = static_cast<float>(sum);
  }

  // The product with the values takes weights times the values' scales, by the largest of these,
  // as bfloat16 or as integers of 15 or 16 bits (kernels/README.md).
  std::vector<double> RoundWeights(std::vector<double> weights,
                                   const std::vector<float>& scales) const {
    const auto roundoff = kernels::testing::OperandRoundoff(isa_, dtype_);
    if (!roundoff.rounds()) return weights;
    const double largest = *std::max_element(scales.begin(), scales.end());
    const double step = roundoff.of_weights;
    for (size_t p = 0; p < weights.size(); ++p) {
      if (scales[p] == 0) continue;
      const double weight = weights[p] * scales[p] / largest;
      weights[p] =
          largest / scales[p] *
          (step > 0 ? std::nearbyint(weight / step) * step
                    : RoundTo(kernels::testing::FormatOf(kernels::KvDtype::kBf16), weight));
    }
    return weights;
  }

  void Take(const std::vector<float>& theirs, std::vector<float>& own) {
    double largest = 0, distance = theirs.size() == own.size() ? 0 : INFINITY;
    for (size_t i = 0; i < own.size() && std::isfinite(distance); ++i) {
      largest = std::max<double>(largest, std::abs(own[i]));
      distance = std::max<double>(distance, std::abs(own[i] - theirs[i]));
    }
    if (largest > 0) farthest_ = std::max(farthest_, distance / largest);
    own = theirs;
  }

  static inline RoundedReference* watching = nullptr;
  const kernels::Isa isa_;
  const kernels::KvDtype dtype_;
  const CacheTraffic* const other_;
  kernels::Table table_;
  HeldRows held_;
  size_t writes_ = 0, attended_ = 0;
  double farthest_ = 0;
};

}  // namespace pinion::testing
