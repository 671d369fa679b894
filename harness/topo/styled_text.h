#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace pinion::harness {

enum class Style { kPlain, kBold, kDim, kWarning, kFrontend, kRank };

// One line for a terminal: it knows how wide it looks, escape sequences and UTF-8 aside.
class StyledText {
 public:
  explicit StyledText(bool colour) : colour_(colour) {}

  // `rank` picks the colour of Style::kRank.
  StyledText& Add(std::string_view text, Style style = Style::kPlain, int rank = 0);
  StyledText& Append(const StyledText& other);
  // Blanks up to `column`.
  StyledText& Pad(size_t column);

  size_t width() const { return width_; }
  const std::string& text() const { return text_; }

 private:
  bool colour_;
  size_t width_ = 0;
  std::string text_;
};

// How many columns UTF-8 text takes where every character takes one.
size_t DisplayWidth(std::string_view text);

}  // namespace pinion::harness
