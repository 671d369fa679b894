#include "harness/cli/gate_flags.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <string_view>

#include "engine/base/file.h"
#include "engine/base/json.h"
#include "engine/base/strings.h"

namespace pinion::harness {
namespace {

constexpr const char* kGate = "Access";

// vLLM's flags take JSON lists; plain names with commas between them are taken, too. A list that is
// not given leaves the default in place.
Status ReadNames(const std::vector<std::string>& given, const char* flag,
                 std::vector<std::string>& names) {
  if (!given.empty()) names.clear();
  for (const std::string& text : given) {
    if (!text.starts_with('[')) {
      for (const std::string& name : Split(text, ','))
        if (!Trim(name).empty()) names.emplace_back(Trim(name));
      continue;
    }
    auto list = Json::Parse(text);
    if (!list) return Fail(ErrorCode::kUsage, StrCat(flag, " ", text, ": ", list.error().message));
    for (const Json& name : list->array()) {
      if (!name.is_string())
        return Fail(ErrorCode::kUsage,
                    StrCat(flag, " holds ", name.type_name(), ", want a list of strings"));
      names.push_back(name.string());
    }
  }
  return {};
}

// As browsers write it: in small letters, without a path. Any other would never be met.
Status CheckOrigins(std::vector<std::string>& origins) {
  for (std::string& origin : origins) {
    for (char& c : origin) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    const size_t host = origin.find("://");
    const bool is_origin = host != origin.npos && host > 0 && host + 3 < origin.size() &&
                           origin.find('/', host + 3) == origin.npos;
    if (!is_origin && origin != "*" && origin != "null")
      return Fail(ErrorCode::kUsage,
                  StrCat("--allowed-origins holds '", origin,
                         "', want SCHEME://HOST or SCHEME://HOST:PORT without a path, or '*'"));
  }
  return {};
}

Status CheckHosts(const std::vector<std::string>& hosts) {
  for (const std::string& host : hosts)
    if (host.find('/') != host.npos)
      return Fail(ErrorCode::kUsage, StrCat("--allowed-hosts holds '", host,
                                            "', want a name or an address, such as example.org"));
  return {};
}

// A key that no client could send in a header would lock everybody out.
Status CheckKey(std::string_view key, const std::string& where) {
  if (key.empty() || Trim(key) != key)
    return Fail(ErrorCode::kUsage, StrCat(where, " is empty or has spaces around it"));
  if (!std::all_of(key.begin(), key.end(), [](char c) { return c >= ' ' && c <= '~'; }))
    return Fail(ErrorCode::kUsage, StrCat(where, " holds a character that is not printable ASCII"));
  return {};
}

// One key a line.
Status ReadKeyFile(const std::string& path, std::vector<std::string>& keys) {
  const auto text = ReadFile(path, 1 << 20);
  if (!text) return Fail(ErrorCode::kUsage, StrCat("--api-key-file: ", text.error().message));
  constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";  // some editors begin a file with it
  std::string_view lines = *text;
  if (lines.starts_with(kByteOrderMark)) lines.remove_prefix(kByteOrderMark.size());
  const size_t before = keys.size();
  int number = 0;
  for (const std::string& line : Split(lines, '\n')) {
    ++number;
    const std::string_view key = Trim(line);
    if (key.empty()) continue;
    PINION_TRY(CheckKey(key, StrCat("--api-key-file ", path, ": line ", number)));
    keys.emplace_back(key);
  }
  if (keys.size() == before)
    return Fail(ErrorCode::kUsage,
                StrCat("--api-key-file ", path, " holds no key, want one a line"));
  return {};
}

// A variable that is set but blank was meant to hold a key.
Status ReadKeyVariable(std::vector<std::string>& keys) {
  const char* value = std::getenv("VLLM_API_KEY");
  if (!keys.empty() || !value || *value == '\0') return {};
  PINION_TRY(CheckKey(Trim(value), "VLLM_API_KEY"));
  keys.emplace_back(Trim(value));
  return {};
}

// A flag that may be given several times, with one value each: further words are not its own.
CLI::Option* AddRepeated(CLI::App& command, const std::string& flag,
                         std::vector<std::string>& values, const std::string& help) {
  return command.add_option(flag, values, help)->allow_extra_args(false)->group(kGate);
}

}  // namespace

void GateFlags::AddTo(CLI::App& command, HttpRules& rules) {
  AddRepeated(command, "--api-key", rules.api_keys,
              "key that clients must send as 'Authorization: Bearer KEY'; may be repeated "
              "(environment: VLLM_API_KEY)");
  command
      .add_option("--api-key-file", api_key_file_,
                  "file of such keys, one a line: unlike --api-key, not shown by ps")
      ->group(kGate);
  AddRepeated(command, "--allowed-hosts", allowed_hosts_,
              "names under which clients may reach the server, besides those of this machine; '*' "
              "for any");
  AddRepeated(command, "--allowed-origins", allowed_origins_,
              "web pages that may use the server, such as https://example.org; '*' for any "
              "(default: none)");
  AddRepeated(command, "--allowed-methods", allowed_methods_,
              "methods that those pages may use (default: any)");
  AddRepeated(command, "--allowed-headers", allowed_headers_,
              "headers that those pages may send (default: any)");
  command
      .add_flag("--allow-credentials", rules.allow_credentials,
                "those pages may send cookies and passwords")
      ->group(kGate);
}

Status GateFlags::Resolve(HttpRules& rules) const {
  PINION_TRY(ReadNames(allowed_hosts_, "--allowed-hosts", rules.allowed_hosts));
  PINION_TRY(ReadNames(allowed_origins_, "--allowed-origins", rules.allowed_origins));
  PINION_TRY(ReadNames(allowed_methods_, "--allowed-methods", rules.allowed_methods));
  PINION_TRY(ReadNames(allowed_headers_, "--allowed-headers", rules.allowed_headers));
  PINION_TRY(CheckOrigins(rules.allowed_origins));
  PINION_TRY(CheckHosts(rules.allowed_hosts));
  for (const std::string& key : rules.api_keys) PINION_TRY(CheckKey(key, "--api-key"));
  if (!api_key_file_.empty()) PINION_TRY(ReadKeyFile(api_key_file_, rules.api_keys));
  PINION_TRY(ReadKeyVariable(rules.api_keys));
  return {};
}

}  // namespace pinion::harness
