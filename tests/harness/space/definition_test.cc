#include "harness/space/definition.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <limits>

#include "engine/base/strings.h"
#include "harness/stats/metrics.h"
#include "tests/test_data.h"

namespace pinion::harness {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

Status Read(const char* text, Definition& definition) {
  auto json = Json::Parse(text);
  EXPECT_TRUE(json) << text;
  return FromJson(*json, definition);
}

std::string ErrorOf(const char* text) {
  Definition definition;
  const Status status = Read(text, definition);
  EXPECT_FALSE(status) << text;
  if (status) return "";
  EXPECT_EQ(status.error().code, ErrorCode::kUsage);
  return status.error().message;
}

TEST(Definition, ItsSchemaHasEveryStrategy) {
  const Json schema = *Json::ParseFile(tests::SourceFolder() / "profiles/sweep.schema.json");
  std::vector<std::string> listed;
  for (const Json& name : schema.Find("properties")->Find("strategy")->Find("enum")->array())
    listed.push_back(name.string());
  EXPECT_THAT(ErrorOf(R"({"strategy":"none"})"), HasSubstr("known are " + Join(listed, ", ")));
}

TEST(Definition, APairIsJudgedInOneObjective) {
  EXPECT_THAT(ErrorOf(R"({"strategy":"pair","objectives":["throughput","latency"]})"),
              HasSubstr("strategy pair judges one objective, not 2"));
}

TEST(Definition, ReadsEveryField) {
  Definition definition;
  const Status status = Read(R"({
    "axes":{"threads_bind":["auto","0-1"],"reserved_cpus":[0,1],"kv_cache_space":[2,"512MiB"],
             "tensor_parallel":[1,2],"isa":["avx2"],"dtype":["float32"],
             "max_num_batched_tokens":[64],"max_num_seqs":[4]},
    "candidates":[{"isa":"scalar"}],
    "workload":{"prompt_len":10,"output_len":5,"concurrency":[1,8],"num_prompts":3},
    "objectives":["latency"],"budget":"10m","rounds":7,"seed":9,"trial_limit":5})",
                             definition);
  ASSERT_TRUE(status) << status.error().message;
  EXPECT_THAT(FindAxis(definition.axes, "threads_bind")->values, ElementsAre("auto", "0-1"));
  EXPECT_THAT(FindAxis(definition.axes, "kv_cache_space")->values, ElementsAre(2.0, 0.5));
  EXPECT_EQ(definition.workload.load.shape.prompt_len(), 10);
  EXPECT_THAT(definition.workload.concurrency, ElementsAre(1, 8));
  EXPECT_THAT(definition.objectives, ElementsAre(Objective::kLatency));
  EXPECT_EQ(definition.budget_s, 600);
  EXPECT_EQ(definition.rounds, 7);
  EXPECT_EQ(definition.seed, 9u);
  EXPECT_EQ(definition.trial_limit_s, 5.0);
}

TEST(Definition, SurvivesTheRoundTripThroughJson) {
  Definition definition, again;
  ASSERT_TRUE(Read(R"({"axes":{"isa":["avx2"],"kv_cache_space":["512MiB"]},"rounds":3,
                       "candidates":[{"max_num_seqs":2}]})",
                   definition));
  ASSERT_TRUE(FromJson(ToJson(definition), again));
  EXPECT_EQ(ToJson(definition), ToJson(again));
  EXPECT_FALSE(again.trial_limit_s);
}

// No loops is not the default of some: a trial, which gets its workload as JSON, would run them.
TEST(Definition, ABatchAloneStaysAlone) {
  Definition definition, again;
  ASSERT_TRUE(Read(R"({"workload":{"concurrency":[]},"objectives":["throughput"]})", definition));
  EXPECT_TRUE(definition.workload.concurrency.empty());
  ASSERT_TRUE(FromJson(ToJson(definition), again));
  EXPECT_TRUE(again.workload.concurrency.empty());
  EXPECT_THAT(ErrorOf(R"({"workload":{"concurrency":[]}})"), HasSubstr("add 1 to 'concurrency'"));
}

