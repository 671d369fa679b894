// The helper's side: an embedded Python that follows grammars. It starts with the first request, so
// that a helper that no one needs is a small process.

#include <pybind11/embed.h>

#include <cstdio>
#include <string>

#include "engine/base/json.h"
#include "engine/text/embedded_python.h"
#include "engine/text/frames.h"
#include "engine/text/grammar.h"

namespace pinion {

extern const char* const kGrammarHelperSource;
extern const char* const kStructuralTagsSource;

namespace {

namespace py = pybind11;

// A large tokenizer takes some hundreds of MiB, each grammar up to a hundred.
constexpr uint64_t kMaxGrammarBytes = uint64_t{4} << 30;

// Makes a module that others may import.
py::object MakeModule(const char* name, const char* source) {
  py::object module = py::module_::import("types").attr("ModuleType")(name);
  py::exec(source, module.attr("__dict__"));
  py::module_::import("sys").attr("modules")[name] = module;
  return module;
}

int Serve(std::string request, const std::string& packages) {
  py::module_::import("sys").attr("path").attr("insert")(0, packages);
  MakeModule("structural_tags", kStructuralTagsSource);
  const py::object module = MakeModule("grammar_helper", kGrammarHelperSource);
  const py::object handle = module.attr("Helper")().attr("handle");
  for (;;) {
    const auto answer = handle(py::str(request)).cast<std::string>();
    if (!WriteFrame(kHelperAnswers, answer, 0)) return 1;
    auto next = ReadFrame(kHelperRequests, 0);
    if (!next) return 0;  // the one who asks is gone
    request = std::move(*next);
  }
}

}  // namespace

int RunGrammarHelper() {
  auto request = ReadFrame(kHelperRequests, 0);
  if (!request) return 0;
  const auto first = Json::Parse(*request);
  const Json* packages = first ? first->Find("packages") : nullptr;
  if (!packages || !packages->is_string()) return 1;
  if (!StartEmbeddedPython("grammar helper", kMaxGrammarBytes)) return 1;
  try {
    return Serve(std::move(*request), packages->string());
  } catch (const std::exception& failure) {
    std::fprintf(stderr, "pinion: the grammar helper failed: %s\n", failure.what());
    return 1;
  }
}

}  // namespace pinion
