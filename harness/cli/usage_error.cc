#include "harness/cli/usage_error.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include "engine/base/file.h"
#include "engine/base/strings.h"

namespace pinion::harness {
namespace {

// The edit distance: letters to insert, remove or replace; 1 if one string begins with the other.
size_t Distance(const std::string& a, const std::string& b) {
  if (a.rfind(b, 0) == 0 || b.rfind(a, 0) == 0) return a == b ? 0 : 1;
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0]++;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({replaced, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row.back();
}

// "; did you mean sweep?", or empty if no name is near: at most a third of the letters may differ.
std::string Suggestion(const std::string& written, const std::vector<std::string>& names) {
  const auto nearest = std::min_element(
      names.begin(), names.end(),
      [&](const auto& a, const auto& b) { return Distance(written, a) < Distance(written, b); });
  if (nearest == names.end() || 3 * Distance(written, *nearest) > written.size()) return "";
  return StrCat("; did you mean ", *nearest, "?");
}

std::vector<std::string> Commands(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* each : app.get_subcommands({}))
    if (!each->get_group().empty() && !each->get_name().empty())  // no group: hidden
      names.push_back(each->get_name());
  return names;
}

std::vector<std::string> Options(const CLI::App& command) {
  std::vector<std::string> names;
  for (const CLI::Option* option : command.get_options({}))
    if (!option->get_group().empty())
      for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  return names;
}

Error UnknownCommand(const CLI::App& command, const std::string& written) {
  const std::vector<std::string> names = Commands(command);
  return {ErrorCode::kUsage,
          StrCat(written.empty()
                     ? "no command given"
                     : StrCat("unknown command '", written, "'", Suggestion(written, names)),
                 written.empty() || Suggestion(written, names).empty() ? "; " : " ",
                 "the commands are ", Join(names, ", "))};
}

// Of the unparsed arguments, name an option if there is one: the next words may be its value.
std::string Unexpected(const CLI::App& command, const std::vector<std::string>& left) {
  const auto option = std::find_if(left.begin(), left.end(),
                                   [](const std::string& each) { return each.rfind('-', 0) == 0; });
  if (option == left.end()) return StrCat("unexpected argument '", left.front(), "'");
  const std::string name = option->substr(0, option->find('='));
  return StrCat("unknown option '", name, "'", Suggestion(name, Options(command)));
}

// CLI11's "Could not convert: --rounds = many" names neither the mistake nor the remedy.
std::string Unreadable(const CLI::App& command, const std::string& complaint) {
  const size_t name_at = complaint.find(": ") + 2, equals = complaint.find(" = ");
  if (equals == std::string::npos) return complaint;
  const std::string name = complaint.substr(name_at, equals - name_at);
  const CLI::Option* option = command.get_option_no_throw(name);
  const std::string type = option ? option->get_type_name() : "";
  const char* wanted = type.rfind("INT", 0) == 0 || type.rfind("UINT", 0) == 0
                           ? "a whole number, or is too large"
                       : type.rfind("FLOAT", 0) == 0 ? "a number"
                                                     : "an allowed value";
  return StrCat(name, " '", complaint.substr(equals + 3), "' is not ", wanted);
}

std::string Sentence(const CLI::App& command, const CLI::ParseError& error,
                     const std::vector<std::string>& left) {
  std::string text = error.what();
  const bool is_extra = error.get_exit_code() == static_cast<int>(CLI::ExitCodes::ExtrasError);
  if (is_extra && !left.empty()) return Unexpected(command, left);
  if (error.get_name() == "ConversionError") return Unreadable(command, text);
  const size_t missing = text.find(": 1 required ");
  if (error.get_name() == "ArgumentMismatch" && missing != std::string::npos)
    return text.substr(0, missing) + " needs a value";
  const auto is_lower = [](unsigned char letter) { return std::islower(letter) != 0; };
  const auto word_end =
      text.begin() + static_cast<ptrdiff_t>(std::min(text.find(' '), text.size()));
  if (std::any_of(text.begin(), word_end, is_lower))  // not the name of a positional
    text[0] = static_cast<char>(std::tolower(static_cast<unsigned char>(text[0])));
  return text;
}

}  // namespace

Error DescribeUsage(const CLI::App& app, const CLI::ParseError& error, int argc, char** argv) {
  const CLI::App* command = &app;
  std::string path;  // "run ", or "model make "
  int i = 1;
  for (; i < argc; ++i) {
    const CLI::App* next = nullptr;
    for (const CLI::App* each : command->get_subcommands({}))
      if (each->get_name() == argv[i]) next = each;
    if (!next) break;
    path += StrCat(argv[i], " ");
    command = next;
  }
  const std::string first = i < argc ? argv[i] : "";
  if (!Commands(*command).empty() && (first.empty() || first[0] != '-'))
    return UnknownCommand(*command, first);
  // An option before the command leaves the parser without one.
  const std::vector<std::string> left = command == &app ? std::vector{first} : app.remaining(true);
  const std::string text =
      command == &app ? Unexpected(app, left) : Sentence(*command, error, left);
  return {ErrorCode::kUsage,
          StrCat(text, text.back() == '?' ? " see pinion " : "; see pinion ", path, "--help")};
}

CLI::Validator Unsigned(uint64_t least, uint64_t most) {
  return {[least, most](std::string& text) {
            uint64_t value = 0;
            const auto [end, failure] =
                std::from_chars(text.data(), text.data() + text.size(), value);
            const bool whole = failure == std::errc() && end == text.data() + text.size();
            if (whole && value >= least && value <= most) return std::string();
            return StrCat("'", text, "' is not a whole number from ", least, " to ", most);
          },
          ""};
}

CLI::Validator NotEmpty() {
  return {[](std::string& text) {
            return text.empty() ? std::string("the value is empty; give one, or omit the option")
                                : std::string();
          },
          ""};
}

std::vector<std::string> OwnWords() {
  std::vector<std::string> words = Split(ReadFile("/proc/self/cmdline").value_or(""), '\0');
  if (words.size() > 1 && words.back().empty()) words.pop_back();  // behind the last NUL
  return words;
}

}  // namespace pinion::harness
