#include "engine/serve/served_model.h"

#include <algorithm>

#include "engine/base/strings.h"

namespace pinion {

bool ServedModel::IsCalled(std::string_view asked) const {
  return asked == name || std::find(aliases.begin(), aliases.end(), asked) != aliases.end();
}

ApiError UnknownModel(const std::string& asked, const ServedModel& served) {
  std::string names = StrCat("'", served.name, "'");
  for (const std::string& alias : served.aliases) names += StrCat(", '", alias, "'");
  return {404,
          StrCat("the model '", asked.substr(0, 200), "' does not exist; this server has ", names),
          "model", "model_not_found"};
}

}  // namespace pinion
