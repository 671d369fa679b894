#include "engine/serve/http_metrics.h"

#include <prometheus/counter.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/summary.h>
#include <prometheus/text_serializer.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "engine/base/strings.h"

namespace pinion {
namespace {

const prometheus::Histogram::BucketBoundaries kFineBuckets = {
    0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1,  1.5, 2,
    2.5,  3,     3.5,  4,     4.5, 5,    7.5, 10,   30, 60};
const prometheus::Histogram::BucketBoundaries kCoarseBuckets = {0.1, 0.5, 1};

// Probes, which would hide the rest.
bool IsProbe(std::string_view path) {
  constexpr auto kProbes = std::to_array<std::string_view>(
      {"/metrics", "/health", "/v1/health", "/load", "/ping", "/version", "/server_info"});
  return std::find(kProbes.begin(), kProbes.end(), path) != kProbes.end();
}

std::string MethodOf(const AccessRecord& exchange) {
  constexpr auto kMethods =
      std::to_array<std::string_view>({"GET", "POST", "PUT", "DELETE", "OPTIONS", "HEAD", "PATCH"});
  const bool usual = std::find(kMethods.begin(), kMethods.end(), exchange.method) != kMethods.end();
  return usual ? exchange.method : "other";
}

}  // namespace

struct HttpMetrics::State {
  prometheus::Registry registry;
  prometheus::Family<prometheus::Counter>& requests =
      prometheus::BuildCounter()
          .Name("http_requests_total")
          .Help("Requests by method, status and endpoint.")
          .Register(registry);
  prometheus::Family<prometheus::Summary>& bytes_in = prometheus::BuildSummary()
                                                          .Name("http_request_size_bytes")
                                                          .Help("Bytes of requests by endpoint.")
                                                          .Register(registry);
  prometheus::Family<prometheus::Summary>& bytes_out = prometheus::BuildSummary()
                                                           .Name("http_response_size_bytes")
                                                           .Help("Bytes of answers by endpoint.")
                                                           .Register(registry);
  prometheus::Histogram& fine = prometheus::BuildHistogram()
                                    .Name("http_request_duration_highr_seconds")
                                    .Help("Time of requests, in many buckets.")
                                    .Register(registry)
                                    .Add({}, kFineBuckets);
  prometheus::Family<prometheus::Histogram>& coarse =
      prometheus::BuildHistogram()
          .Name("http_request_duration_seconds")
          .Help("Time of requests by method and endpoint.")
          .Register(registry);
};

HttpMetrics::HttpMetrics() : state_(std::make_unique<State>()) {}
HttpMetrics::~HttpMetrics() = default;

void HttpMetrics::Add(const AccessRecord& exchange, bool known) {
  if (IsProbe(exchange.path)) return;
  const std::string handler = known ? exchange.path : "none", method = MethodOf(exchange);
  const std::string status = StrCat(std::clamp(exchange.status / 100, 1, 5), "xx");
  state_->requests.Add({{"method", method}, {"status", status}, {"handler", handler}}).Increment();
  const prometheus::Summary::Quantiles none;
  state_->bytes_in.Add({{"handler", handler}}, none)
      .Observe(static_cast<double>(exchange.bytes_in));
  state_->bytes_out.Add({{"handler", handler}}, none)
      .Observe(static_cast<double>(exchange.bytes_out));
  state_->fine.Observe(exchange.seconds);
  state_->coarse.Add({{"method", method}, {"handler", handler}}, kCoarseBuckets)
      .Observe(exchange.seconds);
}

std::string HttpMetrics::Render() const {
  return prometheus::TextSerializer().Serialize(state_->registry.Collect());
}

}  // namespace pinion
