// Writes the outputs of made-up sweeps for the browser tests: planted_pages KIND FOLDER, where KIND
// is usual, many (500 configurations), failed or single.

#include <cstdio>
#include <filesystem>
#include <string>

#include "harness/report/write.h"
#include "planted.h"

int main(int argc, char** argv) {
  using namespace pinion::harness;
  const std::string kind = argc == 3 ? argv[1] : "";
  const Results results = kind == "many"     ? ManyResults(500)
                          : kind == "failed" ? FailedResults()
                          : kind == "single" ? SingleResult()
                                             : PlantedResults();
  if (argc != 3) return 2;
  std::filesystem::create_directories(argv[2]);
  const auto written = WriteOutputs(results, argv[2]);
  if (!written) std::fprintf(stderr, "%s\n", written.error().message.c_str());
  return written ? 0 : 1;
}
