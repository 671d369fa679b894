#include <string>

#include "engine/base/check.h"
#include "engine/serve/invocation.h"
#include "tests/counted_heap.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/server.h"

namespace pinion::fuzz {
namespace {

constexpr size_t kMemory = 1 << 20;
// A parser's start, which is below any limit.
constexpr size_t kFree = 4096;

Result<std::string> NoTemplate(const ChatRequest&) { return std::string("abc"); }

void CheckEstimate(std::string_view body) {
  const size_t before = tests::ResetHeapPeak();
  { const auto parsed = Json::Parse(body); }
  const size_t took = tests::HeapPeak() - before;
  CHECK(took <= ParsedBytes(body) + kFree) << took << " of " << ParsedBytes(body);
}

void CheckAnswer(const ApiResult<std::string>& answer) {
  if (!answer) return CheckRefusal(answer.error());
  CHECK(Json::Parse(*answer)) << *answer;
}

}  // namespace

void Request(std::string_view body) {
  const auto memory = std::make_shared<MemoryBudget>(kMemory);
  CheckEstimate(body);
  for (const size_t kv_tokens : {kKvTokens, size_t{0}}) {
    HttpRequest request = RequestOf(body, memory);
    const auto prepared = FrontEnd().Generation(
        request, Api::kCompletions, kModelTokens, kv_tokens, NoTemplate,
        [](const Grammar&) { return Status(); }, [](double) {});
    if (kv_tokens > 0) CheckPrepared(prepared);
  }
  for (const Api api : {Api::kLlama, Api::kInfill}) {
    HttpRequest request = RequestOf(body, memory);
    CheckPrepared(FrontEnd().Generation(
        request, api, kModelTokens, kKvTokens, NoTemplate, [](const Grammar&) { return Status(); },
        [](double) {}));
  }
  {
    HttpRequest request = RequestOf(body, memory);
    CheckAnswer(FrontEnd().Tokenize(request, kModelTokens, NoTemplate));
  }
  {
    HttpRequest request = RequestOf(body, memory);
    CheckAnswer(FrontEnd().Detokenize(request));
  }
  // A body of text that is a JSON object is told by its fields; others may be told wrongly.
  const auto invoked = InvokedApi(body, PoolingFacts{});
  CHECK(!invoked || *invoked == Api::kChat || *invoked == Api::kCompletions);
  CHECK(memory->used() == 0) << memory->used() << " bytes are still counted";
}

}  // namespace pinion::fuzz
