#include "engine/host/runtime.h"

#include <link.h>

#include <initializer_list>
#include <string_view>

namespace pinion {
namespace {

// Called for each library in the order of symbol look-up: keeps the first whose name contains one
// of `wanted`, because that is the one in effect.
void Note(std::string_view name, std::initializer_list<std::string_view> wanted,
          std::string& found) {
  if (!found.empty()) return;
  for (const std::string_view part : wanted)
    if (name.find(part) != name.npos) found = name;
}

int Look(dl_phdr_info* info, size_t, void* data) {
  auto& runtime = *static_cast<Runtime*>(data);
  std::string_view name = info->dlpi_name;
  name.remove_prefix(name.rfind('/') + 1);  // npos + 1 is 0
  Note(name, {"tcmalloc", "jemalloc", "mimalloc", "tbbmalloc", "hoard"}, runtime.allocator);
  Note(name, {"libgomp", "libomp", "libiomp"}, runtime.openmp);
  return 0;
}

}  // namespace

Runtime LoadedRuntime() {
  Runtime runtime;
  dl_iterate_phdr(Look, &runtime);
  if (runtime.allocator.empty()) runtime.allocator = "glibc";
  if (runtime.openmp.empty()) runtime.openmp = "none";
  return runtime;
}

}  // namespace pinion
