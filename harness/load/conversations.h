#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/base/result.h"
#include "harness/load/lengths.h"
#include "harness/load/text.h"

namespace pinion::harness {

// One question and the length of its answer.
struct Turn {
  std::string text;
  int output_len = 16;  // tokens
};

// Consecutive turns, each with everything before it as its context.
struct Conversation {
  std::string context;  // a system message, or the beginning of the prompt; may be empty
  std::vector<Turn> turns;
};

// The name of a shape that is none of the built-in ones.
inline constexpr char kFixedShape[] = "fixed";

// The shape of requests. Lengths in tokens; `scale` gives the number of words of made-up text.
struct WorkloadShape {
  std::string name = kFixedShape;
  Lengths prompt = Lengths::Fixed(256), output = Lengths::Fixed(64);
  int shared_prefix = 0;  // tokens before the prompt that several conversations have in common
  int prefixes = 1;       // number of different ones
  int turns = 1;
  TextStyle style = TextStyle::kProse;

  bool operator==(const WorkloadShape&) const = default;
  static WorkloadShape Fixed(int prompt_len, int output_len) {
    return {kFixedShape, Lengths::Fixed(prompt_len), Lengths::Fixed(output_len)};
  }
  int prompt_len() const { return static_cast<int>(prompt.Median()); }
  int output_len() const { return static_cast<int>(output.Median()); }
};

// The built-in ones:
//   chat       lognormal prompts and answers of about 200 tokens
//   rag        one of 4 documents of 1,500 tokens before every short question
//   code       lognormal prompts of 600 tokens of source code, answers of 200
//   summarise  long prompts, short answers
//   batch      256 tokens in, 64 out, all of the same length
// kUsage error that lists them.
Result<WorkloadShape> FindWorkload(const std::string& name);
const std::vector<std::string>& WorkloadNames();
std::string Describe(const WorkloadShape& shape);

// `count` conversations drawn from the seed alone: the same for every server. With
// `longest`, the most tokens of a prompt and its answer together, drawn lengths are cut to it
// and turns for which no room is left are left out; a fixed length stays, for the
// server to refuse. 0: no limit.
std::vector<Conversation> MakeConversations(const WorkloadShape& shape, size_t count, uint64_t seed,
                                            const TokenScale& scale, int longest = 0);

// Conversations of a ShareGPT file, [{"conversations":[{"from":"human","value":".."},...]},...], or
// of one such object a line: questions as they stand, each answer as long as the one in the file by
// `scale`, or `output` if given. Those that do not begin with a question and an answer are left
// out; the order is drawn from the seed, at most `count` are taken, at most `turns` of each. Errors
// (kCorrupt) name the file and the line or entry.
Result<std::vector<Conversation>> ReadShareGpt(const std::string& path, size_t count, int turns,
                                               uint64_t seed, const std::optional<Lengths>& output,
                                               const TokenScale& scale);

// A recorded trace of requests.
struct Trace {
  std::vector<double> arrival_s;  // ascending, the first one 0
  std::vector<int> prompt_len, output_len;
};

// Reads a trace, in a format recognised by its lines; arrival times are seconds or dates.
//   JSON lines  {"timestamp": ms, "input_length": n, "output_length": n}   (Mooncake)
//   CSV         a heading with a time (timestamp, arrival, time), a prompt length (input_length,
//               context_tokens, request_tokens, prompt_tokens) and an answer length (output_length,
//               generated_tokens, response_tokens, completion_tokens), in any order and case, with
//               any of " ", "_" or nothing between the words   (Azure, BurstGPT)
// Errors (kCorrupt) name the file, the line and the mistake.
Result<Trace> ReadTrace(const std::string& path);

// Made-up conversations with a trace's lengths.
std::vector<Conversation> TraceConversations(const Trace& trace, uint64_t seed,
                                             const TokenScale& scale);

}  // namespace pinion::harness
