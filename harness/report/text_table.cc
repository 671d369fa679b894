#include "harness/report/text_table.h"

#include <algorithm>

#include "harness/report/ratio_drawing.h"

namespace pinion::harness {
namespace {

Html RowOf(const TextTable& table, const TextTable::Row& row, double reach) {
  Html cells;
  for (size_t i = 0; i < row.cells.size(); ++i) {
    Html cell = Text(row.cells[i]);
    if (row.ratio && i == table.drawn_column) cell = DrawRatio(*row.ratio, row.floor, reach) + cell;
    const bool names_row = table.head.empty() && i == 0;
    cells += Element(names_row ? "th" : "td",
                     {{"class", i == 0 ? "name" : ""}, {"scope", names_row ? "row" : ""}}, cell);
  }
  return Tag("tr", row.stands_out ? "changed" : "", cells);
}

std::string MarkdownRow(const std::vector<std::string>& cells) {
  std::string text = "|";
  for (const std::string& cell : cells) text += " " + EscapeMarkdown(cell) + " |";
  return text + "\n";
}

}  // namespace

Html ToHtml(const TextTable& table, std::string_view heading) {
  Html section = heading.empty() ? Html() : Tag(heading, "", table.title);
  if (!table.note.empty()) section += Tag("p", "faint", table.note);
  if (table.rows.empty()) return section;
  double largest = 0;
  for (const TextTable::Row& row : table.rows)
    if (row.ratio) largest = std::max(largest, DistanceFromOne(*row.ratio));
  Html head, rows;
  for (const std::string& title : table.head) head += HeadCell("", title);
  if (!head.empty()) head = Tag("thead", Tag("tr", head));
  for (const TextTable::Row& row : table.rows) rows += RowOf(table, row, FittingReach(largest));
  const char* classes = table.head.empty() ? "facts" : "texts";
  return section + Tag("div", "wide", Tag("table", classes, head + Tag("tbody", rows)));
}

std::string ToMarkdown(const TextTable& table) {
  std::string text = "## " + table.title + "\n\n";
  if (!table.note.empty()) text += EscapeMarkdown(table.note) + "\n\n";
  if (table.rows.empty()) return text;
  const size_t columns = table.rows.front().cells.size();
  text += MarkdownRow(table.head.empty() ? std::vector<std::string>(columns) : table.head) +
          MarkdownRow(std::vector<std::string>(columns, "---"));
  for (const TextTable::Row& row : table.rows) text += MarkdownRow(row.cells);
  return text + "\n";
}

std::string EscapeMarkdown(const std::string& text) {
  std::string escaped;
  for (const char c : text) {
    if (std::string_view("\\`*_[]<>|#").find(c) != std::string_view::npos) escaped += '\\';
    escaped += c == '\n' || c == '\r' ? ' ' : c;
  }
  return escaped;
}

}  // namespace pinion::harness
