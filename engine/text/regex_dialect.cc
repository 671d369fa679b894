// Translates Oniguruma's Ruby syntax, in which tokenizer.json files are written, to PCRE2's
// dialect.

#include <cctype>
#include <cstdio>
#include <vector>

#include "engine/base/strings.h"
#include "engine/text/regex.h"
#include "engine/text/unicode.h"

namespace pinion {
namespace {

// Property White_Space. PCRE2's own \s holds U+180E as well, which left it in Unicode 6.3.
constexpr std::string_view kSpace =
    R"(\t-\r\x20\x85\xa0\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";
constexpr std::string_view kNotSpace =
    R"(\x00-\x08\x0e-\x1f\x21-\x84\x86-\x9f\xa1-\x{167f}\x{1681}-\x{1fff}\x{200b}-\x{2027})"
    R"(\x{202a}-\x{202e}\x{2030}-\x{205e}\x{2060}-\x{2fff}\x{3001}-\x{10ffff})";
constexpr std::string_view kHex = "0-9a-fA-F";

// The content of a class for \p{name}. Here a bare script name means the script itself; in PCRE2 it
// would mean the script extensions.
std::string Property(const std::string& name) {
  const std::string known = StrCat("\\p{", IsScriptName(name) ? "sc:" : "", name, "}");
  // Not for "unassigned": PCRE2 already counts the younger code points.
  if (name == "C" || name == "Cn") return known;
  return known + ClassText(YoungCodePoints(name));
}

std::string Word() {
  return Property("Alphabetic") + Property("M") + Property("Nd") + Property("Pc");
}
// Oniguruma counts these as \w, but only outside of classes.
constexpr std::string_view kLatin1Numbers = R"(\xb2\xb3\xb9\xbc-\xbe)";

// [:name:] inside a class; empty for names that mean the same to both libraries.
std::string Posix(std::string_view name) {
  if (name == "alpha") return Property("Alphabetic");
  if (name == "alnum") return Property("Alphabetic") + Property("Nd");
  if (name == "digit") return Property("Nd");
  if (name == "upper") return Property("Uppercase");
  if (name == "lower") return Property("Lowercase");
  if (name == "space") return std::string(kSpace);
  if (name == "word") return Word();
  return "";
}

class Translator {
 public:
  explicit Translator(std::string_view pattern) : src_(pattern) {}

  Result<std::string> Run() {
    while (at_ < src_.size()) PINION_TRY(Step());
    return std::move(dst_);
  }

 private:
  // One operand of a class: [^items].
  struct Set {
    bool negated = false;
    std::string items;
    std::string Text() const { return StrCat('[', negated ? "^" : "", items, ']'); }
  };

  char Peek(size_t ahead = 0) const { return at_ + ahead < src_.size() ? src_[at_ + ahead] : '\0'; }
  bool Ahead(std::string_view text) const { return src_.substr(at_, text.size()) == text; }
  static tl::unexpected<Error> Unsupported(std::string_view what) {
    return Fail(ErrorCode::kUnsupported, StrCat("the regular expression uses ", what));
  }

  Status Step() {
    const char c = Peek();
    if (c == '\\') return Escape();
    if (c == '[') {
      atom_ = dst_.size();
      return Class(dst_);
    }
    if (c == '{') return Interval();
    if (c == '(') groups_.push_back(dst_.size());
    if (c == ')' && !groups_.empty()) {
      atom_ = groups_.back();
      groups_.pop_back();
    } else if (c != '?' && c != '*' && c != '+') {
      atom_ = dst_.size();
    }
    dst_ += c;
    ++at_;
    return {};
  }

  // {,n} is {0,n}; and a '+' after an interval repeats it, whereas in PCRE2 it would make it
  // possessive.
  Status Interval() {
    const size_t close = src_.find('}', at_);
    const std::string_view inner = close == src_.npos ? "" : src_.substr(at_ + 1, close - at_ - 1);
    if (inner.empty() || inner.find_first_not_of("0123456789,") != inner.npos) {
      atom_ = dst_.size();
      dst_ += "\\{";
      ++at_;
      return {};
    }
    at_ = close + 1;
    dst_ += StrCat('{', inner[0] == ',' ? "0" : "", inner, '}');
    if (Peek() == '+') {
      dst_.insert(atom_, "(?:");
      dst_ += ')';
    }
    return {};
  }

  // \b or \B: a border of the characters that Oniguruma counts as \w, marks among them.
  void WordBorder() {
    const std::string word = StrCat('[', Word(), kLatin1Numbers, ']');
    const bool is_border = Peek(1) == 'b';
    dst_ += StrCat("(?:(?<=", word, ")(?", is_border ? '!' : '=', word, ")|(?<!", word, ")(?",
                   is_border ? '=' : '!', word, "))");
    at_ += 2;
  }

  Status Escape() {
    atom_ = dst_.size();
    if (Peek(1) == 'b' || Peek(1) == 'B') {
      WordBorder();
      return {};
    }
    Set set;
    PINION_ASSIGN(const bool is_set, SetEscape(set, /*in_class=*/false));
    dst_ += is_set ? set.Text() : LiteralEscape();
    return {};
  }

