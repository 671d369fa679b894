#include "harness/topo/styled_text.h"

#include <array>

#include "engine/base/strings.h"

namespace pinion::harness {
namespace {

// Cyan, green, blue, yellow, red, white: neighbours differ for the colour-blind too.
constexpr std::array kRankColours = {"\x1b[1;36m", "\x1b[1;32m", "\x1b[1;34m",
                                     "\x1b[1;33m", "\x1b[1;31m", "\x1b[1;37m"};

const char* Escape(Style style, int rank) {
  constexpr const char* kEscapes[] = {"", "\x1b[1m", "\x1b[2m", "\x1b[33m", "\x1b[1;35m"};
  if (style != Style::kRank) return kEscapes[static_cast<size_t>(style)];
  return kRankColours[static_cast<size_t>(rank) % kRankColours.size()];
}

}  // namespace

StyledText& StyledText::Add(std::string_view text, Style style, int rank) {
  const std::string_view escape = colour_ ? Escape(style, rank) : "";
  text_.append(escape).append(text);
  if (!escape.empty()) text_ += "\x1b[0m";
  width_ += DisplayWidth(text);
  return *this;
}

StyledText& StyledText::Append(const StyledText& other) {
  text_ += other.text_;
  width_ += other.width_;
  return *this;
}

StyledText& StyledText::Pad(size_t column) {
  return column > width_ ? Add(std::string(column - width_, ' ')) : *this;
}

std::string Paragraph(const std::string& label, const std::string& text, bool colour, Style style) {
  constexpr size_t kLabelColumns = 11, kTextColumns = 96;
  std::string lines;
  StyledText line(colour);
  line.Add(label, style == Style::kPlain ? Style::kBold : style).Pad(kLabelColumns);
  bool first = true;
  for (const std::string& word : Split(text, ' ')) {
    if (!first && line.width() + 1 + DisplayWidth(word) > kTextColumns) {
      lines += line.text() + "\n";
      line = StyledText(colour);
      line.Pad(kLabelColumns);
      first = true;
    }
    line.Add(first ? word : " " + word, style);
    first = false;
  }
  return lines + line.text() + "\n";
}

size_t DisplayWidth(std::string_view text) {
  size_t width = 0;
  for (const char byte : text) width += (static_cast<unsigned char>(byte) & 0xC0) != 0x80;
  return width;
}

}  // namespace pinion::harness
