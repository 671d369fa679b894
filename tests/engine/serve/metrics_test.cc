#include "engine/serve/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <ctime>
#include <string>

#include "engine/serve/http_metrics.h"
#include "engine/serve/process_metrics.h"

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
  metrics.SetEngine(0, stats);
  stats.output_tokens = 15;
  metrics.SetEngine(0, stats);
  const std::string text = metrics.Render();
  for (const char* line :
       {"vllm:num_requests_running{engine=\"0\",model_name=\"m\"} 3",
        "vllm:num_requests_waiting{engine=\"0\",model_name=\"m\"} 2",
        "vllm:kv_cache_usage_perc{engine=\"0\",model_name=\"m\"} 0.25",
        "vllm:gpu_cache_usage_perc{engine=\"0\",model_name=\"m\"} 0.25",
        "vllm:num_preemptions_total{engine=\"0\",model_name=\"m\"} 1",
        "vllm:prompt_tokens_total{engine=\"0\",model_name=\"m\"} 132",
        ("vllm:prompt_tokens_by_source_total{engine=\"0\",model_name=\"m\",source=\"local_"
         "compute\"}"
         " 100"),
        ("vllm:prompt_tokens_by_source_total{engine=\"0\",model_name=\"m\",source=\"local_cache_"
         "hit\"} 32"),
        "vllm:num_requests_waiting_by_reason{engine=\"0\",model_name=\"m\",reason=\"capacity\"} 2",
        "vllm:iteration_tokens_total_sum{engine=\"0\",model_name=\"m\"} 115",
        "vllm:iteration_tokens_total_count{engine=\"0\",model_name=\"m\"} 2",
        "vllm:generation_tokens_total{engine=\"0\",model_name=\"m\"} 15",
        "vllm:prefix_cache_queries_total{engine=\"0\",model_name=\"m\"} 64",
        "vllm:prefix_cache_hits_total{engine=\"0\",model_name=\"m\"} 32",
        "pinion:step_seconds_total{kind=\"prefill\",model_name=\"m\"} 0.5",
        "pinion:step_tokens_total{kind=\"prefill\",model_name=\"m\"} 100",
        "pinion:step_bytes_total{kind=\"prefill\",model_name=\"m\"} 1024",
        "pinion:step_operations_total{kind=\"prefill\",model_name=\"m\"} 77",
        "pinion:step_seconds_total{kind=\"decode\",model_name=\"m\"} 0.25",
        "pinion:step_tokens_total{kind=\"decode\",model_name=\"m\"} 10",
        "pinion:step_bytes_total{kind=\"decode\",model_name=\"m\"} 4096",
        "pinion:step_operations_total{kind=\"decode\",model_name=\"m\"} 33"})
    EXPECT_THAT(text, HasSubstr(line));
}

TEST(ServeMetrics, CountsTokensFromAnotherEngineAsCached) {
  ServeMetrics metrics("m");
  EngineStats stats;
  stats.prompt_tokens = 100;
  stats.kv.prefix_hit_tokens = 32;
  stats.transfer.taken_tokens = 64;
  metrics.SetEngine(0, stats);
  const std::string text = metrics.Render();
  for (const char* rest :
       {"total{engine=\"0\",model_name=\"m\"} 196",
        "cached_total{engine=\"0\",model_name=\"m\"} 96",
        "recomputed_total{engine=\"0\",model_name=\"m\"} 0",
        "cached_by_source_total{engine=\"0\",model_name=\"m\",source=\"device\"} 32",
        "cached_by_source_total{engine=\"0\",model_name=\"m\",source=\"p2p\"} 64",
        "cached_by_source_total{engine=\"0\",model_name=\"m\",source=\"host\"} 0"})
    EXPECT_THAT(text, HasSubstr(std::string("vllm:prompt_tokens_") + rest));
}

TEST(ServeMetrics, TellsOfRequestsAndTheirPhases) {
  ServeMetrics metrics("m");
  metrics.SetModel(300, {{{"block_size", "64"}}});
  metrics.AddFinished(0, {"stop", 1.5, 0.25, 0.5, 100, 11, 64, 50, 2, 0.25, 1});
  metrics.AddRequest(0, 3, 11);
  const std::string text = metrics.Render();
  const auto has = [&](const char* name, const char* rest) {
    EXPECT_THAT(text,
                HasSubstr(std::string("vllm:") + name + "{engine=\"0\",model_name=\"m\"" + rest))
        << name;
  };
  has("request_queue_time_seconds_sum", "} 0.25\n");
  has("request_prefill_time_seconds_sum", "} 0.25\n");
  has("request_decode_time_seconds_sum", "} 1\n");
  has("request_inference_time_seconds_sum", "} 1.25\n");
  has("request_num_preemptions_sum", "} 2\n");
  has("request_params_n_sum", "} 3\n");
  has("request_params_max_tokens_sum", "} 50\n");
  has("request_max_num_generation_tokens_sum", "} 11\n");
  has("request_prefill_kv_computed_tokens_sum", "} 36\n");
  has("request_prompt_tokens_bucket", ",le=\"100\"} 1\n");
  has("request_prompt_tokens_bucket", ",le=\"200\"} 1\n");
  EXPECT_THAT(text, testing::Not(HasSubstr("le=\"500\"} 1"))) << "beyond the model's length";
  EXPECT_THAT(
      text, HasSubstr("vllm:cache_config_info{block_size=\"64\",engine=\"0\",model_name=\"m\"} 1"));
}

