#include "engine/text/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "engine/base/check.h"
#include "engine/base/strings.h"

namespace pinion {
namespace {

// Steps of one match before a pattern counts as hostile: about half a second of backtracking.
constexpr uint32_t kMatchLimit = 10'000'000;
constexpr uint32_t kHeapLimitKib = 64 * 1024;

std::string Describe(int code) {
  PCRE2_UCHAR text[256];
  pcre2_get_error_message(code, text, sizeof text);
  return reinterpret_cast<const char*>(text);
}

}  // namespace

struct Regex::State {
  template <auto Free>
  struct Deleter {
    template <typename T>
    void operator()(T* object) const {
      Free(object);
    }
  };
  using Code = std::unique_ptr<pcre2_code, Deleter<pcre2_code_free>>;
  using MatchData = std::unique_ptr<pcre2_match_data, Deleter<pcre2_match_data_free>>;
  using MatchContext = std::unique_ptr<pcre2_match_context, Deleter<pcre2_match_context_free>>;
  using CompileContext =
      std::unique_ptr<pcre2_compile_context, Deleter<pcre2_compile_context_free>>;

  Code code;
  MatchContext limits;
  std::string literal;  // if not empty, searched for without an expression
  std::string pattern;
};

Regex::Regex(std::unique_ptr<State> state) : state_(std::move(state)) {}
Regex::~Regex() = default;

Result<std::shared_ptr<const Regex>> Regex::Compile(std::string_view pattern) {
  PINION_ASSIGN(const std::string translated, TranslatePattern(pattern));
  const State::CompileContext context(pcre2_compile_context_create(nullptr));
  CHECK(context);
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  pcre2_set_parens_nest_limit(context.get(), 100);
  // In Ruby's syntax ^ and $ always stand at lines.
  const uint32_t options = PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE;
  int error = 0;
  PCRE2_SIZE position = 0;
  auto state = std::make_unique<State>();
  state->pattern = pattern;
  state->code.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()),
                                  translated.size(), options, &error, &position, context.get()));
  if (!state->code)
    return Fail(ErrorCode::kUnsupported, StrCat("the regular expression '", pattern,
                                                "' does not compile: ", Describe(error)));
  pcre2_jit_compile(state->code.get(), PCRE2_JIT_COMPLETE);  // without it, only slower
  state->limits.reset(pcre2_match_context_create(nullptr));
  CHECK(state->limits);
  pcre2_set_match_limit(state->limits.get(), kMatchLimit);
  pcre2_set_heap_limit(state->limits.get(), kHeapLimitKib);
  return std::shared_ptr<const Regex>(new Regex(std::move(state)));
}

Result<std::shared_ptr<const Regex>> Regex::Literal(std::string_view text) {
  auto state = std::make_unique<State>();
  state->literal = text;
  return std::shared_ptr<const Regex>(new Regex(std::move(state)));
}

size_t Regex::least_bytes() const {
  if (!state_->code) return state_->literal.size();
  uint32_t characters = 0;
  CHECK(pcre2_pattern_info(state_->code.get(), PCRE2_INFO_MINLENGTH, &characters) == 0);
  return characters;
}

Result<Spans> Regex::FindAll(std::string_view text) const {
  Spans spans;
  if (!state_->code) {
    const std::string& literal = state_->literal;
    if (literal.empty()) return spans;
    for (size_t at = text.find(literal); at != text.npos; at = text.find(literal, at)) {
      spans.emplace_back(at, at + literal.size());
      at += literal.size();
    }
    return spans;
  }
  const State::MatchData match(pcre2_match_data_create_from_pattern(state_->code.get(), nullptr));
  CHECK(match);
  const PCRE2_SIZE* bounds = pcre2_get_ovector_pointer(match.get());
  const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  uint32_t options = PCRE2_NO_UTF_CHECK;
  for (size_t at = 0; at <= text.size();) {
    int found = pcre2_match(state_->code.get(), subject, text.size(), at, options, match.get(),
                            state_->limits.get());
    if (found == PCRE2_ERROR_JIT_STACKLIMIT) {
      options |= PCRE2_NO_JIT;  // the interpreter keeps its stack on the heap
      continue;
    }
    if (found == PCRE2_ERROR_NOMATCH) break;
    if (found < 0)
      return Fail(ErrorCode::kExhausted, StrCat("the regular expression '", state_->pattern,
                                                "' fails on this text: ", Describe(found)));
    const size_t begin = bounds[0], end = bounds[1];
    at = end;
    // An empty match directly after another one does not count. Go on at the next character.
    if (end <= begin) {
      if (spans.empty() || spans.back().second != end) spans.emplace_back(end, end);
      for (++at; at < text.size() && (text[at] & 0xC0) == 0x80;) ++at;
    } else {
      spans.emplace_back(begin, end);
    }
  }
  return spans;
}

}  // namespace pinion
