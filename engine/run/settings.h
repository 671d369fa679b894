#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/base/json.h"
#include "engine/base/result.h"
#include "engine/host/runtime_choice.h"
#include "engine/run/options.h"

// The registry of settings: one row a setting. Flags, environment, JSON forms, sweep axes, the
// guard on outputs, schemas, CSV columns, launch commands and the table in docs/settings.md are
// made from it, so that a new setting is a row here and the place that it acts in.

namespace pinion {

// The choices of `launch`: one server with engines of equal options, each in a process of its own.
struct Configuration {
  EngineOptions options;
  RuntimeChoice runtime = {};  // of each process
  int replicas = 1;            // engines behind the server's front end
  int prefill_replicas = 0;    // of them, those that compute the others' prompts
};

// kSeed: 64 bits without a sign, in JSON as a signed integer of the same bits.
enum class SettingKind { kText, kInteger, kSeed, kGib, kSwitch };

// Another engine's counterpart of a setting.
struct Counterpart {
  // Its flag, or several with the same value ("-b,-ub"), or its environment variable; for a setting
  // that the CPU lists or processes carry, a note in brackets. "": none.
  std::string name;
  // Values by ours; empty: all, as they are. One that is missing has no counterpart.
  std::vector<std::pair<std::string, std::string>> values = {};
  bool always = false;  // also written at our default, because the other engine's differs
};

struct SettingAccess {
  // Of the kind's JSON type (kGib: a number); null: unset.
  std::function<Json(const Configuration&)> get;
  std::function<void(const Json&, Configuration&)> set;
};

struct SettingRow {
  std::string key;               // "max_num_seqs", also in JSON
  const char* flag = "";         // "--max-num-seqs", or "--on,!--off"; "": none
  const char* environment = "";  // "": none
  const char* help = "";   // what it is, without the names of its values, default and environment
  const char* usual = "";  // the default in words: "auto", "the model's"
  SettingKind kind = SettingKind::kText;
  SettingAccess access;
  std::vector<std::string> names = {};    // kText: the allowed values; empty: any text
  std::vector<std::string> aliases = {};  // further spellings of them
  int64_t least = 0, most = std::numeric_limits<int>::max(), multiple = 1;  // kInteger
  bool can_be_unset = false;
  bool changes_outputs = false;  // a model's answers, not only its speed
  bool is_placement = false;     // its effect is in the plan of CPUs
  bool varies = true;            // may be an axis of a sweep
  bool is_of_server = false;     // its flag is one of `serve`, not of an engine
  Counterpart vllm = {}, llama_cpp = {};

  Json get(const Configuration& of) const { return access.get(of); }
  void set(const Json& value, Configuration& of) const { access.set(value, of); }
  // "--tensor-parallel-size", or the key of a setting without a flag: its name in errors.
  std::string name() const;
  bool is_of_engine() const;  // part of EngineOptions
};

// All rows, in the order in which candidates are labelled and tables are written. Never changes.
const std::vector<SettingRow>& SettingRows();
const SettingRow* FindSetting(std::string_view key);
std::string SettingKeys();  // joined by ", "

// The number of GiB with the fewest digits that is these bytes: 0.02, not 0.019999999552965164.
double GibOf(uint64_t bytes);

// A JSON value as the row's kind; numbers may be text only for kGib ("512MiB"). Null stays null for
// settings that can be unset. Errors (kUsage) begin with `what`.
Result<Json> ReadSetting(const SettingRow& row, const Json& value, const std::string& what);
// The same from a flag, a variable or a label.
Result<Json> ParseSetting(const SettingRow& row, const std::string& text, const std::string& what);
// As a user would type it; "" if unset.
std::string SettingText(const Json& value);
// Whether a value of the row's kind is allowed; the error (kUsage) begins with `what`.
Status CheckSetting(const SettingRow& row, const Json& value, const std::string& what);

// The other engine's value in the place of `value`; nullopt: there is none.
std::optional<std::string> CounterpartValue(const Counterpart& counterpart, const Json& value);

// Help text: the names of its values, its meaning, the default and the variable.
std::string SettingHelp(const SettingRow& row);
// JSON schema of a value, of an object of settings, and of an object of lists of values.
Json SettingSchema(const SettingRow& row);
Json SettingsSchema();
Json AxesSchema();
// The table of docs/settings.md.
std::string SettingsTable();

}  // namespace pinion
