#include "engine/text/embedded_python.h"

#include <pybind11/embed.h>
#include <sys/resource.h>

#include <cstdio>

namespace pinion {
namespace {

// Limits private writable memory only: read-only mappings of libraries do not depend on what the
// helper is asked.
void LimitMemory(uint64_t max_data_bytes) {
#ifndef __SANITIZE_ADDRESS__  // its shadow memory alone takes terabytes
  const rlimit limit{max_data_bytes, max_data_bytes};
  setrlimit(RLIMIT_DATA, &limit);
#endif
  const rlimit no_core{0, 0};
  setrlimit(RLIMIT_CORE, &no_core);
}

PyStatus StartPython() {
  PyConfig config;
  PyConfig_InitIsolatedConfig(&config);
  config.write_bytecode = 0;
  PyStatus status = PyConfig_SetString(&config, &config.executable, L"/usr/bin/python3");
  if (!PyStatus_Exception(status))
    status = PyConfig_SetString(&config, &config.program_name, L"/usr/bin/python3");
  if (!PyStatus_Exception(status)) status = Py_InitializeFromConfig(&config);
  PyConfig_Clear(&config);
  return status;
}

}  // namespace

bool StartEmbeddedPython(const char* what, uint64_t max_data_bytes) {
  LimitMemory(max_data_bytes);
  const PyStatus status = StartPython();
  if (!PyStatus_Exception(status)) return true;
  std::fprintf(stderr, "pinion: the %s cannot start Python: %s\n", what,
               status.err_msg ? status.err_msg : "unknown reason");
  return false;
}

}  // namespace pinion
