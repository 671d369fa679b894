#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace pinion::harness {

enum class Style { kPlain, kBold, kDim, kWarning, kFrontend, kRank };

// One line for a terminal, which knows its display width without escape sequences.
class StyledText {
 public:
  explicit StyledText(bool colour) : colour_(colour) {}

  // `rank` picks the colour of Style::kRank.
  StyledText& Add(std::string_view text, Style style = Style::kPlain, int rank = 0);
  StyledText& Append(const StyledText& other);
  // Pads with blanks up to `column`.
  StyledText& Pad(size_t column);

  size_t width() const { return width_; }
  const std::string& text() const { return text_; }

 private:
  bool colour_;
  size_t width_ = 0;
  std::string text_;
};

// The columns of UTF-8 text, if every character takes one.
size_t DisplayWidth(std::string_view text);

// A label in a column of its own, in bold, then the text, broken between words so that lines stay
// below 100 columns. In another style than kPlain the label has that style, too. Every line is
// ended.
std::string Paragraph(const std::string& label, const std::string& text, bool colour,
                      Style style = Style::kPlain);

}  // namespace pinion::harness
