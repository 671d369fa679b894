#pragma once

#include <optional>
#include <set>
#include <vector>

#include "harness/profile/profile.h"

namespace pinion::harness {

// CPUs and nodes of the plan of a profile, on the machine that it was measured on. Parts that the
// profile lacks, or that cannot be read, are empty.
struct Placement {
  struct Node {
    int id = 0;
    std::set<int> cpus;
    double memory_bytes = 0;
    bool is_used = false;
  };
  using Core = std::set<int>;  // its hardware threads

  bool is_pinned = false;   // threads stay on CPUs of their own
  std::set<int> cpus;       // of ranks and front end; those of the sweep if there is no plan
  std::vector<Node> nodes;  // those with CPUs
  std::vector<std::vector<Core>> caches;  // cores by L3 domain

  int used_nodes() const;
  int used_caches() const;
  // A core that computes nothing, for the system: the first of a node that is not used, else the
  // first. nullopt: all compute, or the cores are not known.
  std::optional<Core> IdleCore() const;
};

Placement PlacementOf(const Profile& profile);

}  // namespace pinion::harness
