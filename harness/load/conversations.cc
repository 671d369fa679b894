#include "harness/load/conversations.h"

#include <algorithm>

#include "engine/base/strings.h"

namespace pinion::harness {
namespace {

// Medians of published traces, rounded (Azure 2023: conversation
// 1,155 in and 211 out with history, code 1,930 and 11; here without history, and shorter, since a
// CPU computes prompts at hundreds of tokens a second).
const std::vector<WorkloadShape>& Shapes() {
  const auto lognormal = [](double median, double sigma) {
    return Lengths{Lengths::Kind::kLogNormal, median, sigma};
  };
  static const std::vector<WorkloadShape> shapes = {
      {"chat", lognormal(200, 0.8), lognormal(160, 0.6)},
      {"rag", lognormal(40, 0.4), lognormal(100, 0.5), 1500, 4},
      {"code", lognormal(600, 0.7), lognormal(200, 0.8), 0, 1, 1, TextStyle::kCode},
      {"summarise", lognormal(1500, 0.3), lognormal(100, 0.3)},
      {"batch", Lengths::Fixed(256), Lengths::Fixed(64)},
  };
  return shapes;
}

std::mt19937_64 RandomFor(uint64_t seed, uint64_t stream) {
  std::seed_seq mixed{seed & 0xffffffff, seed >> 32, stream};
  return std::mt19937_64(mixed);
}

}  // namespace

const std::vector<std::string>& WorkloadNames() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> list;
    for (const WorkloadShape& shape : Shapes()) list.push_back(shape.name);
    return list;
  }();
  return names;
}

Result<WorkloadShape> FindWorkload(const std::string& name) {
  for (const WorkloadShape& shape : Shapes())
    if (shape.name == name) return shape;
  return Fail(ErrorCode::kUsage,
              StrCat("unknown workload '", name, "'; known are ", Join(WorkloadNames(), ", ")));
}

std::string Describe(const WorkloadShape& shape) {
  std::string text =
      StrCat(shape.name, ": ", shape.prompt.Text(), " tokens in, ", shape.output.Text(), " out");
  if (shape.shared_prefix > 0)
    text += StrCat(", after one of ", shape.prefixes, " shared prefixes of ", shape.shared_prefix);
  if (shape.turns > 1) text += StrCat(", ", shape.turns, " turns");
  return text;
}

std::vector<Conversation> MakeConversations(const WorkloadShape& shape, size_t count, uint64_t seed,
                                            const TokenScale& scale, int longest) {
  // Made-up text only approximates its number of tokens: leave an eighth as a margin.
  const bool cuts = longest > 0 && shape.prompt.kind != Lengths::Kind::kFixed;
  const int room = cuts ? longest - longest / 8 : kMaxLength;
  const int prefix = std::min(shape.shared_prefix, room / 2);
  // Lengths and texts from streams of their own: a different scale must not change the lengths.
  std::mt19937_64 lengths = RandomFor(seed, 0), texts = RandomFor(seed, 1);
  std::vector<std::string> prefixes;
  const bool shared = prefix > 0;
  for (int i = 0; shared && i < shape.prefixes; ++i)
    prefixes.push_back(MakeText(texts, scale.WordsFor(prefix), shape.style));
  // The request's overhead counts once: with a prefix, the prefix includes it.
  TokenScale within = scale;
  if (shared) within.overhead = 0;
  std::vector<Conversation> conversations;
  for (size_t i = 0; i < count; ++i) {
    Conversation conversation;
    if (shared) conversation.context = prefixes[lengths() % prefixes.size()];
    int used = prefix;
    for (int turn = 0; turn < shape.turns && room - used >= 2; ++turn) {
      const int prompt = std::min(shape.prompt.Draw(lengths), room - used - 1);
      const int output = std::min(shape.output.Draw(lengths), room - used - prompt);
      conversation.turns.push_back({MakeText(texts, within.WordsFor(prompt), shape.style), output});
      used += prompt + output;
    }
    conversations.push_back(std::move(conversation));
  }
  return conversations;
}

std::vector<Conversation> TraceConversations(const Trace& trace, uint64_t seed,
                                             const TokenScale& scale) {
  std::mt19937_64 texts = RandomFor(seed, 1);
  std::vector<Conversation> conversations;
  for (size_t i = 0; i < trace.arrival_s.size(); ++i) {
    const int words = scale.WordsFor(trace.prompt_len[i]);
    conversations.push_back(
        {"", {{MakeText(texts, words, TextStyle::kProse), trace.output_len[i]}}});
  }
  return conversations;
}

}  // namespace pinion::harness
