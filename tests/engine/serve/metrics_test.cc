#include "engine/serve/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pinion {
namespace {

using testing::HasSubstr;

TEST(ServeMetrics, ShowsTheEnginesCounts) {
  ServeMetrics metrics("m");
  EngineStats stats;
  stats.scheduler.running = 3;
  stats.scheduler.waiting = 2;
  stats.scheduler.preemptions = 1;
  stats.blocks_used = 1;
  stats.blocks_total = 4;
  stats.prompt_tokens = 100;
  stats.output_tokens = 10;
  stats.kv.prefix_query_tokens = 64;
  stats.kv.prefix_hit_tokens = 32;
  stats.prefill = {100, 0.5, {.weight_bytes = 1000, .kv_bytes = 24, .flops = 70, .int8_ops = 7}};
  stats.decode = {10, 0.25, {.weight_bytes = 4000, .kv_bytes = 96, .flops = 30, .int8_ops = 3}};
  metrics.SetEngine(stats);
  stats.output_tokens = 15;
  metrics.SetEngine(stats);
  const std::string text = metrics.Render();
  for (const char* line : {"vllm:num_requests_running{model_name=\"m\"} 3",
                           "vllm:num_requests_waiting{model_name=\"m\"} 2",
                           "vllm:kv_cache_usage_perc{model_name=\"m\"} 0.25",
                           "vllm:gpu_cache_usage_perc{model_name=\"m\"} 0.25",
                           "vllm:num_preemptions_total{model_name=\"m\"} 1",
                           "vllm:prompt_tokens_total{model_name=\"m\"} 100",
                           "vllm:generation_tokens_total{model_name=\"m\"} 15",
                           "vllm:prefix_cache_queries_total{model_name=\"m\"} 64",
                           "vllm:prefix_cache_hits_total{model_name=\"m\"} 32",
                           "pinion:step_seconds_total{model_name=\"m\",kind=\"prefill\"} 0.5",
                           "pinion:step_tokens_total{model_name=\"m\",kind=\"prefill\"} 100",
                           "pinion:step_bytes_total{model_name=\"m\",kind=\"prefill\"} 1024",
                           "pinion:step_operations_total{model_name=\"m\",kind=\"prefill\"} 77",
                           "pinion:step_seconds_total{model_name=\"m\",kind=\"decode\"} 0.25",
                           "pinion:step_tokens_total{model_name=\"m\",kind=\"decode\"} 10",
                           "pinion:step_bytes_total{model_name=\"m\",kind=\"decode\"} 4096",
                           "pinion:step_operations_total{model_name=\"m\",kind=\"decode\"} 33"})
    EXPECT_THAT(text, HasSubstr(line));
}

TEST(ServeMetrics, CountsOnWhenANewEngineProcessStartsFromZero) {
  ServeMetrics metrics("m");
  EngineStats stats;
  stats.output_tokens = 15;
  metrics.SetEngine(stats);
  metrics.SetEngine({});
  EXPECT_THAT(metrics.Render(), HasSubstr("vllm:generation_tokens_total{model_name=\"m\"} 15"));
  stats.output_tokens = 20;
  metrics.SetEngine(stats);
  EXPECT_THAT(metrics.Render(), HasSubstr("vllm:generation_tokens_total{model_name=\"m\"} 35"));
}

TEST(ServeMetrics, CountsFinishedSequencesAndTheirLatencies) {
  ServeMetrics metrics("m");
  metrics.AddFirstToken(0.3);
  metrics.AddInterTokenLatency(0.06);
  metrics.AddFinished({"length", 1.3, 0.1, 0.3, 100, 11});
  metrics.AddFinished({"abort"});
  const std::string text = metrics.Render();
  EXPECT_THAT(
      text, HasSubstr("vllm:request_success_total{model_name=\"m\",finished_reason=\"length\"} 1"));
  EXPECT_THAT(
      text, HasSubstr("vllm:request_success_total{model_name=\"m\",finished_reason=\"abort\"} 1"));
  EXPECT_THAT(text, HasSubstr("vllm:time_to_first_token_seconds_count{model_name=\"m\"} 1"));
  EXPECT_THAT(text, HasSubstr("vllm:e2e_request_latency_seconds_sum{model_name=\"m\"} 1.3"));
  EXPECT_THAT(text, HasSubstr("vllm:e2e_request_latency_seconds_count{model_name=\"m\"} 1"))
      << "an aborted request has no latency";
  EXPECT_THAT(text, HasSubstr("vllm:inter_token_latency_seconds_sum{model_name=\"m\"} 0.06"));
  EXPECT_THAT(text, HasSubstr("vllm:time_per_output_token_seconds_sum{model_name=\"m\"} 0.06"));
  EXPECT_THAT(text,
              HasSubstr("vllm:request_time_per_output_token_seconds_sum{model_name=\"m\"} 0.1\n"));
  // (1.3 - 0.3) / (11 - 1) = 0.1: the fifth of vLLM's boundaries holds it, the fourth does not.
  EXPECT_THAT(
      text,
      HasSubstr(
          "vllm:request_time_per_output_token_seconds_bucket{model_name=\"m\",le=\"0.15\"} 1"));
  EXPECT_THAT(
      text,
      HasSubstr(
          "vllm:request_time_per_output_token_seconds_bucket{model_name=\"m\",le=\"0.075\"} 0"));
}

}  // namespace
}  // namespace pinion