TEST(ServeMetrics, TellsEnginesApartButAddsTheirSteps) {
  ServeMetrics metrics("m", 2);
  EngineStats stats;
  stats.steps = 3;
  stats.output_tokens = 10;
  stats.scheduler.running = 2;
  metrics.SetEngine(0, stats);
  stats.output_tokens = 4;
  metrics.SetEngine(1, stats);
  metrics.AddFirstToken(1, 0.3);
  metrics.SetModel(300, {{{"num_gpu_blocks", "7"}}, {{"num_gpu_blocks", "8"}}});
  metrics.SetEngine(0, {});  // the first one's process has ended
  metrics.SetFront({.pending = 5});
  const std::string text = metrics.Render();
  for (const char* line :
       {"vllm:generation_tokens_total{engine=\"0\",model_name=\"m\"} 10",
        "vllm:generation_tokens_total{engine=\"1\",model_name=\"m\"} 4",
        "vllm:num_requests_running{engine=\"0\",model_name=\"m\"} 0",
        "vllm:num_requests_running{engine=\"1\",model_name=\"m\"} 2",
        "vllm:num_requests_waiting{engine=\"0\",model_name=\"m\"} 5",
        "vllm:num_requests_waiting{engine=\"1\",model_name=\"m\"} 0",
        "vllm:time_to_first_token_seconds_count{engine=\"0\",model_name=\"m\"} 0",
        "vllm:time_to_first_token_seconds_count{engine=\"1\",model_name=\"m\"} 1",
        "vllm:cache_config_info{engine=\"0\",model_name=\"m\",num_gpu_blocks=\"7\"} 1",
        "vllm:cache_config_info{engine=\"1\",model_name=\"m\",num_gpu_blocks=\"8\"} 1",
        "pinion:steps_total{model_name=\"m\"} 6"})
    EXPECT_THAT(text, HasSubstr(line));
  const std::string head = "# TYPE vllm:generation_tokens_total counter";
  EXPECT_EQ(text.find(head), text.rfind(head)) << "one name is one family";
}

TEST(ServeMetrics, TellsWhetherTheEngineSleeps) {
  ServeMetrics metrics("m");
  const auto state = [&](const char* name) {
    const std::string text = metrics.Render(),
                      label = std::string("sleep_state=\"") + name + "\"} ";
    const size_t at = text.find(label);
    return at == std::string::npos ? '?' : text[at + label.size()];
  };
  EXPECT_EQ(state("awake"), '1');
  metrics.SetSleepLevel(2);
  EXPECT_EQ(state("awake"), '0');
  EXPECT_EQ(state("weights_offloaded"), '0');
  EXPECT_EQ(state("discard_all"), '1');
}

TEST(ServeMetrics, TimesTheOperationsOfSleepMode) {
  ServeMetrics metrics("m");
  EXPECT_THAT(metrics.Render(), testing::Not(testing::HasSubstr("sleep_mode_operation")));
  metrics.SetAwaitedRest("sleep", 2);
  metrics.AddRest("sleep", 0.5);
  metrics.AddRest("wake", 700);
  const std::string text = metrics.Render(),
                    duration = "vllm:sleep_mode_operation_duration_seconds";
  for (const std::string& line :
       {std::string("vllm:sleep_mode_operations_in_flight{operation=\"sleep\"} 2"),
        duration + "_bucket{operation=\"sleep\",le=\"0.1\"} 0",
        duration + "_bucket{operation=\"sleep\",le=\"1\"} 1",
        duration + "_bucket{operation=\"wake\",le=\"600\"} 0",
        duration + "_count{operation=\"wake\"} 1"})
    EXPECT_THAT(text, testing::HasSubstr(line + "\n")) << line;
}

