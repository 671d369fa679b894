#include "harness/fleet/node_sweep.h"

#include <algorithm>

#include "engine/base/strings.h"

namespace pinion::harness {

std::string NodeFolder(const FleetRequest& request, int node) {
  const auto index = static_cast<size_t>(node);
  return StrCat(request.out, "/",
                index < request.names.size() ? request.names[index] : StrCat("node-", node));
}

std::vector<std::string> WithoutOptions(const std::vector<std::string>& words,
                                        const std::vector<OptionWords>& options) {
  std::vector<std::string> left;
  for (size_t i = 0; i < words.size(); ++i) {
    const std::string name = words[i].substr(0, words[i].find('='));
    const auto found = std::find_if(options.begin(), options.end(),
                                    [&](const OptionWords& one) { return name == one.name; });
    if (found == options.end())
      left.push_back(words[i]);
    else if (name == words[i])
      i += static_cast<size_t>(found->values);
  }
  return left;
}

std::vector<std::string> NodeArguments(const FleetRequest& request, int node) {
  std::vector<std::string> arguments = request.arguments;
  for (const std::string& word :
       {std::string("--out"), NodeFolder(request, node), std::string("--continue")})
    arguments.push_back(word);
  return arguments;
}

}  // namespace pinion::harness
