#include "harness/load/text.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace pinion::harness {
namespace {

// Short, frequent words, each of which is one token in most vocabularies.
constexpr std::array<const char*, 96> kWords = {
    "the",   "of",     "and",  "to",   "in",    "is",     "that",  "for",  "it",    "was",
    "on",    "are",    "as",   "with", "his",   "they",   "at",    "be",   "this",  "have",
    "from",  "or",     "one",  "had",  "by",    "word",   "but",   "not",  "what",  "all",
    "were",  "we",     "when", "your", "can",   "said",   "there", "use",  "an",    "each",
    "which", "she",    "do",   "how",  "their", "if",     "will",  "up",   "other", "about",
    "out",   "many",   "then", "them", "these", "so",     "some",  "her",  "would", "make",
    "like",  "him",    "into", "time", "has",   "look",   "two",   "more", "write", "go",
    "see",   "number", "no",   "way",  "could", "people", "my",    "than", "first", "water",
    "been",  "call",   "who",  "oil",  "its",   "now",    "find",  "long", "down",  "day",
    "did",   "get",    "come", "made", "may",   "part"};
constexpr std::array<const char*, 32> kCodeWords = {
    "return", "if",   "else", "for",   "while", "int",   "float", "string",
    "list",   "map",  "def",  "class", "self",  "None",  "True",  "False",
    "import", "from", "in",   "not",   "value", "index", "count", "size",
    "key",    "item", "node", "data",  "file",  "line",  "name",  "test"};
constexpr int kWordsPerCodeLine = 8;

}  // namespace

std::string MakeText(std::mt19937_64& random, int words, TextStyle style) {
  std::string text;
  for (int i = 0; i < words; ++i) {
    if (style == TextStyle::kProse) {
      if (i > 0) text += ' ';
      text += kWords[random() % kWords.size()];
      continue;
    }
    if (i > 0) text += i % kWordsPerCodeLine == 0 ? '\n' : ' ';
    text += kCodeWords[random() % kCodeWords.size()];
  }
  return text;
}

int TokenScale::WordsFor(int tokens) const {
  return std::max(1, static_cast<int>(std::lround((tokens - overhead) / per_word)));
}

TokenScale TokenScale::From(int words_a, double tokens_a, int words_b, double tokens_b) {
  TokenScale scale;
  if (words_a == words_b || tokens_a <= 0 || tokens_b <= 0) return scale;
  const double per_word = (tokens_b - tokens_a) / (words_b - words_a);
  if (!(per_word > 0.05)) return scale;  // the server's counts make no sense
  return {per_word, tokens_a - per_word * words_a, true};
}

}  // namespace pinion::harness