TEST(Definition, ErrorsNameTheKeyAndTheAllowedValues) {
  EXPECT_THAT(ErrorOf(R"({"spce":{}})"), HasSubstr("unknown key 'spce' in the sweep definition"));
  EXPECT_THAT(ErrorOf(R"({"axes":{"thread_bind":["auto"]}})"),
              HasSubstr("unknown key 'thread_bind' in 'axes'; known are threads_bind"));
  EXPECT_THAT(ErrorOf(R"({"axes":{"isa":"avx2"}})"), HasSubstr("'isa' must be a list"));
  EXPECT_THAT(ErrorOf(R"({"axes":{"isa":[]}})"), HasSubstr("'isa' must be a list"));
  EXPECT_THAT(ErrorOf(R"({"axes":{"max_num_seqs":["4"]}})"), HasSubstr("must be an integer"));
  EXPECT_THAT(ErrorOf(R"({"workload":{"prompt_len":0}})"), HasSubstr("'prompt_len' is 0"));
  EXPECT_THAT(ErrorOf(R"({"workload":{"output_len":1}})"), HasSubstr("from 2 to"));
  EXPECT_THAT(ErrorOf(R"({"workload":{"concurrency":[1,1]}})"), HasSubstr("twice"));
  EXPECT_THAT(ErrorOf(R"({"workload":{"request_rate":[2,2.0]}})"), HasSubstr("twice"));
  for (const char* rate : {"0", "-1", "1e9"})
    EXPECT_THAT(ErrorOf(StrCat(R"({"workload":{"request_rate":[)", rate, "]}}").c_str()),
                HasSubstr("it must be from 0.001 to 10000 requests/s"))
        << rate;
  EXPECT_THAT(ErrorOf(R"({"workload":{"concurrency":[8]}})"), HasSubstr("add 1 to 'concurrency'"));
  EXPECT_THAT(ErrorOf(R"({"objectives":["speed"]})"), HasSubstr("unknown objective 'speed'"));
  EXPECT_THAT(ErrorOf(R"({"budget":"soon"})"), HasSubstr("soon"));
  EXPECT_EQ(ErrorOf(R"({"budget":0})"),
            "'budget' is 0 seconds; it must be above 0, such as 20s or 10m");
  EXPECT_THAT(ErrorOf(R"({"trial_limit":0})"), HasSubstr("'trial_limit' is 0 seconds"));
  EXPECT_THAT(ErrorOf(R"({"budget":-5})"), HasSubstr("'-5'"));
  EXPECT_THAT(ErrorOf(R"({"trial_limit":1e10})"), HasSubstr("longer than a year"));
  EXPECT_THAT(ErrorOf(R"({"rounds":0})"), HasSubstr("'rounds' is 0"));
  EXPECT_THAT(ErrorOf(R"({"seed":-1})"), HasSubstr("'seed'"));
  EXPECT_THAT(ErrorOf(R"({"candidates":[{}]})"), HasSubstr("'candidates'"));
  EXPECT_THAT(ErrorOf(R"([1])"), HasSubstr("must be an object"));
}

// The first of two would be lost without a word.
TEST(Definition, NoKeyStandsTwice) {
  EXPECT_EQ(ErrorOf(R"({"axes":{"isa":["avx2"],"isa":["scalar"]}})"),
            "'isa' stands twice in 'axes': keep one of them");
  EXPECT_THAT(ErrorOf(R"({"rounds":2,"rounds":3})"), HasSubstr("'rounds' stands twice"));
  EXPECT_THAT(ErrorOf(R"({"candidates":[{"isa":"avx2","isa":"scalar"}]})"),
              HasSubstr("'isa' stands twice in one of 'candidates'"));
  EXPECT_THAT(ErrorOf(R"({"engines":[{"name":"a","name":"b"}]})"),
              HasSubstr("'name' stands twice"));
  EXPECT_THAT(ErrorOf(R"({"engines":[{"environment":{"A":"1","A":"2"}}]})"),
              HasSubstr("'A' stands twice in 'environment'"));
  EXPECT_THAT(ErrorOf(R"({"axes":{"-a":[1]},"when":{"-a":{"isa":"avx2"},"-a":{"smt":true}}})"),
              HasSubstr("'-a' stands twice in 'when'"));
}

TEST(Definition, VariablesHaveNamesWithoutAnEqualsSign) {
  EXPECT_EQ(ErrorOf(R"({"axes":{"env.A=B":["1"]}})"),
            "'env.A=B' names no variable, because of its '=': write \"env.A\" and its values");
  EXPECT_THAT(ErrorOf(R"({"engines":[{"environment":{"A=B":"1"}}]})"),
              HasSubstr("'environment' has 'A=B', which is not a valid variable name"));
}

TEST(Definition, AConditionHasValuesAsTheSettingHasThem) {
  Definition definition;
  ASSERT_TRUE(
      Read(R"({"axes":{"-a":[1]},"when":{"-a":{"kv_cache_space":["512MiB",1]}}})", definition));
  EXPECT_THAT(definition.axes[0].when[0].values, ElementsAre("0.5", "1"));
  EXPECT_THAT(ErrorOf(R"({"axes":{"-a":[1]},"when":{"-a":{"isa":[]}}})"),
              HasSubstr("'-a' in 'when' needs at least one value of 'isa'"));
}

