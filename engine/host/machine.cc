// The hwloc adapter: nothing else includes its headers.
#include "engine/host/machine.h"

#include <hwloc.h>
#include <hwloc/cpukinds.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <set>
#include <tuple>

#include "engine/base/file.h"
#include "engine/base/strings.h"

namespace pinion {
namespace {

struct Destroy {
  void operator()(hwloc_topology_t topology) const { hwloc_topology_destroy(topology); }
};
using Topology = std::unique_ptr<hwloc_topology, Destroy>;

// Numbers hwloc objects 0, 1, ... in the order in which they are first seen.
class Numbering {
 public:
  int Of(const void* object) {
    return numbers_.try_emplace(object, static_cast<int>(numbers_.size())).first->second;
  }

 private:
  std::map<const void*, int> numbers_;
};

Result<Topology> NewTopology() {
  hwloc_topology_t raw = nullptr;
  if (hwloc_topology_init(&raw) != 0)
    return Fail(ErrorCode::kFailed, StrCat("hwloc cannot start: ", std::strerror(errno)));
  Topology topology(raw);
  // CPUs and nodes that a cpuset forbids are part of the machine; the budget excludes them.
  hwloc_topology_set_flags(raw, HWLOC_TOPOLOGY_FLAG_INCLUDE_DISALLOWED);
  hwloc_topology_set_io_types_filter(raw, HWLOC_TYPE_FILTER_KEEP_NONE);
  return topology;
}

hwloc_obj_t Ancestor(hwloc_topology_t topology, hwloc_obj_type_t type, hwloc_obj_t object) {
  return hwloc_get_ancestor_obj_by_type(topology, type, object);
}

// Several nodes may hold a CPU if there are nodes of memory alone. hwloc lists one that is attached
// to a whole socket (CXL) behind those inside, and one that is attached to the same CPUs as a DRAM
// node (high-bandwidth memory) behind that: the first one counts as the CPU's own.
hwloc_obj_t NodeOf(hwloc_topology_t topology, hwloc_obj_t pu) {
  hwloc_obj_t node = nullptr;
  while ((node = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_NUMANODE, node)))
    if (hwloc_bitmap_isset(node->cpuset, pu->os_index)) return node;
  return nullptr;
}

void ReadCpus(hwloc_topology_t topology, Machine& machine) {
  Numbering cores, l3s, packages;
  std::map<int, int> seen_of_core;  // hardware threads of each core so far
  hwloc_obj_t pu = nullptr;
  while ((pu = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_PU, pu))) {
    const hwloc_obj_t core = Ancestor(topology, HWLOC_OBJ_CORE, pu);
    const hwloc_obj_t l3 = Ancestor(topology, HWLOC_OBJ_L3CACHE, pu);
    const hwloc_obj_t package = Ancestor(topology, HWLOC_OBJ_PACKAGE, pu);
    const hwloc_obj_t node = NodeOf(topology, pu);
    Cpu cpu{};
    cpu.id = static_cast<int>(pu->os_index);
    cpu.core = cores.Of(core ? core : pu);  // some virtual machines report no cores
    cpu.sibling = seen_of_core[cpu.core]++;
    cpu.l3 = l3s.Of(l3 ? l3 : node);
    cpu.package = packages.Of(package);
    cpu.node = node ? static_cast<int>(node->os_index) : 0;
    if (l3) machine.l3_bytes = std::max(machine.l3_bytes, uint64_t{l3->attr->cache.size});
    machine.cpus.push_back(cpu);
  }
  std::sort(machine.cpus.begin(), machine.cpus.end(),
            [](const Cpu& a, const Cpu& b) { return a.id < b.id; });
}

void ReadNodes(hwloc_topology_t topology, Machine& machine) {
  const hwloc_const_nodeset_t allowed = hwloc_topology_get_allowed_nodeset(topology);
  hwloc_obj_t object = nullptr;
  while ((object = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_NUMANODE, object))) {
    NumaNode node;
    node.id = static_cast<int>(object->os_index);
    node.memory_bytes = object->attr->numanode.local_memory;
    node.memory_allowed = hwloc_bitmap_isset(allowed, object->os_index) != 0;
    for (const Cpu& cpu : machine.cpus)
      if (cpu.node == node.id) node.cpus.push_back(cpu.id);
    machine.nodes.push_back(std::move(node));
  }
  std::sort(machine.nodes.begin(), machine.nodes.end(),
            [](const NumaNode& a, const NumaNode& b) { return a.id < b.id; });
}

std::string InfoOf(const hwloc_info_s* infos, unsigned count, std::string_view name) {
  for (unsigned i = 0; i < count; ++i)
    if (infos[i].name == name) return infos[i].value;
  return "";
}

