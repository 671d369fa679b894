#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "harness/report/html.h"
#include "harness/stats/estimate.h"

namespace pinion::harness {

// A table of texts, the same for browsers and for Markdown.
struct TextTable {
  struct Row {
    std::vector<std::string> cells;
    bool stands_out = false;          // what a reader should see first
    const Estimate* ratio = nullptr;  // drawn in `drawn_column`; not owned
    double floor = 0;                 // beside it
  };
  std::string title, note;        // the note may be empty
  std::vector<std::string> head;  // empty: rows are a name and a text
  std::vector<Row> rows;          // none: title and note alone
  size_t drawn_column = SIZE_MAX;
};

// `heading`: "h2", "h3", or empty for a table without its title.
Html ToHtml(const TextTable& table, std::string_view heading);
std::string ToMarkdown(const TextTable& table);

// A text inside a table cell or a paragraph: what Markdown would read as markup is escaped.
std::string EscapeMarkdown(const std::string& text);

}  // namespace pinion::harness
