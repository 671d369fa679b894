#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "engine/base/strings.h"
#include "harness/report/export.h"

namespace pinion::harness {
namespace {

constexpr const char* kHeader =
    "candidate,label,status,reason,threads_bind,reserved_cpus,kv_cache_space,tensor_parallel,isa,"
    "dtype,max_num_batched_tokens,max_num_seqs,replicas,threads,metric,unit,concurrency,n,median,"
    "low,high,coverage\r\n";

Candidate Measured() {
  Candidate candidate;
  candidate.id = 3;
  candidate.label = "isa=avx2";
  candidate.status = CandidateStatus::kOk;
  candidate.options = Json::MakeObject();
  candidate.options.Set("threads_bind", "0-1");
  candidate.options.Set("reserved_cpus", 1);
  candidate.options.Set("tensor_parallel", 2);
  candidate.options.Set("isa", "avx2");
  candidate.options.Set("dtype", "bfloat16");
  candidate.options.Set("max_num_batched_tokens", 512);
  candidate.options.Set("max_num_seqs", 64);
  candidate.threads = 7;
  return candidate;
}

std::string CsvOf(Candidate candidate) {
  Results results;
  results.candidates.push_back(std::move(candidate));
  return ResultsCsv(results);
}

TEST(ResultsCsvText, HasEveryFieldUnderItsName) {
  Candidate candidate = Measured();
  candidate.series.push_back({"ttft_s", 4, {}, {6, 0.25, 0.01, Interval{0.125, 0.5, 0.96875}}});
  candidate.series.push_back({"output_tokens_per_s", 0, {}, {5, 1234.56789, 3, std::nullopt}});
  const std::string start = "3,isa=avx2,ok,,0-1,1,,2,avx2,bfloat16,512,64,1,7,";
  EXPECT_EQ(CsvOf(candidate), StrCat(kHeader, start, "ttft_s,s,4,6,0.25,0.125,0.5,0.96875\r\n",
                                     start, "output_tokens_per_s,tokens/s,0,5,1234.56789,,,\r\n"));
}

}  // namespace
}  // namespace pinion::harness
