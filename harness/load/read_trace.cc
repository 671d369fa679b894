// Traces: arrival times of requests, and lengths of prompts and answers.

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdlib>
#include <ctime>

#include "engine/base/file.h"
#include "engine/base/json.h"
#include "engine/base/strings.h"
#include "harness/load/conversations.h"

namespace pinion::harness {
namespace {

const std::vector<std::string> kTimeNames = {"timestamp", "arrival", "arrivaltime", "time"};
const std::vector<std::string> kPromptNames = {"inputlength", "contexttokens", "requesttokens",
                                               "prompttokens", "promptlen"};
const std::vector<std::string> kOutputNames = {"outputlength", "generatedtokens", "responsetokens",
                                               "completiontokens", "outputlen"};

// The position in a file that is being read, for error messages.
struct Place {
  const std::string& path;
  size_t line;
  tl::unexpected<Error> Bad(const std::string& what) const {
    return Fail(ErrorCode::kCorrupt, StrCat(path, ", line ", line, ": ", what));
  }
};

// "Request tokens" -> "requesttokens".
std::string Plain(const std::string& name) {
  std::string plain;
  for (char letter : name)
    if (std::isalnum(static_cast<unsigned char>(letter)))
      plain += static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
  return plain;
}

// A number of seconds, or "2023-11-16 18:17:03.9799600", in UTC or followed by its zone ("+01:00").
Result<double> ParseTime(const std::string& text, const Place& place) {
  if (const auto seconds = ParseDouble(Trim(text), "time"); seconds && std::isfinite(*seconds))
    return *seconds;
  std::tm date = {};
  const char* rest = strptime(text.c_str(), "%Y-%m-%d %H:%M:%S", &date);
  if (!rest) rest = strptime(text.c_str(), "%Y-%m-%dT%H:%M:%S", &date);
  double fraction = 0;
  if (rest && *rest == '.') {
    char* end = nullptr;
    fraction = std::strtod(rest, &end);
    rest = end;
  }
  if (rest && *rest) rest = strptime(rest, "%z", &date);
  if (!rest || *rest)
    return place.Bad(
        StrCat("time '", text, "' is neither seconds nor a date as ", "2023-11-16 18:17:03.97"));
  const auto east_s = static_cast<double>(date.tm_gmtoff);  // timegm ignores and clears it
  return static_cast<double>(timegm(&date)) - east_s + fraction;
}

Status AddRow(double time_s, double prompt, double output, const Place& place, Trace& trace) {
  for (const auto& [name, length] : {std::pair("prompt", prompt), std::pair("output", output)})
    if (!(length >= 0 && length <= kMaxLength && length == std::floor(length)))
      return place.Bad(
          StrCat(name, " length ", length, " is not a whole number from 0 to ", kMaxLength));
  // Such files list failed requests with an answer of 0 tokens.
  if (output < 1 || prompt < 1) return {};
  trace.arrival_s.push_back(time_s);
  trace.prompt_len.push_back(static_cast<int>(prompt));
  trace.output_len.push_back(static_cast<int>(output));
  return {};
}

Status ReadJsonLine(const std::string& line, const Place& place, Trace& trace) {
  auto json = Json::Parse(line);
  if (!json) return place.Bad(json.error().message);
  const auto number = [&](const char* key) -> Result<double> {
    const Json* value = json->Find(key);
    if (!value || !value->is_number())
      return place.Bad(StrCat("no number '", key, "'; want {\"timestamp\": milliseconds, ",
                              "\"input_length\": tokens, \"output_length\": tokens}"));
    return value->number();
  };
  PINION_ASSIGN(const double time_ms, number("timestamp"));
  PINION_ASSIGN(const double prompt, number("input_length"));
  PINION_ASSIGN(const double output, number("output_length"));
  return AddRow(time_ms * 1e-3, prompt, output, place, trace);
}

struct Columns {
  size_t time = 0, prompt = 0, output = 0;
};

Result<Columns> FindColumns(const std::string& heading, const Place& place) {
  std::vector<std::string> names;
  for (const std::string& cell : Split(heading, ',')) names.push_back(Plain(cell));
  const auto find = [&](const std::vector<std::string>& known, const char* what) -> Result<size_t> {
    for (size_t i = 0; i < names.size(); ++i)
      if (std::find(known.begin(), known.end(), names[i]) != known.end()) return i;
    return place.Bad(StrCat("the heading '", Trim(heading), "' has no ", what, "; known are ",
                            Join(known, ", ")));
  };
  Columns columns;
  PINION_ASSIGN(columns.time, find(kTimeNames, "arrival time"));
  PINION_ASSIGN(columns.prompt, find(kPromptNames, "prompt length"));
  PINION_ASSIGN(columns.output, find(kOutputNames, "output length"));
  return columns;
}

Status ReadCsvLine(const std::string& line, const Columns& columns, const Place& place,
                   Trace& trace) {
  const std::vector<std::string> cells = Split(line, ',');
  const auto cell = [&](size_t column) -> Result<std::string> {
    if (column >= cells.size())
      return place.Bad(
          StrCat("it has ", cells.size(), " columns, but column ", column + 1, " is needed"));
    return std::string(Trim(cells[column]));
  };
  PINION_ASSIGN(const std::string time, cell(columns.time));
  PINION_ASSIGN(const double time_s, ParseTime(time, place));
  double lengths[2];
  for (const auto& [i, column] : {std::pair(0, columns.prompt), std::pair(1, columns.output)}) {
    PINION_ASSIGN(const std::string text, cell(column));
    const auto number = ParseDouble(text, "length");
    if (!number) return place.Bad(StrCat("length '", text, "' is not a number"));
    lengths[i] = *number;
  }
  return AddRow(time_s, lengths[0], lengths[1], place, trace);
}

}  // namespace

Result<Trace> ReadTrace(const std::string& path) {
  PINION_ASSIGN(const std::string text, ReadFile(path));
  const std::vector<std::string> lines = Split(text, '\n');
  Trace trace;
  std::optional<Columns> columns;
  for (size_t i = 0; i < lines.size(); ++i) {
    const Place place{path, i + 1};
    const std::string_view line = Trim(lines[i]);
    if (line.empty()) continue;
    if (line[0] == '{') {
      PINION_TRY(ReadJsonLine(std::string(line), place, trace));
    } else if (!columns) {
      PINION_ASSIGN(columns, FindColumns(std::string(line), place));
    } else {
      PINION_TRY(ReadCsvLine(std::string(line), *columns, place, trace));
    }
    const size_t n = trace.arrival_s.size();
    if (n > 1 && trace.arrival_s[n - 1] < trace.arrival_s[n - 2])
      return place.Bad("its time is before that of the line above; sort the trace by time");
  }
  if (trace.arrival_s.empty())
    return Fail(ErrorCode::kCorrupt, StrCat(path, " has no request with a prompt and an answer"));
  const double start_s = trace.arrival_s.front();
  for (double& time_s : trace.arrival_s) time_s -= start_s;
  return trace;
}

}  // namespace pinion::harness
