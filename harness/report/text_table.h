#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "harness/report/html.h"
#include "harness/stats/estimate.h"

namespace pinion::harness {

// A table of strings, for browsers and for Markdown.
struct TextTable {
  struct Row {
    std::vector<std::string> cells;
    bool stands_out = false;          // highlighted
    const Estimate* ratio = nullptr;  // drawn in `drawn_column`; not owned
    double floor = 0;                 // drawn with the ratio
  };
  std::string title, note;        // the note may be empty
  std::vector<std::string> head;  // empty: each row is a name and a value
  std::vector<Row> rows;          // empty: only title and note are shown
  size_t drawn_column = SIZE_MAX;
};

// `heading`: "h2", "h3", or empty for a table without its title.
Html ToHtml(const TextTable& table, std::string_view heading);
std::string ToMarkdown(const TextTable& table);

// For text inside a table cell or a paragraph: escapes everything that Markdown reads as markup.
std::string EscapeMarkdown(const std::string& text);

}  // namespace pinion::harness
