#include "engine/text/pre_tokenizer.h"

#include <memory>
#include <utility>

#include "engine/base/strings.h"
#include "engine/text/component.h"
#include "engine/text/unicode.h"

namespace pinion {
namespace {

using Pieces = std::vector<Piece>;
using Step = Steps<Pieces>::Step;

constexpr std::string_view kRole = "pre-tokenizer";

enum class Behavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };

Result<Behavior> ReadBehavior(const Json& component, std::string_view fallback) {
  PINION_ASSIGN(const std::string name,
                Optional<std::string>(component, "behavior", std::string(fallback)));
  if (name == "Removed") return Behavior::kRemoved;
  if (name == "Isolated") return Behavior::kIsolated;
  if (name == "MergedWithPrevious") return Behavior::kMergedWithPrevious;
  if (name == "MergedWithNext") return Behavior::kMergedWithNext;
  if (name == "Contiguous") return Behavior::kContiguous;
  return Fail(ErrorCode::kUnsupported, StrCat("behavior '", name,
                                              "' is none of Removed, Isolated, MergedWithPrevious, "
                                              "MergedWithNext, Contiguous"));
}

struct Part {
  size_t begin, end;
  bool is_match;
};

// The whole text as alternating gaps and matches.
std::vector<Part> Parts(size_t size, const Spans& matches, bool invert) {
  std::vector<Part> parts;
  size_t at = 0;
  for (const auto& [begin, end] : matches) {
    if (at < begin) parts.push_back({at, begin, invert});
    parts.push_back({begin, end, !invert});
    at = end;
  }
  if (at < size) parts.push_back({at, size, invert});
  return parts;
}

// Joins neighbours as the behavior says; matches merge only with a neighbour that is not a match.
std::vector<Part> Merge(std::vector<Part> parts, Behavior behavior) {
  std::vector<Part> merged;
  bool previous = false;
  const auto add = [&](const Part& part, bool joins) {
    if (joins && !merged.empty()) {
      merged.back().begin = std::min(merged.back().begin, part.begin);
      merged.back().end = std::max(merged.back().end, part.end);
    } else {
      merged.push_back(part);
    }
    previous = part.is_match;
  };
  switch (behavior) {
    case Behavior::kRemoved:
      for (const Part& part : parts)
        if (!part.is_match) merged.push_back(part);
      return merged;
    case Behavior::kIsolated:
      return parts;
    case Behavior::kContiguous:
      for (const Part& part : parts) add(part, part.is_match == previous);
      return merged;
    case Behavior::kMergedWithPrevious:
      for (const Part& part : parts) add(part, part.is_match && !previous);
      return merged;
    case Behavior::kMergedWithNext:
      // From the end, so that the next part is the one seen before.
      for (auto it = parts.rbegin(); it != parts.rend(); ++it) add(*it, it->is_match && !previous);
      return {merged.rbegin(), merged.rend()};
  }
  return merged;
}

Status SplitPieces(Pieces& pieces, const Regex& pattern, Behavior behavior, bool invert) {
  Pieces split;
  split.reserve(pieces.size());
  for (Piece& piece : pieces) {
    PINION_ASSIGN(const Spans matches, pattern.FindAll(piece.text));
    for (const Part& part : Merge(Parts(piece.text.size(), matches, invert), behavior)) {
      if (part.begin == part.end) continue;
      split.push_back({piece.text.substr(part.begin, part.end - part.begin),
                       piece.at_start && part.begin == 0});
    }
  }
  pieces = std::move(split);
  return {};
}

Step Splitter(std::shared_ptr<const Regex> pattern, Behavior behavior, bool invert = false) {
  return [=](Pieces& pieces, const Growth&) {
    return SplitPieces(pieces, *pattern, behavior, invert);
  };
}

Result<Step> Splitter(std::string_view pattern, Behavior behavior, bool invert = false) {
  PINION_ASSIGN(std::shared_ptr<const Regex> regex, Regex::Compile(pattern));
  return Splitter(std::move(regex), behavior, invert);
}

Result<Step> MakeSplit(const Json& component) {
  PINION_ASSIGN(std::shared_ptr<const Regex> pattern, ReadPattern(component));
  PINION_ASSIGN(const Behavior behavior, ReadBehavior(component, "Isolated"));
  PINION_ASSIGN(const bool invert, Optional<bool>(component, "invert", false));
  return Splitter(std::move(pattern), behavior, invert);
}

constexpr std::string_view kGpt2Words =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

Result<Step> MakeByteLevel(const Json& component) {
  PINION_ASSIGN(const bool prefix, Optional<bool>(component, "add_prefix_space", true));
  PINION_ASSIGN(const bool use_regex, Optional<bool>(component, "use_regex", true));
  PINION_ASSIGN(std::shared_ptr<const Regex> words, Regex::Compile(kGpt2Words));
  return Step([=](Pieces& pieces, const Growth&) -> Status {
    for (Piece& piece : pieces)
      if (prefix && piece.text[0] != ' ') piece.text.insert(0, " ");
    if (use_regex) PINION_TRY(SplitPieces(pieces, *words, Behavior::kIsolated, false));
    for (Piece& piece : pieces) piece.text = BytesToCharacters(piece.text);
    return {};
  });
}

Result<Step> MakeMetaspace(const Json& component) {
  PINION_ASSIGN(const Metaspace metaspace, Metaspace::Read(component));
  PINION_ASSIGN(std::shared_ptr<const Regex> space, Regex::Literal(" "));
  PINION_ASSIGN(std::shared_ptr<const Regex> mark, Regex::Literal(metaspace.replacement));
  return Step([=](Pieces& pieces, const Growth& growth) -> Status {
    for (Piece& piece : pieces) {
      PINION_ASSIGN(piece.text, ReplaceAll(piece.text, *space, metaspace.replacement, growth));
      const bool wanted = metaspace.prepend == Metaspace::Prepend::kAlways ||
                          (metaspace.prepend == Metaspace::Prepend::kFirst && piece.at_start);
      if (wanted && piece.text.rfind(metaspace.replacement, 0) != 0)
        piece.text.insert(0, metaspace.replacement);
    }
    if (!metaspace.split) return {};
    return SplitPieces(pieces, *mark, Behavior::kMergedWithNext, false);
  });
}

Result<Step> MakeDigits(const Json& component) {
  PINION_ASSIGN(const bool each, Optional<bool>(component, "individual_digits", false));
  // The reference's digits are two versions of Unicode ahead of its regular expressions.
  return Splitter(R"([\p{N}\x{11de0}-\x{11de9}\x{16ff4}-\x{16ff6}])",
                  each ? Behavior::kIsolated : Behavior::kContiguous);
}

Result<Step> PunctuationSplitter(Behavior behavior) {
  return Splitter(StrCat('[', ClassText(PunctuationRanges()), ']'), behavior);
}

Result<Step> MakePunctuation(const Json& component) {
  PINION_ASSIGN(const Behavior behavior, ReadBehavior(component, "Isolated"));
  return PunctuationSplitter(behavior);
}

// Here the reference's word characters are those of UTS 18.
constexpr std::string_view kWordsAndMarks =
    R"([\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\x{200c}\x{200d}]+)"
    R"(|[^\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\x{200c}\x{200d}\s]+)";

Result<Step> MakeBert() {
  PINION_ASSIGN(const Step spaces, Splitter(R"(\s)", Behavior::kRemoved));
  PINION_ASSIGN(const Step marks, PunctuationSplitter(Behavior::kIsolated));
  return Step([=](Pieces& pieces, const Growth& growth) -> Status {
    PINION_TRY(spaces(pieces, growth));
    return marks(pieces, growth);
  });
}

Result<Step> MakeDelimiter(const Json& component) {
  PINION_ASSIGN(const std::string delimiter, ReadCharacter(component, "delimiter", ""));
  PINION_ASSIGN(std::shared_ptr<const Regex> pattern, Regex::Literal(delimiter));
  return Splitter(std::move(pattern), Behavior::kRemoved);
}

Result<Step> MakeStep(const Json& component, std::string_view type) {
  if (type == "Split") return MakeSplit(component);
  if (type == "ByteLevel") return MakeByteLevel(component);
  if (type == "Metaspace") return MakeMetaspace(component);
  if (type == "Digits") return MakeDigits(component);
  if (type == "Punctuation") return MakePunctuation(component);
  if (type == "Whitespace") return Splitter(kWordsAndMarks, Behavior::kRemoved, true);
  if (type == "WhitespaceSplit") return Splitter(R"(\s)", Behavior::kRemoved);
  if (type == "BertPreTokenizer") return MakeBert();
  if (type == "CharDelimiterSplit") return MakeDelimiter(component);
  return UnknownComponent(kRole, type,
                          "Split, ByteLevel, Metaspace, Digits, Punctuation, Whitespace, "
                          "WhitespaceSplit, BertPreTokenizer, CharDelimiterSplit, Sequence");
}

size_t BytesOf(const Pieces& pieces) {
  size_t bytes = 0;
  for (const Piece& piece : pieces) bytes += piece.text.size();
  return bytes;
}

}  // namespace

Result<Metaspace> Metaspace::Read(const Json& component) {
  Metaspace metaspace;
  PINION_ASSIGN(metaspace.replacement, ReadCharacter(component, "replacement", "▁"));
  PINION_ASSIGN(metaspace.split, Optional<bool>(component, "split", true));
  PINION_ASSIGN(const std::string scheme,
                Optional<std::string>(component, "prepend_scheme", "always"));
  PINION_ASSIGN(const bool prefix, Optional<bool>(component, "add_prefix_space", true));
  if (scheme != "always" && scheme != "first" && scheme != "never")
    return Fail(ErrorCode::kUnsupported,
                StrCat("prepend_scheme '", scheme, "' is none of always, first, never"));
  metaspace.prepend = !prefix || scheme == "never" ? Prepend::kNever
                      : scheme == "first"          ? Prepend::kFirst
                                                   : Prepend::kAlways;
  return metaspace;
}

Result<PreTokenizer> MakePreTokenizer(const Json& component) {
  PINION_ASSIGN(std::vector<Step> steps, ReadTree(component, kRole, "pretokenizers", MakeStep));
  return Steps<Pieces>{kRole, "bytes", BytesOf, std::move(steps)};
}

}  // namespace pinion