TEST(Definition, ThroughputAloneNeedsNoSingleClient) {
  Definition definition;
  EXPECT_TRUE(Read(R"({"workload":{"concurrency":[8]},"objectives":["throughput"]})", definition));
}

TEST(Definition, ShippedExamplesAreValid) {
  const auto folder = tests::SourceFolder() / "profiles";
  int found = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string name = entry.path().filename();
    if (name.find(".sweep.json") == std::string::npos) continue;
    ++found;
    auto json = Json::ParseFile(entry.path());
    ASSERT_TRUE(json) << name;
    Definition definition;
    const Status status = FromJson(*json, definition);
    EXPECT_TRUE(status) << name << ": " << status.error().message;
  }
  EXPECT_GE(found, 2);
}

TEST(Definition, RunsTheBatchIfAnObjectiveLooksAtItOrThereIsNoOtherLoad) {
  const auto runs = [](const std::string& objectives, const std::string& workload,
                       const std::string& more = "") {
    Definition definition;
    EXPECT_TRUE(
        Read(StrCat("{\"objectives\":", objectives, ",\"workload\":", workload, more, "}").c_str(),
             definition));
    return RunsBatch(definition);
  };
  for (const char* objectives : {R"(["throughput"])", R"(["latency","balanced"])", R"(["cores"])"})
    EXPECT_TRUE(runs(objectives, "{}")) << objectives;
  for (const char* objectives : {R"(["latency"])", R"(["e2el@8"])", R"(["energy"])"})
    EXPECT_FALSE(runs(objectives, "{}")) << objectives;
  EXPECT_TRUE(runs(R"(["energy"])", R"({"concurrency":[]})"));
  EXPECT_TRUE(runs(R"(["latency"])", R"({"batch":true})"));
  EXPECT_TRUE(runs(R"(["cost"])", "{}", R"(,"price_per_hour":1)"));
  EXPECT_FALSE(runs(R"(["cost"])", "{}", R"(,"price_per_kwh":1)"));
  EXPECT_FALSE(runs(R"(["goodput"])", R"({"slo":{"ttft":1}})"));
  EXPECT_FALSE(runs(R"(["goodput"])", R"({"batch":false,"concurrency":[],"slo":{"ttft":1}})"));
}

TEST(Definition, ABatchThatAnObjectiveNeedsCannotBeLeftOut) {
  for (const char* name : {"throughput", "balanced", "cores"})
    EXPECT_EQ(
        ErrorOf(StrCat(R"({"workload":{"batch":false},"objectives":[")", name, R"("]})").c_str()),
        StrCat("objective '", name,
               "' is measured on the offline batch: take 'batch': false (--no-batch) out of "
               "the workload, or ask for other objectives"));
  EXPECT_THAT(ErrorOf(R"({"workload":{"batch":false,"concurrency":[]},"objectives":["energy"]})"),
              HasSubstr("'workload' has no load"));
  EXPECT_THAT(ErrorOf(R"({"workload":{"batch":1}})"), HasSubstr("'batch' must be true or false"));
}

// A trial gets its workload as JSON.
TEST(Definition, AWorkloadSaysWhetherItHasABatchOnlyIfThatWasChosen) {
  Workload workload;
  EXPECT_FALSE(ToJson(workload).Find("batch"));
  workload.batch = false;
  Workload again;
  ASSERT_TRUE(FromJson(ToJson(workload), again));
  EXPECT_EQ(again.batch, false);
  EXPECT_EQ(again.most_clients(), 8) << "of its loops";
}

TEST(Definition, AWorkloadMayDoWithoutThePrefixOfItsName) {
  Workload asked, again;
  ASSERT_TRUE(FromJson(*Json::Parse(R"({"name":"rag","shared_prefix":0})"), asked));
  ASSERT_TRUE(FromJson(ToJson(asked), again));
  EXPECT_EQ(again.load.shape.name, "rag");
  EXPECT_EQ(again.load.shape.shared_prefix, 0);
}

TEST(Definition, AWorkloadByNameBringsItsShape) {
  Workload rag;
  ASSERT_TRUE(FromJson(*Json::Parse(R"({"name":"rag","output_len":50,"prefixes":2})"), rag));
  EXPECT_EQ(rag.load.shape.shared_prefix, 1500);
  EXPECT_EQ(rag.load.shape.prefixes, 2);
  EXPECT_EQ(rag.load.shape.output_len(), 50);
  EXPECT_EQ(rag.load.shape.prompt_len(), 40);
  Workload again;
  ASSERT_TRUE(FromJson(ToJson(rag), again));
  EXPECT_EQ(ToJson(again), ToJson(rag));
  const auto unknown = FromJson(*Json::Parse(R"({"name":"poetry"})"), rag);
  EXPECT_THAT(unknown.error().message,
              HasSubstr("'poetry'; known are chat, rag, code, summarise, batch"));
}

