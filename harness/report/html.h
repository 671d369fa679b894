#pragma once

#include <initializer_list>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "engine/base/json.h"
#include "engine/base/result.h"

namespace pinion::harness {

// {{"class", "number"}, {"data-sort", "12.5"}}: names are literals, values may be any text.
using Attributes = std::initializer_list<std::pair<std::string_view, std::string_view>>;

// Markup that is safe to put into a page. Only the functions below make one, and they escape every
// text that is not markup already: a file's or a model's name can never become a tag.
class Html {
 public:
  Html() = default;
  const std::string& markup() const { return markup_; }
  bool empty() const { return markup_.empty(); }
  Html& operator+=(const Html& more) {
    markup_ += more.markup_;
    return *this;
  }
  friend Html operator+(Html a, const Html& b) { return a += b; }

 private:
  friend Html Text(std::string_view text);
  friend Html Element(std::string_view name, Attributes attributes, const Html& content);
  friend Html Drawing(std::string_view svg);
  std::string markup_;
};

// Escapes & < > " '.
Html Text(std::string_view text);
// The same for sentences: a number and its unit ("12 %", "1.5 GiB") stay on one line,
// and text between two backticks becomes code.
Html Prose(std::string_view text);
// <name a="b" ...>content</name>. An attribute with an empty value is left out.
Html Element(std::string_view name, Attributes attributes, const Html& content);
inline Html Tag(std::string_view name, std::string_view class_name, const Html& content) {
  return Element(name, {{"class", class_name}}, content);
}
inline Html Tag(std::string_view name, const Html& content) { return Tag(name, "", content); }
inline Html Tag(std::string_view name, std::string_view class_name, std::string_view text) {
  return Tag(name, class_name, Text(text));
}
// The heading of a column.
inline Html HeadCell(std::string_view class_name, std::string_view title) {
  return Element("th", {{"scope", "col"}, {"class", class_name}}, Text(title));
}
// The heading of a row.
inline Html RowHead(std::string_view title) {
  return Element("th", {{"scope", "row"}}, Text(title));
}
// Trusts `svg`: the caller has made it from numbers alone.
Html Drawing(std::string_view svg);

// JSON as the content of a <script type="application/json">, which no text in it can end.
std::string ScriptJson(const Json& json);

// Replaces every {{name}} of `page` by its value, in one pass: values are not searched for names.
// Errors: a name without value, a value without name.
Result<std::string> FillTemplate(std::string_view page,
                                 const std::map<std::string, std::string>& values);

}  // namespace pinion::harness
