#include "harness/cli/trace_flag.h"

#include "engine/base/strings.h"
#include "engine/base/trace.h"

namespace pinion::harness {

void AddTraceFlag(CLI::App& command, std::string& path) {
  command.add_option("--trace", path,
                     StrCat("file for a timeline of every thread, to open in chrome://tracing or "
                            "ui.perfetto.dev; the newest ",
                            trace::kSpansPerThread, " spans per thread"));
}

}  // namespace pinion::harness
