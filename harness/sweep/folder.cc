#include "harness/sweep/folder.h"

#include <fcntl.h>
#include <sys/file.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "engine/base/strings.h"

namespace pinion::harness {

Result<SweepFolder> SweepFolder::Hold(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path + "/logs", error);
  if (error) return Fail(ErrorCode::kIo, StrCat("cannot create ", path, ": ", error.message()));
  // The kernel releases the lock when the process ends, even by a crash.
  Descriptor lock(open((path + "/lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
  if (!lock.is_open())
    return Fail(ErrorCode::kIo, StrCat("cannot write into ", path, ": ", std::strerror(errno)));
  if (flock(lock.get(), LOCK_EX | LOCK_NB) != 0)
    return Fail(ErrorCode::kUsage, StrCat("another sweep is running in ", path,
                                          "; wait for it or choose another --out"));
  return SweepFolder(path, std::move(lock));
}

bool HoldsSweep(const std::string& folder) {
  std::error_code ignored;
  return std::filesystem::exists(folder + "/results.db", ignored);
}

std::string BlockFolder(const std::string& folder, int number) {
  return number == 1 ? folder : StrCat(folder, "-", number);
}

}  // namespace pinion::harness
