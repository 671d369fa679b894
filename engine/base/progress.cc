#include "engine/base/progress.h"

#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <functional>
#include <new>
#include <string>

#include "engine/base/strings.h"

namespace pinion::progress {

using internal::Counts;

Result<MemoryFile> MakeCounts() {
  PINION_ASSIGN(MemoryFile file, MemoryFile::Make("progress"));
  PINION_TRY(file.Write(std::string(sizeof(Counts), '\0')));
  return file;
}

uint64_t ReadCounts(const MemoryFile& counts) {
  // Text copies the counts while they change: any change is one, even a torn one.
  const auto text = counts.Text(2 * sizeof(Counts));
  return text ? std::hash<std::string>()(*text) : 0;
}

Status CountIn(int fd) {
  struct stat info;
  if (fstat(fd, &info) != 0 || info.st_size < static_cast<off_t>(sizeof(Counts)))
    return Fail(ErrorCode::kUsage,
                StrCat("descriptor ", fd, " is not a progress file of at least ", sizeof(Counts),
                       " bytes: only `pinion serve` starts this process"));
  void* page = mmap(nullptr, sizeof(Counts), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (page == MAP_FAILED)
    return Fail(ErrorCode::kIo, StrCat("cannot count progress: ", std::strerror(errno)));
  internal::counts.store(new (page) Counts, std::memory_order_relaxed);
  return {};
}

}  // namespace pinion::progress
