#pragma once

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>

#include <utility>

namespace pinion {

// Metrics of one name, which further labels tell apart.
template <typename Metric>
class MetricsOf {
 public:
  MetricsOf(prometheus::Family<Metric>& family, prometheus::Labels labels)
      : family_(family), labels_(std::move(labels)) {}

  // The same one for the same labels.
  template <typename... Args>
  Metric& Add(prometheus::Labels labels, const Args&... args) const {
    labels.insert(labels_.begin(), labels_.end());
    return family_.Add(labels, args...);
  }

 private:
  prometheus::Family<Metric>& family_;
  prometheus::Labels labels_;
};

// Creates metrics that all carry the same labels. Makers of one registry share the names: the
// metric that one of them adds, another finds. For metrics.cc and engine_metrics.cc alone.
class MetricsMaker {
 public:
  MetricsMaker(prometheus::Registry& registry, prometheus::Labels labels)
      : registry_(registry), labels_(std::move(labels)) {}

  MetricsOf<prometheus::Gauge> Gauges(const char* name, const char* help) const {
    return {prometheus::BuildGauge().Name(name).Help(help).Register(registry_), labels_};
  }
  prometheus::Gauge& Gauge(const char* name, const char* help) const {
    return Gauges(name, help).Add({});
  }
  MetricsOf<prometheus::Counter> Counters(const char* name, const char* help) const {
    return {prometheus::BuildCounter().Name(name).Help(help).Register(registry_), labels_};
  }
  prometheus::Counter& Counter(const char* name, const char* help) const {
    return Counters(name, help).Add({});
  }
  prometheus::Histogram& Histogram(const char* name, const char* help,
                                   const prometheus::Histogram::BucketBoundaries& at) const {
    prometheus::Family<prometheus::Histogram>& family =
        prometheus::BuildHistogram().Name(name).Help(help).Register(registry_);
    return family.Add(labels_, at);
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