TEST(Definition, AnSloNamesItsLimitsAndItsLoad) {
  Workload workload;
  ASSERT_TRUE(FromJson(
      *Json::Parse(R"({"slo":{"ttft":"500ms","tpot":0.1,"load":"rate","start":0.5}})"), workload));
  EXPECT_EQ(workload.slo->limits.ttft_s, 0.5);
  EXPECT_EQ(workload.slo->limits.tpot_s, 0.1);
  EXPECT_TRUE(workload.slo->by_rate);
  Workload again;
  ASSERT_TRUE(FromJson(ToJson(workload), again));
  EXPECT_EQ(ToJson(again), ToJson(workload));
  for (const auto& [text, says] : {std::pair(R"({"slo":{}})", "needs a limit"),
                                   std::pair(R"({"slo":{"ttft":1,"load":"much"}})", "rate or"),
                                   std::pair(R"({"slo":{"ttft":0}})", "above 0 seconds"),
                                   std::pair(R"({"slo":{"ttft":1,"attain":2}})", "at most 1")})
    EXPECT_THAT(FromJson(*Json::Parse(text), workload).error().message, HasSubstr(says)) << text;
}

TEST(Definition, ObjectivesUnderAnSloAndConstraintsAreReadAndKept) {
  Definition definition;
  ASSERT_TRUE(FromJson(*Json::Parse(R"({"objectives":["goodput","cores"],"cores_within":0.1,
    "workload":{"slo":{"ttft":"500ms","tpot":0.1}},
    "constraints":{"peak_rss":"512MiB","cores":4}})"),
                       definition));
  EXPECT_DOUBLE_EQ(*definition.workload.slo->limits.ttft_s, 0.5);
  EXPECT_FALSE(definition.workload.slo->limits.e2el_s);
  EXPECT_EQ(*definition.constraints.peak_rss_bytes, uint64_t{512} << 20);
  EXPECT_EQ(*definition.constraints.cores, 4);
  Definition again;
  ASSERT_TRUE(FromJson(ToJson(definition), again));
  EXPECT_EQ(ToJson(again), ToJson(definition));
}

TEST(Definition, AnSloLooksForARateFromALoadOfItsOwn) {
  Workload workload;
  ASSERT_TRUE(FromJson(*Json::Parse(R"({"slo":{"ttft":1}})"), workload));
  EXPECT_TRUE(workload.slo->by_rate);
  EXPECT_FALSE(workload.slo->start);
}

TEST(Definition, EveryObjectiveHasItsName) {
  for (const ObjectiveRow& row : Objectives()) {
    const Objective objective{row.kind, row.at_load ? 8 : 0};
    EXPECT_EQ(RowOf(objective).name, row.name) << "rows are in the order of ObjectiveKind";
    EXPECT_EQ(*ParseObjective(Name(objective)), objective) << row.name;
    EXPECT_TRUE(!row.metric || FindMetric(row.metric)) << row.name;
  }
  EXPECT_EQ(Name(*ParseObjective("itl_p95@12")), "itl_p95@12");
  EXPECT_EQ(Goal(*ParseObjective("e2el@1")),
            "shortest median time from request to last token, 1 client");
  EXPECT_EQ(Name(*ParseObjective("ttft_p95@0.1rps")), "ttft_p95@0.1rps");
  EXPECT_EQ(Goal(*ParseObjective("itl@2.50rps")),
            "shortest median gap between tokens, 2.5 requests/s");
  EXPECT_NE(*ParseObjective("itl@2rps"), *ParseObjective("itl@2"));
  for (const char* wrong : {"itl_p95", "itl_p95@", "itl_p95@0", "itl_p95@-1", "itl_p95@x",
                            "itl_p95@99999", "itl_p95@0rps", "itl_p95@-1rps", "itl_p95@rps",
                            "itl_p95@nanrps", "itl_p95@20000rps", "throughput@8", "@8", ""})
    EXPECT_THAT(ParseObjective(wrong).error().message,
                AllOf(HasSubstr(StrCat("'", wrong, "'")), HasSubstr("itl_p95@LOAD")))
        << wrong;
}

