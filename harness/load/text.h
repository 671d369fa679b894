#pragma once

#include <random>
#include <string>

namespace pinion::harness {

enum class TextStyle { kProse, kCode };

// Made-up text of `words` common words of English, or of lines that look like source code; most
// tokenizers make one token of each word. The same random numbers give the same text.
std::string MakeText(std::mt19937_64& random, int words, TextStyle style);

// How a server's tokenizer counts such text: tokens = overhead + per_word x words.
struct TokenScale {
  double per_word = 1;
  double overhead = 0;    // of a request: template, special tokens
  bool is_known = false;  // measured on the server; else one token per word is assumed

  bool operator==(const TokenScale&) const = default;
  int WordsFor(int tokens) const;  // at least 1
  // From two prompts whose tokens the server has counted.
  static TokenScale From(int words_a, double tokens_a, int words_b, double tokens_b);
};

}  // namespace pinion::harness