TEST(HttpMetrics, CountsExchangesOfItsEndpointsAndTheOthersTogether) {
  HttpMetrics metrics;
  metrics.Add({"", "", "", "POST", "/v1/completions", 200, 100, 50, 0.2, true}, true);
  for (const char* path : {"/a", "/b"})
    metrics.Add({"", "", "", "BREW", path, 404, 1, 1, 0, true}, false);
  metrics.Add({"", "", "", "GET", "/health", 200, 1, 1, 0, true}, true);
  const std::string text = metrics.Render();
  EXPECT_THAT(text, HasSubstr("http_requests_total{handler=\"/v1/completions\",method=\"POST\","
                              "status=\"2xx\"} 1"));
  EXPECT_THAT(text,
              HasSubstr("http_requests_total{handler=\"none\",method=\"other\",status=\"4xx\"} 2"));
  EXPECT_THAT(text, HasSubstr("http_request_size_bytes_sum{handler=\"/v1/completions\"} 100"));
  EXPECT_THAT(text, HasSubstr("http_request_duration_highr_seconds_count 3"))
      << "probes are left out";
}

TEST(ProcessMetrics, TellsOfThisProcess) {
  const std::string text = ProcessMetrics();
  const auto value = [&](const std::string& name) {
    const size_t at = text.find("\n" + name + " ");
    return at == std::string::npos ? -1 : std::strtod(text.c_str() + at + name.size() + 2, nullptr);
  };
  EXPECT_GT(value("process_resident_memory_bytes"), 1 << 20);
  EXPECT_GE(value("process_cpu_seconds_total"), 0);
  EXPECT_GE(value("process_open_fds"), 3);
  EXPECT_NEAR(value("process_start_time_seconds"), static_cast<double>(std::time(nullptr)), 86400);
}

TEST(ServeMetrics, CountsOnWhenANewEngineProcessStartsFromZero) {
  ServeMetrics metrics("m");
  EngineStats stats;
  stats.output_tokens = 15;
  metrics.SetEngine(0, stats);
  metrics.SetEngine(0, {});
  EXPECT_THAT(metrics.Render(),
              HasSubstr("vllm:generation_tokens_total{engine=\"0\",model_name=\"m\"} 15"));
  stats.output_tokens = 20;
  metrics.SetEngine(0, stats);
  EXPECT_THAT(metrics.Render(),
              HasSubstr("vllm:generation_tokens_total{engine=\"0\",model_name=\"m\"} 35"));
}

TEST(ServeMetrics, CountsFinishedSequencesAndTheirLatencies) {
  ServeMetrics metrics("m");
  metrics.AddFirstToken(0, 0.3);
  metrics.AddInterTokenLatency(0, 0.06);
  metrics.AddFinished(0, {"length", 1.3, 0.1, 0.3, 100, 11});
  metrics.AddFinished(0, {"abort"});
  const std::string text = metrics.Render();
  EXPECT_THAT(text, HasSubstr("vllm:request_success_total{engine=\"0\",finished_reason=\"length\","
                              "model_name=\"m\"} 1"));
  EXPECT_THAT(
      text,
      HasSubstr(
          "vllm:request_success_total{engine=\"0\",finished_reason=\"abort\",model_name=\"m\"} 1"));
  EXPECT_THAT(text,
              HasSubstr("vllm:time_to_first_token_seconds_count{engine=\"0\",model_name=\"m\"} 1"));
  EXPECT_THAT(text,
              HasSubstr("vllm:e2e_request_latency_seconds_sum{engine=\"0\",model_name=\"m\"} 1.3"));
  EXPECT_THAT(text,
              HasSubstr("vllm:e2e_request_latency_seconds_count{engine=\"0\",model_name=\"m\"} 1"))
      << "an aborted request has no latency";
  EXPECT_THAT(
      text, HasSubstr("vllm:inter_token_latency_seconds_sum{engine=\"0\",model_name=\"m\"} 0.06"));
  EXPECT_THAT(
      text,
      HasSubstr("vllm:time_per_output_token_seconds_sum{engine=\"0\",model_name=\"m\"} 0.06"));
  EXPECT_THAT(
      text,
      HasSubstr(
          "vllm:request_time_per_output_token_seconds_sum{engine=\"0\",model_name=\"m\"} 0.1\n"));
  // (1.3 - 0.3) / (11 - 1) = 0.1: the fifth of vLLM's boundaries holds it, the fourth does not.
  EXPECT_THAT(text, HasSubstr("vllm:request_time_per_output_token_seconds_bucket{engine=\"0\","
                              "model_name=\"m\",le=\"0.15\"} 1"));
  EXPECT_THAT(text, HasSubstr("vllm:request_time_per_output_token_seconds_bucket{engine=\"0\","
                              "model_name=\"m\",le=\"0.075\"} 0"));
}

}  // namespace
}  // namespace pinion