CpuKind KindOf(const hwloc_info_s* infos, unsigned count, int rank) {
  const std::string type = InfoOf(infos, count, "CoreType");
  const std::string mhz = InfoOf(infos, count, "FrequencyMaxMHz");
  if (type == "IntelCore") return {"performance", false};
  if (type == "IntelAtom") return {"efficiency", true};
  return {mhz.empty() ? StrCat("kind ", rank) : StrCat("up to ", mhz, " MHz"), false};
}

// Kinds that hwloc can rank; one alone is not a kind. If all of several are small, none is left
// out.
void ReadKinds(hwloc_topology_t topology, Machine& machine) {
  const int count = hwloc_cpukinds_get_nr(topology, 0);
  for (int index = 0; count > 1 && index < count; ++index) {
    int efficiency = -1;
    unsigned info_count = 0;
    hwloc_info_s* infos = nullptr;
    const std::unique_ptr<hwloc_bitmap_s, decltype(&hwloc_bitmap_free)> cpus(hwloc_bitmap_alloc(),
                                                                             &hwloc_bitmap_free);
    hwloc_cpukinds_get_info(topology, static_cast<unsigned>(index), cpus.get(), &efficiency,
                            &info_count, &infos, 0);
    if (efficiency < 0) {
      machine.kinds.clear();
      for (Cpu& cpu : machine.cpus) cpu.kind = 0;
      return;
    }
    for (Cpu& cpu : machine.cpus)
      if (hwloc_bitmap_isset(cpus.get(), static_cast<unsigned>(cpu.id))) cpu.kind = index;
    machine.kinds.push_back(KindOf(infos, info_count, index));
  }
  const auto small = [](const CpuKind& kind) { return kind.is_efficiency; };
  if (std::all_of(machine.kinds.begin(), machine.kinds.end(), small))
    for (CpuKind& kind : machine.kinds) kind.is_efficiency = false;
}

// In virtual machines, memory plugged in later may be missing from the node's count; for a single
// node the kernel's total is right.
void CorrectSingleNode(Machine& machine) {
  const long pages = sysconf(_SC_PHYS_PAGES), page_bytes = sysconf(_SC_PAGESIZE);
  if (machine.nodes.size() != 1 || pages <= 0 || page_bytes <= 0) return;
  machine.nodes[0].memory_bytes = static_cast<uint64_t>(pages) * static_cast<uint64_t>(page_bytes);
}

// The CPU model as hwloc reports it, or "".
std::string ModelName(hwloc_topology_t topology) {
  hwloc_obj_t package = hwloc_get_obj_by_type(topology, HWLOC_OBJ_PACKAGE, 0);
  const char* model = package ? hwloc_obj_get_info_by_name(package, "CPUModel") : nullptr;
  return std::string(Trim(model ? model : ""));
}

Result<Machine> Load(hwloc_topology_t topology, const std::string& description) {
  if (hwloc_topology_load(topology) != 0)
    return Fail(ErrorCode::kFailed,
                StrCat("hwloc cannot read ", description.empty() ? "this machine" : description,
                       ": ", std::strerror(errno)));
  Machine machine;
  machine.name = description.empty() ? ModelName(topology) : description;
  if (machine.name.empty()) machine.name = "unknown CPU";
  machine.this_system = hwloc_topology_is_thissystem(topology) != 0;
  ReadCpus(topology, machine);
  ReadNodes(topology, machine);
  ReadKinds(topology, machine);
  if (machine.cpus.empty() || machine.nodes.empty())
    return Fail(ErrorCode::kFailed, StrCat("machine '", machine.name, "' has no CPU or no memory"));
  return machine;
}

// The CPU flags that decide how fast Pinion computes, as /proc/cpuinfo spells them.
std::vector<std::string> IsaFlags() {
  static constexpr std::array kWanted = {
      "avx2",        "fma",         "f16c",        "avx_vnni", "avx512f",  "avx512bw", "avx512vl",
      "avx512_vnni", "avx512_bf16", "avx512_fp16", "amx_tile", "amx_bf16", "amx_int8"};
  const auto text = ReadFile("/proc/cpuinfo");
  const size_t begin = text ? text->find("\nflags") : std::string::npos;
  if (begin == std::string::npos) return {};
  const std::vector<std::string> words =
      Split(text->substr(begin + 1, text->find('\n', begin + 1) - begin - 1), ' ');
  std::vector<std::string> found;
  for (const char* flag : kWanted)
    if (std::find(words.begin(), words.end(), flag) != words.end()) found.emplace_back(flag);
  return found;
}

template <typename Member>
int CountDistinct(const Machine& machine, Member member) {
  std::set<int> values;
  for (const Cpu& cpu : machine.cpus) values.insert(cpu.*member);
  return static_cast<int>(values.size());
}

