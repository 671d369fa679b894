#pragma once

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>

#include <utility>

namespace pinion {

// Creates metrics that all carry the same labels. For metrics.cc alone.
class MetricsMaker {
 public:
  MetricsMaker(prometheus::Registry& registry, prometheus::Labels labels)
      : registry_(registry), labels_(std::move(labels)) {}

  prometheus::Family<prometheus::Gauge>& Gauges(const char* name, const char* help) const {
    return prometheus::BuildGauge().Name(name).Help(help).Labels(labels_).Register(registry_);
  }
  prometheus::Gauge& Gauge(const char* name, const char* help) const {
    return Gauges(name, help).Add({});
  }
  prometheus::Family<prometheus::Counter>& Counters(const char* name, const char* help) const {
    return prometheus::BuildCounter().Name(name).Help(help).Labels(labels_).Register(registry_);
  }
  prometheus::Counter& Counter(const char* name, const char* help) const {
    return Counters(name, help).Add({});
  }
  prometheus::Histogram& Histogram(const char* name, const char* help,
                                   const prometheus::Histogram::BucketBoundaries& at) const {
    return prometheus::BuildHistogram()
        .Name(name)
        .Help(help)
        .Labels(labels_)
        .Register(registry_)
        .Add({}, at);
  }

 private:
  prometheus::Registry& registry_;
  prometheus::Labels labels_;
};

// The engine reports totals, but Prometheus counters take increments. A new engine process counts
// from 0 again.
class FromTotals {
 public:
  explicit FromTotals(prometheus::Counter& counter) : counter_(counter) {}
  void Set(double total) {
    if (total < last_) last_ = 0;
    counter_.Increment(total - last_);
    last_ = total;
  }

 private:
  prometheus::Counter& counter_;
  double last_ = 0;
};

}  // namespace pinion
