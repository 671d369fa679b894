// The helper's side: an embedded Python that renders one template at a time. pybind11 and Python
// are used here only.

#include <pybind11/embed.h>
#include <sys/resource.h>

#include <cstdio>
#include <string>

#include "engine/text/chat.h"
#include "engine/text/frames.h"

namespace pinion {

extern const char* const kChatHelperSource;

namespace {

namespace py = pybind11;

constexpr int kRequests = 3, kAnswers = 4;
constexpr rlim_t kMaxDataBytes = rlim_t{1} << 30;
// Below what a thread's stack of 8 MiB holds, so that deep recursion is a Python error.
constexpr int kRecursionLimit = 1000;

// Limits private writable memory only: read-only mappings of libraries do not depend on the
// template.
void LimitMemory() {
#ifndef __SANITIZE_ADDRESS__  // its shadow memory alone takes terabytes
  const rlimit limit{kMaxDataBytes, kMaxDataBytes};
  setrlimit(RLIMIT_DATA, &limit);
#endif
  const rlimit no_core{0, 0};
  setrlimit(RLIMIT_CORE, &no_core);
}

// Starts the system's Python, whatever PATH, the environment or a virtual environment name.
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

int Serve() {
  py::module_ module = py::module_::import("types").attr("ModuleType")("chat_helper");
  py::exec(kChatHelperSource, module.attr("__dict__"));
  py::module_::import("sys").attr("setrecursionlimit")(kRecursionLimit);
  const py::object handle = module.attr("handle");
  if (!WriteFrame(kAnswers, "{}", 0)) return 1;
  for (;;) {
    auto request = ReadFrame(kRequests, 0);
    if (!request) return 0;  // the engine is gone
    const auto answer = handle(py::str(*request)).cast<std::string>();
    if (!WriteFrame(kAnswers, answer, 0)) return 1;
  }
}

}  // namespace

int RunChatHelper() {
  LimitMemory();
  const PyStatus status = StartPython();
  if (PyStatus_Exception(status)) {
    std::fprintf(stderr, "pinion: the chat helper cannot start Python: %s\n",
                 status.err_msg ? status.err_msg : "unknown reason");
    return 1;
  }
  try {
    return Serve();
  } catch (const std::exception& failure) {
    std::fprintf(stderr, "pinion: the chat helper failed: %s\n", failure.what());
    return 1;
  }
}

}  // namespace pinion