TEST(Definition, AnObjectiveUnderLoadNeedsThatLoadAndEnoughRequests) {
  const auto error = [](const char* objective, int prompts, int output) {
    Definition definition;
    const auto read = FromJson(
        *Json::Parse(StrCat(R"({"objectives":[")", objective,
                            R"("],"workload":{"concurrency":[1,8],"request_rate":[2.5],)",
                            R"("num_prompts":)", prompts, R"(,"output_len":)", output, "}}")),
        definition);
    return read ? std::string() : read.error().message;
  };
  EXPECT_EQ(error("itl@8", 16, 64), "");
  EXPECT_THAT(error("itl@4", 16, 64), HasSubstr("add 4 to 'concurrency'"));
  // 90 in the steady window, and the ramp and the drain of 8 clients.
  EXPECT_THAT(error("e2el_p95@8", 104, 64), HasSubstr("raise 'num_prompts' from 104 to 105"));
  EXPECT_EQ(error("e2el_p95@8", 105, 64), "");
  EXPECT_THAT(error("itl_p95@1", 30, 4), HasSubstr("from 30 to 31"));  // 3 gaps an answer
  EXPECT_EQ(error("itl_p95@1", 31, 4), "");
  EXPECT_EQ(error("itl_p95@8", 1, 64), "") << "the loop has 32 requests in any case";
  EXPECT_EQ(error("itl@2.5rps", 1, 64), "");
  EXPECT_THAT(error("itl@3rps", 16, 64), HasSubstr("add 3 to 'request_rate'"));
  // Up to three tenths of an open loop's requests are left out.
  EXPECT_THAT(error("ttft_p95@2.5rps", 128, 64), HasSubstr("from 128 to 129"));
  EXPECT_EQ(error("ttft_p95@2.5rps", 129, 64), "");
}

TEST(Definition, CostNeedsAPrice) {
  Definition definition;
  EXPECT_THAT(FromJson(*Json::Parse(R"({"objectives":["cost"]})"), definition).error().message,
              HasSubstr("--price-per-hour"));
  ASSERT_TRUE(
      FromJson(*Json::Parse(R"({"objectives":["cost"],"price_per_hour":2.5})"), definition));
  EXPECT_EQ(*definition.price_per_hour, 2.5);
  EXPECT_EQ(ToJson(definition).Find("price_per_hour")->number(), 2.5);
  EXPECT_FALSE(ToJson(definition).Find("price_per_kwh"));
  EXPECT_EQ(ErrorOf(R"({"price_per_kwh":0})"),
            "'price_per_kwh' is 0; it must be above 0, in any currency");
  definition.price_per_hour = std::numeric_limits<double>::infinity();
  EXPECT_THAT(Validate(definition).error().message, HasSubstr("'price_per_hour' is inf"));
}

TEST(Definition, ErrorsNameAMissingSloAndInvalidLimits) {
  const auto error = [](const char* text) {
    Definition definition;
    const auto read = FromJson(*Json::Parse(text), definition);
    return read ? std::string("no error") : read.error().message;
  };
  EXPECT_THAT(error(R"({"objectives":["goodput"]})"), testing::HasSubstr("--slo ttft=500ms"));
  EXPECT_THAT(error(R"({"workload":{"slo":{"itl":1}}})"), testing::HasSubstr("unknown key 'itl'"));
  EXPECT_THAT(error(R"({"workload":{"slo":{"ttft":0}}})"), testing::HasSubstr("above 0"));
  EXPECT_EQ(error(R"({"workload":{"slo":{"ttft":1,"attain":2}}})"),
            "'attain' in 'slo' is 2; it must be a share above 0 and at most 1");
  EXPECT_EQ(error(R"({"workload":{"slo":{"ttft":1,"start":-3}}})"),
            "'start' in 'slo' is -3; it must be from 0.001 to 10000 requests/s");
  EXPECT_THAT(error(R"({"constraints":{"cores":0}})"), testing::HasSubstr("at least 1"));
  for (const char* none : {"0", "-1", "\"0GiB\"", "[]"})
    EXPECT_THAT(error(StrCat("{\"constraints\":{\"peak_rss\":", none, "}}").c_str()),
                HasSubstr("'peak_rss' must be GiB above 0"));
  for (const char* too_many : {"1e300", "1073741825", "\"2000000000GiB\""})
    EXPECT_THAT(error(StrCat("{\"constraints\":{\"peak_rss\":", too_many, "}}").c_str()),
                HasSubstr("want at most 1073741824 GiB"));
  EXPECT_THAT(error(R"({"constraints":{"threads":1}})"), testing::HasSubstr("known are peak_rss"));
  EXPECT_THAT(error(R"({"objectives":["fun"]})"), testing::HasSubstr("energy"));
}

}  // namespace
}  // namespace pinion::harness
