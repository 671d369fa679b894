#include "engine/serve/page_cache.h"

#include <fcntl.h>

#include <system_error>
#include <vector>

#include "engine/base/descriptor.h"
#include "engine/base/trace.h"

namespace pinion {

void DropFromPageCache(const std::filesystem::path& path) {
  const TraceSpan span("drop from page cache");
  std::vector<std::filesystem::path> files = {path};
  std::error_code ignored;  // `path` may be a file
  for (const auto& entry : std::filesystem::directory_iterator(path, ignored))
    files.push_back(entry.path());
  for (const auto& name : files) {
    const Descriptor file(open(name.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    if (file.is_open()) posix_fadvise(file.get(), 0, 0, POSIX_FADV_DONTNEED);
  }
}

}  // namespace pinion
