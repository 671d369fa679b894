#include "engine/base/check.h"
#include "engine/checkpoint/gguf.h"
#include "engine/text/hf_tokenizer.h"
#include "tests/counted_heap.h"
#include "tests/fuzz/fuzz.h"

namespace pinion::fuzz {
namespace {

// A value of one byte becomes a Json of 40, in a list that is made at once; a key and its value
// take 21 bytes in the file and 72 in a list that doubles.
constexpr size_t kMostTimes = 64, kFree = 16 << 10;

// The reading of the header, from which the model's configuration and its tokenizer are read.
void Translate(GgufHeader header) {
  const GgufFile file{{}, std::move(header)};
  if (const auto config = GgufConfig(file)) CHECK(config->is_object());
  const auto tokenizer = ReadGgufTokenizer(file);
  if (!tokenizer) return;
  const auto made = HfTokenizer::Make(tokenizer->tokenizer, tokenizer->tokenizer_config);
  if (made) (void)(*made)->Encode("Hello, w\xC3\xB6rld 42", true);
}

}  // namespace

void Gguf(std::string_view file) {
  const size_t before = tests::ResetHeapPeak();
  auto header = ReadGgufHeader(file);
  const size_t took = tests::HeapPeak() - before;
  CHECK(took <= kMostTimes * file.size() + kFree) << took << " of " << file.size();
  if (!header) {
    CHECK(!header.error().message.empty());
    return;
  }
  for (const GgufTensor& tensor : header->tensors)
    CHECK(tensor.begin <= file.size() && tensor.bytes <= file.size() - tensor.begin) << tensor.name;
  Translate(std::move(*header));
}

}  // namespace pinion::fuzz