  // \uHHHH, or the escape unchanged.
  std::string LiteralEscape() {
    if (Peek(1) == 'u' && at_ + 6 <= src_.size()) {
      const std::string text = StrCat("\\x{", src_.substr(at_ + 2, 4), '}');
      at_ += 6;
      return text;
    }
    const std::string text(src_.substr(at_, 2));
    at_ += text.size();
    return text;
  }

  // Consumes an escape that stands for a set of characters. Inside a class, which cannot contain
  // the complement of a set, `set` is never negated.
  Result<bool> SetEscape(Set& set, bool in_class) {
    const char kind = Peek(1);
    if (kind == 'p' || kind == 'P') return PropertyEscape(set, in_class);
    const char lower = static_cast<char>(std::tolower(static_cast<unsigned char>(kind)));
    if (lower == 's')
      set.items = kSpace;
    else if (lower == 'w')
      set.items = StrCat(Word(), in_class ? "" : kLatin1Numbers);
    else if (lower == 'd')
      set.items = Property("Nd");
    else if (lower == 'h')
      set.items = kHex;
    else
      return false;
    set.negated = kind != lower;
    at_ += 2;
    if (!set.negated || !in_class) return true;
    set.negated = false;
    if (lower == 'h') return Unsupported("\\H inside a class; write it without the class");
    set.items = lower == 's' ? std::string(kNotSpace) : StrCat('\\', kind);
    return true;
  }

  Result<bool> PropertyEscape(Set& set, bool in_class) {
    std::string name(1, Peek(2));
    size_t length = 3;
    if (Peek(2) == '{') {
      const size_t close = src_.find('}', at_);
      if (close == src_.npos) return Unsupported("\\p{ without }");
      name = src_.substr(at_ + 3, close - at_ - 3);
      length = close + 1 - at_;
    }
    set.negated = Peek(1) == 'P';
    if (!name.empty() && name[0] == '^') {
      set.negated = !set.negated;
      name.erase(0, 1);
    }
    at_ += length;
    if (set.negated && in_class) {
      set.items = StrCat("\\P{", IsScriptName(name) ? "sc:" : "", name, '}');
      set.negated = false;
    } else {
      set.items = Property(name);
    }
    return true;
  }

  // A class from its '[' on, with nested classes and intersections.
  Status Class(std::string& dst) {
    PINION_ASSIGN(const std::vector<Set> operands, Operands());
    const bool negated = operands[0].negated;
    if (operands.size() == 1) {
      dst += operands[0].Text();
      return {};
    }
    std::string both;
    for (size_t i = 1; i < operands.size(); ++i) both += StrCat("(?=", operands[i].Text(), ')');
    both += StrCat('[', operands[0].items, ']');
    dst += negated ? StrCat("(?:(?!", both, ")(?s:.))") : StrCat("(?:", both, ')');
    return {};
  }

  // The operands of a class; the first one's `negated` applies to all of them together.
  Result<std::vector<Set>> Operands() {
    ++at_;  // '['
    std::vector<Set> operands(1);
    if (Peek() == '^') {
      operands[0].negated = true;
      ++at_;
    }
    if (Peek() == ']') {
      operands[0].items = "\\]";
      ++at_;
    }
    while (Peek() != ']') {
      if (at_ >= src_.size()) return Unsupported("a class without ']'");
      if (Ahead("&&")) {
        at_ += 2;
        operands.emplace_back();
        if (Peek() == '[' && Peek(1) != ':') {
          PINION_ASSIGN(operands.back(), Nested());
        }
      } else {
        PINION_TRY(Item(operands.back()));
      }
    }
    ++at_;
    return operands;
  }

  Result<Set> Nested() {
    if (++depth_ > 20) return Unsupported("classes nested deeper than 20");
    PINION_ASSIGN(std::vector<Set> operands, Operands());
    --depth_;
    if (operands.size() != 1) return Unsupported("an intersection inside an inner class");
    return std::move(operands[0]);
  }

  Status Item(Set& set) {
    if (Ahead("[:")) {
      const size_t close = src_.find(":]", at_);
      if (close != src_.npos) {
        const std::string known = Posix(src_.substr(at_ + 2, close - at_ - 2));
        set.items += known.empty() ? std::string(src_.substr(at_, close + 2 - at_)) : known;
        at_ = close + 2;
        return {};
      }
    }
    if (Peek() == '[') {
      PINION_ASSIGN(const Set inner, Nested());
      if (inner.negated) return Unsupported("a negated class inside a class");
      set.items += inner.items;
      return {};
    }
    if (Peek() == '\\') {
      Set escape;
      PINION_ASSIGN(const bool is_set, SetEscape(escape, /*in_class=*/true));
      set.items += is_set ? escape.items : LiteralEscape();
      return {};
    }
    set.items += src_[at_++];
    return {};
  }

  std::string_view src_;
  size_t at_ = 0;
  std::string dst_;
  size_t atom_ = 0;  // where the last atom begins in dst_
  std::vector<size_t> groups_;
  int depth_ = 0;
};

}  // namespace

std::string ClassText(const std::vector<std::pair<char32_t, char32_t>>& ranges) {
  std::string text;
  for (const auto& [first, last] : ranges) {
    char part[40];
    std::snprintf(part, sizeof part, "\\x{%x}-\\x{%x}", static_cast<unsigned>(first),
                  static_cast<unsigned>(last));
    text += part;
  }
  return text;
}

Result<std::string> TranslatePattern(std::string_view pattern) { return Translator(pattern).Run(); }

}  // namespace pinion
