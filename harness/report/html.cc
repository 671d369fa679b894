#include "harness/report/html.h"

#include <regex>
#include <set>
#include <string>

#include "engine/base/strings.h"

namespace pinion::harness {

Html Text(std::string_view text) {
  Html html;
  for (const char c : text) {
    switch (c) {
      case '&':
        html.markup_ += "&amp;";
        break;
      case '<':
        html.markup_ += "&lt;";
        break;
      case '>':
        html.markup_ += "&gt;";
        break;
      case '"':
        html.markup_ += "&quot;";
        break;
      case '\'':
        html.markup_ += "&#39;";
        break;
      default:
        html.markup_ += c;
    }
  }
  return html;
}

Html Prose(std::string_view text) {
  static const std::regex kFigure(
      "([0-9]) (%|s|ms|µs|min|h|[KMG]iB|[KMG]B|(tokens|requests|GB|GFLOP)/s)(?![A-Za-z/])");
  const std::vector<std::string> parts =
      Split(std::regex_replace(std::string(text), kFigure, "$1\u00a0$2"), '`');
  Html html;
  for (size_t i = 0; i < parts.size(); ++i)
    html += i % 2 == 0             ? Text(parts[i])
            : i + 1 < parts.size() ? Tag("code", "", parts[i])
                                   : Text("`" + parts[i]);  // unpaired: keep it
  return html;
}

Html Element(std::string_view name, Attributes attributes, const Html& content) {
  Html html;
  html.markup_ = StrCat("<", name);
  for (const auto& [key, value] : attributes)
    if (!value.empty()) html.markup_ += StrCat(" ", key, "=\"", Text(value).markup(), "\"");
  html.markup_ += StrCat(">", content.markup_, "</", name, ">");
  return html;
}

Html Drawing(std::string_view svg) {
  Html html;
  html.markup_ = svg;
  return html;
}

std::string ScriptJson(const Json& json) {
  std::string script;
  // In JSON these characters occur only inside strings. U+2028 and U+2029 need no escape: JSON is
  // not JavaScript.
  for (const char c : json.Dump()) {
    if (c == '<')
      script += "\\u003c";
    else
      script += c;
  }
  return script;
}

Result<std::string> FillTemplate(std::string_view page,
                                 const std::map<std::string, std::string>& values) {
  std::string filled;
  std::set<std::string> used;
  while (true) {
    const size_t open = page.find("{{");
    filled += page.substr(0, open);
    if (open == std::string_view::npos) break;
    const size_t close = page.find("}}", open);
    if (close == std::string_view::npos)
      return Fail(ErrorCode::kCorrupt, "the page template opens '{{' without closing it");
    const std::string name(page.substr(open + 2, close - open - 2));
    const auto value = values.find(name);
    if (value == values.end())
      return Fail(ErrorCode::kCorrupt,
                  StrCat("the page template asks for an unknown '", name, "'"));
    filled += value->second;
    used.insert(name);
    page.remove_prefix(close + 2);
  }
  for (const auto& [name, value] : values)
    if (!used.count(name))
      return Fail(ErrorCode::kCorrupt, StrCat("the page template leaves out '", name, "'"));
  return filled;
}

}  // namespace pinion::harness
