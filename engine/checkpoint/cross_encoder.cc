#include "engine/checkpoint/cross_encoder.h"

#include <sys/stat.h>

#include <string_view>
#include <utility>

#include "engine/base/json.h"
#include "engine/base/strings.h"
#include "engine/checkpoint/config_json.h"

namespace pinion {
namespace {

// The parsed file; null if it does not exist.
Result<Json> ParseIfThere(const std::string& path) {
  struct stat info;
  if (stat(path.c_str(), &info) != 0) return Json();
  return ParseConfigFile(path);
}

// The folder's own description; null if it is of no cross-encoder.
Result<Json> ReadDescription(const std::string& folder) {
  PINION_ASSIGN(Json config, ParseIfThere(folder + "/config_sentence_transformers.json"));
  const Json* type = config.Find("model_type");
  if (!type || *type != Json("CrossEncoder")) return Json();
  return config;
}

// "sentence_transformers.cross_encoder.modules.logit_score.LogitScore" -> "LogitScore".
Result<std::string> KindOf(const Json& module) {
  PINION_ASSIGN(const std::string type, Require<std::string>(module, "type"));
  return type.substr(type.rfind('.') + 1);
}

Result<Json::Array> ReadModules(const std::string& folder) {
  PINION_ASSIGN(const Json modules, ParseIfThere(folder + "/modules.json"));
  return modules.is_array() ? modules.array() : Json::Array{};
}

}  // namespace

Result<bool> IsCrossEncoder(const std::string& folder) {
  PINION_ASSIGN(const Json description, ReadDescription(folder));
  if (description.is_null()) return false;
  PINION_ASSIGN(const Json::Array modules, ReadModules(folder));
  for (const Json& module : modules) {
    PINION_ASSIGN(const std::string kind, KindOf(module));
    if (kind != "Transformer" && kind != "LogitScore")
      return Fail(ErrorCode::kUnsupported,
                  StrCat(folder, "/modules.json: a cross-encoder has a module '",
                         kind.substr(0, 80), "', want Transformer, or LogitScore behind it"));
  }
  return true;
}

Result<std::string> CrossEncoderActivation(const std::string& folder) {
  PINION_ASSIGN(const Json description, ReadDescription(folder));
  if (description.is_null()) return std::string();
  return Optional<std::string>(description, "activation_fn", "");
}

Status CheckLogitScore(const std::string& folder, int64_t yes, int64_t no) {
  PINION_ASSIGN(const Json description, ReadDescription(folder));
  if (description.is_null()) return {};
  PINION_ASSIGN(const Json::Array modules, ReadModules(folder));
  for (const Json& module : modules) {
    PINION_ASSIGN(const std::string kind, KindOf(module));
    if (kind != "LogitScore") continue;
    PINION_ASSIGN(const std::string path, Require<std::string>(module, "path"));
    if (path.find("..") != std::string::npos || path.starts_with("/"))
      return Fail(ErrorCode::kCorrupt, StrCat(folder, "/modules.json: 'path' is '",
                                              path.substr(0, 80), "', want a folder of the model"));
    const std::string file = StrCat(folder, "/", path, "/config.json");
    PINION_ASSIGN(const Json config, ParseConfigFile(file));
    PINION_ASSIGN(const int64_t is_true, Require<int64_t>(config, "true_token_id"));
    PINION_ASSIGN(const int64_t is_false, Require<int64_t>(config, "false_token_id"));
    if (is_true != yes || is_false != no)
      return Fail(ErrorCode::kUnsupported,
                  StrCat(file, ": it scores by the tokens ", is_true, " and ", is_false,
                         ", want those of 'yes' and 'no', ", yes, " and ", no));
  }
  return {};
}

}  // namespace pinion
