#pragma once

#include <string>
#include <vector>

namespace pinion::harness {

// A sweep on several nodes, as asked for.
struct FleetRequest {
  std::string model;
  std::vector<std::string> arguments;  // of `pinion sweep`, without those of the fleet and --out
  std::string out;                     // folder of the nodes' folders and of the gathered sweep
  int nodes = 0;
  // Of Slurm's nodes, whose folders have these names; empty: folders are numbered.
  std::vector<std::string> names;
  std::string definition;  // Kubernetes: the content of --def, which `arguments` lack; or empty
};

std::string NodeFolder(const FleetRequest& request, int node);

// Words of a command line without these options and their values: {"--nodes", 1} is an option with
// one value ("--nodes 3", "--nodes=3"), {"--manifest", 0} a flag.
struct OptionWords {
  const char* name;
  int values;
};
std::vector<std::string> WithoutOptions(const std::vector<std::string>& words,
                                        const std::vector<OptionWords>& options);

// {"sweep", MODEL, ..., "--out", NodeFolder, "--continue"}: begins the node's sweep, or continues
// it.
std::vector<std::string> NodeArguments(const FleetRequest& request, int node);

}  // namespace pinion::harness
