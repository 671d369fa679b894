#include "engine/host/topology_xml.h"

#include <hwloc.h>

#include <cerrno>
#include <cstring>

#include "engine/base/strings.h"

namespace pinion {

Result<std::string> TopologyXml() {
  hwloc_topology_t topology = nullptr;
  if (hwloc_topology_init(&topology) != 0)
    return Fail(ErrorCode::kFailed, StrCat("hwloc cannot start: ", std::strerror(errno)));
  hwloc_topology_set_flags(topology, HWLOC_TOPOLOGY_FLAG_INCLUDE_DISALLOWED);
  hwloc_topology_set_io_types_filter(topology, HWLOC_TYPE_FILTER_KEEP_NONE);
  char* text = nullptr;
  int length = 0;
  const bool exported = hwloc_topology_load(topology) == 0 &&
                        hwloc_topology_export_xmlbuffer(topology, &text, &length, 0) == 0;
  std::string xml = exported ? std::string(text) : "";
  if (exported) hwloc_free_xmlbuffer(topology, text);
  hwloc_topology_destroy(topology);
  if (!exported) return Fail(ErrorCode::kFailed, "hwloc cannot write this machine's topology");
  return xml;
}

}  // namespace pinion
