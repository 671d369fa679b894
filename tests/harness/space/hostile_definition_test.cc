// Definitions that no one should write: each is refused in one sentence that names the value.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "harness/space/definition.h"

namespace pinion::harness {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

struct Hostile {
  const char* text;
  const char* names;  // part of the error's sentence
};

// Some would otherwise abort, be taken for another value, or fail after minutes of measuring.
constexpr Hostile kHostile[] = {
    // Types.
    {R"([])", "must be an object, not an array"},
    {R"(5)", "must be an object, not an integer"},
    {R"({"axes":[]})", "'axes' must be an object, not an array"},
    {R"({"axes":{"isa":{"a":1}}})", "'isa' must be a list of at least one value, not {\"a\":1}"},
    {R"({"axes":{"isa":[{}]}})", "a value of 'isa' must be text, not {}"},
    {R"({"axes":{"smt":[true]}})", "a value of 'smt' must be text, not true"},
    {R"({"axes":{"prefix_caching":["on"]}})", "must be true or false, not \"on\""},
    {R"({"axes":{"max_num_seqs":[1.5]}})", "must be an integer, not 1.5"},
    {R"({"axes":{"max_num_seqs":[null]}})", "must be an integer, not null"},
    {R"({"axes":{"env.A":[{"b":1}]}})", "must be text, a number, or null"},
    {R"({"axes":{"-a":[[]]}})", "or null (leave it out), not []"},
    {R"({"when":[]})", "'when' must be an object, not an array"},
    {R"({"axes":{"-a":[1]},"when":{"-a":"vllm"}})", "not \"vllm\""},
    {R"({"axes":{"-a":[1]},"when":{"-a":{"isa":{"b":1}}}})", "compares 'isa' with {\"b\":1}"},
    {R"({"axes":{"-a":[1]},"when":{"-a":{"isa":[["avx2"]]}}})", "'isa' with [\"avx2\"]"},
    {R"({"axes":{"-a":[1]},"when":{"-a":{"engine":[{}]}}})", "compares 'engine' with {}"},
    {R"({"axes":{"-a":[1]},"when":{"-a":{"engine":5}}})", "no engine is named '5'"},
    {R"({"candidates":{}})", "'candidates' must be a list"},
    {R"({"candidates":["isa"]})", "not \"isa\""},
    {R"({"candidates":[{"engine":["pinion"],"isa":"avx2"}]})", "must be a string, not [\"pinion"},
    {R"({"engines":"pinion"})", "'engines' must be a list"},
    {R"({"engines":[null]})", "an engine must be a name or an object, not null"},
    {R"({"engines":[{"name":7}]})", "'name' must be a string, not 7"},
    {R"({"engines":[{"command":"./server"}]})", "'command' must be a list"},
    {R"({"engines":[{"environment":{"A":1}}]})", "must be an object of strings, not {\"A\":1}"},
    {R"({"engines":[{"settings":[]}]})", "must be an object such as"},
    {R"({"engines":[{"settings":{"isa":2}}]})", "setting 'isa' must be text, not 2"},
    {R"({"workload":[]})", "'workload' must be an object, not an array"},
    {R"({"workload":{"concurrency":8}})", "'concurrency' must be a list"},
    {R"({"workload":{"prompt_len":"256"}})", "'prompt_len' must be an integer, not \"256\""},
    {R"({"workload":{"slo":5}})", "'slo' must be an object, not an integer"},
    {R"({"objectives":"throughput"})", "'objectives' must be a list"},
    {R"({"objectives":[{}]})", "must be a string, not {}"},
    {R"({"constraints":7})", "'constraints' must be an object"},
    {R"({"strategy":3})", "'strategy' must be a string, not 3"},
    {R"({"budget":[10]})", "must be seconds or text such as \"10m\", not [10]"},
    {R"({"epsilon":"2%"})", "'epsilon' must be a number, not \"2%\""},
    // Numbers out of all bounds.
    {R"({"axes":{"max_num_seqs":[-9223372036854775808]}})", "not -9223372036854775808"},
    {R"({"axes":{"max_num_seqs":[9223372036854775807]}})", "not 9223372036854775807"},
    {R"({"axes":{"kv_cache_space":[1e300]}})", "'1e+300' is too large"},
    {R"({"axes":{"kv_cache_space":["-4GiB"]}})", "-4GiB"},
    {R"({"rounds":99999999999})", "'rounds' 99999999999 is out of range"},
    {R"({"rounds":10001})", "'rounds' is 10001; it must be from 1 to 10000"},
    {R"({"seed":18446744073709551615})", "'seed' must be an integer of at least 0"},
    {R"({"epsilon":1e300})", "'epsilon' is 1e+300"},
    {R"({"epsilon":-0.02})", "'epsilon' is -0.02"},
    {R"({"cores_within":0})", "'cores_within' is 0"},
    {R"({"budget":1e300})", "longer than a year"},
    {R"({"budget":"nan"})", "nan"},
    {R"({"budget":"infinity"})", "infinity"},
    {R"({"trial_limit":-1})", "-1"},
    {R"({"divergence_limit_nats":-1})", "'divergence_limit_nats' is -1"},
    {R"({"price_per_hour":-1})", "'price_per_hour' is -1"},
    {R"({"workload":{"output_len":1048577}})", "'output_len' is 1048577"},
    {R"({"workload":{"concurrency":[1,4097]}})", "'concurrency' is 4097"},
    {R"({"workload":{"request_rate":[1e300]}})", "'request_rate' is 1e+300"},
    {R"({"workload":{"num_prompts":1048576,"prompt_len":1048576}})",
     "1048576 prompts of 1048576 tokens"},
    {R"({"workload":{"concurrency":[1,4096],"prompt_len":8193}})",
     "16384 prompts of 8193 tokens has 134234112 tokens; it may have at most 134217728"},
    {R"({"workload":{"slo":{"ttft":1,"start":1e300}}})",
     "'start' in 'slo' is 1e+300; it must be from 0.001 to 10000 requests/s"},
    {R"({"workload":{"slo":{"ttft":1,"start":0.5,"load":"concurrency"}}})",
     "'start' in 'slo' is 0.5; it must be from 1 to 4096 clients"},
    {R"({"workload":{"slo":{"ttft":1,"attain":1e-400}}})", "'attain' in 'slo' is 0"},
    // Nothing to try, or nothing known.
    {R"({"axes":{"isa":[]}})", "'isa' must be a list of at least one value, not []"},
    {R"({"candidates":[{}]})", "not {}"},
    {R"({"engines":[]})", "'engines' must be a list of at least one engine, not []"},
    {R"({"objectives":[]})", "'objectives' must be a list of at least one value, not []"},
    {R"({"workload":{"slo":{}}})", "'slo' needs a limit"},
    {R"({"":1})", "unknown key '' in the sweep definition"},
    {R"({"axes":{"":["a"]}})", "unknown key '' in 'axes'"},
    {R"({"axes":{"env.":["a"]}})", "unknown key 'env.' in 'axes'"},
    {R"({"axes":{"-":["a"]}})", "unknown key '-' in 'axes'"},
    {R"({"axes":{"seed":[1]}})", "unknown key 'seed' in 'axes'"},
    {R"({"axes":{"-a":[1]},"when":{"-a":{"isaa":1}}})", "unknown key 'isaa'"},
    {R"({"engines":[{"engine":"tgi"}]})", "unknown engine 'tgi'"},
    {R"({"engines":[{"settings":{"isaa":"avx2"}}]})", "unknown setting 'isaa'"},
    {R"({"engines":[{"settings":{"engine":"vllm"}}]})", "'engine' stands in 'settings'"},
    {R"({"workload":{"slo":{"p95":1}}})", "unknown key 'p95'"},
    // Twice.
    {R"({"seed":1,"seed":2})", "'seed' stands twice"},
    {R"({"engines":["vllm","vllm"]})", "two of 'engines' are named 'vllm'"},
    {R"({"engines":[{"settings":{"isa":"avx2","isa":"scalar"}}]})", "'isa' stands twice"},
    {R"({"objectives":["throughput","throughput"]})", "'objectives' lists throughput twice"},
    {R"({"workload":{"concurrency":[1,8,8]}})", "'concurrency' lists 8 twice"},
    {R"({"workload":{"request_rate":[0.5,0.50]}})", "'request_rate' lists 0.5 twice"},
    // Texts that programs would take for others.
    {R"({"axes":{"env.A":["a\u0000b"]}})", "\"a\\u0000b\" has a NUL"},
    {R"({"axes":{"-a\u0000":["b"]}})", "\"-a\\u0000\" has a NUL"},
    {R"({"engines":[{"binary":"/bin/true\u0000x"}]})", "\"/bin/true\\u0000x\" has a NUL"},
    {R"({"engines":[{"environment":{"A=B":"1"}}]})", "'A=B', which is not a valid variable name"},
    {R"({"engines":[{"name":"a b"}]})", "the engine's name 'a b'"},
    {R"({"engines":[{"name":""}]})", "the engine's name ''"},
};

class HostileDefinition : public testing::TestWithParam<Hostile> {};

TEST_P(HostileDefinition, IsRefusedInOneSentenceThatNamesTheValue) {
  const auto json = Json::Parse(GetParam().text);
  ASSERT_TRUE(json) << json.error().message;
  Definition definition;
  const Status status = FromJson(*json, definition);
  ASSERT_FALSE(status) << "it was taken";
  EXPECT_EQ(status.error().code, ErrorCode::kUsage);
  EXPECT_THAT(status.error().message, AllOf(HasSubstr(GetParam().names), Not(HasSubstr("\n"))));
}

INSTANTIATE_TEST_SUITE_P(Each, HostileDefinition, testing::ValuesIn(kHostile));

// The largest values that would be quoted whole, and the deepest.
TEST(HostileDefinitions, AreNotQuotedWhole) {
  constexpr size_t kMostBytes = 1000;
  const std::string items = R"({"workload":{"concurrency":{"a":[)" + std::string(200'000, '[') +
                            std::string(200'000, ']') + "]}}}";
  EXPECT_FALSE(Json::Parse(items)) << "nested deeper than JSON may be";
  std::string deep = "1", long_list = "[1";
  for (int level = 0; level < 150; ++level) deep = "[" + deep + "]";
  for (int item = 0; item < 100'000; ++item) long_list += ",1";
  long_list += "]";
  const std::string text = "\"" + std::string(100'000, 'x') + "\"";
  for (const std::string& value : {deep, long_list, text})
    for (const char* key : {"rounds", "seed", "epsilon", "budget", "strategy", "axes", "engines"}) {
      const auto json = Json::Parse("{\"" + std::string(key) + "\":" + value + "}");
      ASSERT_TRUE(json) << json.error().message;
      Definition definition;
      const Status status = FromJson(*json, definition);
      ASSERT_FALSE(status) << key;
      EXPECT_LT(status.error().message.size(), kMostBytes) << key;
    }
}

}  // namespace
}  // namespace pinion::harness
