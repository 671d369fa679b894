#pragma once

namespace pinion {

// "1.2.3": the version of `project()` in the top CMakeLists.txt, its one place. `--version`, the
// server's /version and a sweep's results all say this.
const char* Version();

}  // namespace pinion
