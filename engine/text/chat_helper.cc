// The helper's side: an embedded Python that renders one template at a time.

#include <pybind11/embed.h>

#include <cstdio>
#include <string>

#include "engine/text/chat.h"
#include "engine/text/embedded_python.h"
#include "engine/text/frames.h"

namespace pinion {

extern const char* const kChatHelperSource;

namespace {

namespace py = pybind11;

constexpr uint64_t kMaxDataBytes = uint64_t{1} << 30;
// Below what a thread's stack of 8 MiB holds, so that deep recursion is a Python error.
constexpr int kRecursionLimit = 1000;

int Serve() {
  py::module_ module = py::module_::import("types").attr("ModuleType")("chat_helper");
  py::exec(kChatHelperSource, module.attr("__dict__"));
  py::module_::import("sys").attr("setrecursionlimit")(kRecursionLimit);
  const py::object handle = module.attr("handle");
  if (!WriteFrame(kHelperAnswers, "{}", 0)) return 1;
  for (;;) {
    auto request = ReadFrame(kHelperRequests, 0);
    if (!request) return 0;  // the engine is gone
    const auto answer = handle(py::str(*request)).cast<std::string>();
    if (!WriteFrame(kHelperAnswers, answer, 0)) return 1;
  }
}

}  // namespace

int RunChatHelper() {
  if (!StartEmbeddedPython("chat helper", kMaxDataBytes)) return 1;
  try {
    return Serve();
  } catch (const std::exception& failure) {
    std::fprintf(stderr, "pinion: the chat helper failed: %s\n", failure.what());
    return 1;
  }
}

}  // namespace pinion
