// Writes the outputs of made-up sweeps for the browser tests: planted_pages KIND FOLDER.

#include <cstdio>
#include <filesystem>
#include <functional>
#include <map>
#include <string>

#include "harness/report/write.h"
#include "planted.h"

int main(int argc, char** argv) {
  using namespace pinion::harness;
  const std::map<std::string, std::function<Results()>> kinds = {
      {"usual", [] { return PlantedResults(); }},
      {"many", [] { return ManyResults(500); }},
      {"two dozen", [] { return ManyResults(24); }},
      {"even", NoDifferenceResults},
      {"long", LongNamesResults},
      {"best", DefaultsBestResults},
      {"mixed", MixedResults},
      {"midway", MidwayResults},
      {"failed", FailedResults},
      {"single", SingleResult}};
  const auto kind = kinds.find(argc == 3 ? argv[1] : "");
  if (kind == kinds.end()) return 2;
  std::filesystem::create_directories(argv[2]);
  const auto written = WriteOutputs(kind->second(), argv[2]);
  if (!written) std::fprintf(stderr, "%s\n", written.error().message.c_str());
  return written ? 0 : 1;
}