// "0,96|1,97": the logical CPUs of each core of an L3 domain, for every domain.
Json CoresByL3(const Machine& machine) {
  std::map<int, std::map<int, std::map<int, int>>> domains;  // l3, core, sibling -> id
  for (const Cpu& cpu : machine.cpus) domains[cpu.l3][cpu.core].emplace(cpu.sibling, cpu.id);
  Json list = Json::MakeArray();
  for (const auto& [l3, cores] : domains) {
    std::vector<std::string> texts;
    for (const auto& [core, siblings] : cores) {
      std::vector<int> ids;
      for (const auto& [sibling, id] : siblings) ids.push_back(id);
      texts.push_back(FormatCpuList(ids));
    }
    list.Append(Join(texts, "|"));
  }
  return list;
}

}  // namespace

const Cpu* Machine::Find(int cpu_id) const {
  const auto at = std::lower_bound(cpus.begin(), cpus.end(), cpu_id,
                                   [](const Cpu& cpu, int id) { return cpu.id < id; });
  return at != cpus.end() && at->id == cpu_id ? &*at : nullptr;
}

Result<Machine> ThisMachine() {
  PINION_ASSIGN(const Topology topology, NewTopology());
  const char* imagined = std::getenv("HWLOC_XMLFILE");
  if (!imagined || !*imagined) imagined = std::getenv("HWLOC_SYNTHETIC");
  auto machine = Load(topology.get(), imagined ? imagined : "");
  if (machine && !imagined) CorrectSingleNode(*machine);
  return machine;
}

Result<Machine> ImagineMachine(const std::string& description) {
  PINION_ASSIGN(const Topology topology, NewTopology());
  const bool is_file =
      description.size() > 4 && description.compare(description.size() - 4, 4, ".xml") == 0;
  if (is_file && access(description.c_str(), R_OK) != 0)
    return Fail(ErrorCode::kNotFound,
                StrCat("cannot read machine file '", description, "': ", std::strerror(errno)));
  const int set = is_file ? hwloc_topology_set_xml(topology.get(), description.c_str())
                          : hwloc_topology_set_synthetic(topology.get(), description.c_str());
  if (set != 0)
    return Fail(ErrorCode::kUsage,
                StrCat("machine '", description, "' is not ",
                       is_file ? "an hwloc XML file; write one with `lstopo FILE.xml`"
                               : "a synthetic description such as 'pack:2 numa:1 core:32 pu:2', "
                                 "nor a file that ends in .xml"));
  auto machine = Load(topology.get(), description);
  if (machine) machine->this_system = false;
  return machine;
}

Json MachineFingerprint(const Machine& machine) {
  Json nodes = Json::MakeArray();
  for (const NumaNode& node : machine.nodes) {
    Json item;
    item.Set("id", node.id);
    item.Set("cpus", static_cast<int64_t>(node.cpus.size()));
    item.Set("cpu_list", FormatCpuList(node.cpus));
    item.Set("memory_bytes", node.memory_bytes);
    nodes.Append(std::move(item));
  }
  utsname kernel{};
  const bool real = machine.this_system && uname(&kernel) == 0;
  Json print;
  print.Set("cpu_model", machine.name);
  print.Set("packages", CountDistinct(machine, &Cpu::package));
  print.Set("cores", CountDistinct(machine, &Cpu::core));
  print.Set("cpus", static_cast<int64_t>(machine.cpus.size()));
  print.Set("l3_bytes", machine.l3_bytes);
  print.Set("nodes", std::move(nodes));
  print.Set("cores_by_l3", CoresByL3(machine));
  print.Set("kernel", real ? Json(kernel.release) : Json());
  print.Set("isa_flags", Json(real ? IsaFlags() : std::vector<std::string>{}));
  return print;
}

Json MachineLayout(const Machine& machine) {
  // By node and then by the place of a core, its logical CPUs in the order of siblings.
  std::map<int, std::map<std::tuple<int, int, int>, std::map<int, int>>> cores;
  for (const Cpu& cpu : machine.cpus)
    cores[cpu.node][{cpu.package, cpu.l3, cpu.core}].emplace(cpu.sibling, cpu.id);
  Json nodes = Json::MakeArray();
  for (const NumaNode& node : machine.nodes) {
    Json list = Json::MakeArray();
    for (const auto& [place, cpus] : cores[node.id]) {
      Json ids = Json::MakeArray();
      for (const auto& [sibling, id] : cpus) ids.Append(id);
      list.Append(Json::Object{
          {"package", std::get<0>(place)}, {"l3", std::get<1>(place)}, {"cpus", std::move(ids)}});
    }
    nodes.Append(Json::Object{{"id", node.id},
                              {"memory_bytes", node.memory_bytes},
                              {"memory_allowed", node.memory_allowed},
                              {"cores", std::move(list)}});
  }
  return Json::Object{
      {"name", machine.name}, {"l3_bytes", machine.l3_bytes}, {"nodes", std::move(nodes)}};
}

}  // namespace pinion
