#include "engine/weights/shared_weights.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "engine/base/progress.h"
#include "engine/base/strings.h"

namespace pinion {
namespace {

constexpr useconds_t kPollMicros = 5000;

// At the file's beginning, written when all the rest is complete.
struct Header {
  std::array<char, 8> magic = {};
  uint64_t file_bytes = 0;
  std::array<char, 112> identity = {};  // cut off, if it is longer

  bool operator==(const Header&) const = default;
};
constexpr std::array<char, 8> kMagic = {'p', 'a', 'c', 'k', 'e', 'd', '1', '\0'};

Header HeaderOf(const std::string& identity, uint64_t file_bytes) {
  Header header{kMagic, file_bytes, {}};
  std::memcpy(header.identity.data(), identity.data(),
              std::min(identity.size(), header.identity.size()));
  return header;
}

tl::unexpected<Error> CannotShare(const char* doing) {
  return Fail(errno == ENOMEM || errno == ENOSPC ? ErrorCode::kExhausted : ErrorCode::kIo,
              StrCat("cannot ", doing, " the file of shared weights: ", std::strerror(errno),
                     "; start with --share-weights off"));
}

// A lock of the process's own: it goes with the process, however that ends.
bool SetLock(int fd, short type) {
  struct flock lock = {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  return fcntl(fd, F_SETLK, &lock) == 0;
}

// Waiting is progress: the process that packs shows by its own that it lives.
bool TakeLock(int fd) {
  while (!SetLock(fd, F_WRLCK)) {
    if (errno != EAGAIN && errno != EACCES && errno != EINTR) return false;
    progress::Advance();
    usleep(kPollMicros);
  }
  return true;
}

// More than RLIMIT_FSIZE would end the process by SIGXFSZ.
bool AllowsFile(uint64_t bytes) {
  rlimit most = {};
  return getrlimit(RLIMIT_FSIZE, &most) != 0 || most.rlim_cur >= bytes;
}

}  // namespace

void SharedWeights::Clear(const MemoryFile& file) {
  [[maybe_unused]] const int ignored = ftruncate(file.fd(), 0);
}

uint64_t SharedWeights::ResidentBytes(int fd) {
  struct stat status = {};
  constexpr uint64_t kUnit = 512;  // of st_blocks, whatever the file system
  return fstat(fd, &status) == 0 ? static_cast<uint64_t>(status.st_blocks) * kUnit : 0;
}

SharedWeights::SharedWeights(int fd, const Layout& layout)
    : fd_(fd), identity_(layout.identity), bytes_(layout.bytes) {
  uint64_t end = kHugePageBytes;  // after the header
  for (const uint64_t bytes : bytes_) {
    offsets_.push_back(end);
    end += (bytes + kHugePageBytes - 1) / kHugePageBytes * kHugePageBytes;
  }
  offsets_.push_back(end);
}

SharedWeights::SharedWeights(SharedWeights&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)),
      packs_(other.packs_),
      identity_(std::move(other.identity_)),
      bytes_(std::move(other.bytes_)),
      offsets_(std::move(other.offsets_)) {}

SharedWeights::~SharedWeights() {
  if (fd_ >= 0 && packs_) SetLock(fd_, F_UNLCK);
}

Result<SharedWeights> SharedWeights::Join(int fd, const Layout& layout) {
  SharedWeights shared(fd, layout);
  if (!TakeLock(fd)) return CannotShare("lock");
  shared.packs_ = true;  // so that the lock is given back
  Header found;
  if (pread(fd, &found, sizeof found, 0) != sizeof found) found = {};
  if (found.magic != kMagic) {
    PINION_TRY(shared.Prepare());
    return shared;
  }
  SetLock(fd, F_UNLCK);
  shared.packs_ = false;
  if (found == HeaderOf(layout.identity, shared.file_bytes())) return shared;
  return Fail(ErrorCode::kUnsupported,
              StrCat("the shared copy was packed from another checkpoint or with other options (",
                     FormatBytes(found.file_bytes), "; this engine needs ",
                     FormatBytes(shared.file_bytes()),
                     "); restart the server if the checkpoint has changed"));
}

// Throws away what a process that died had packed: its pages may lie elsewhere.
Status SharedWeights::Prepare() const {
  if (!AllowsFile(file_bytes())) {
    errno = EFBIG;
    return CannotShare("extend");
  }
  if (ftruncate(fd_, 0) != 0 || ftruncate(fd_, static_cast<off_t>(file_bytes())) != 0)
    return CannotShare("extend");
  return {};
}

Result<Pages> SharedWeights::Map(size_t rank, const MemoryPolicy& policy) const {
  const auto access = packs_ ? Pages::Access::kWrite : Pages::Access::kRead;
  return Pages::Map(fd_, offsets_.at(rank), bytes_.at(rank), access, policy);
}

Status SharedWeights::Finish() {
  if (!packs_) return {};
  const Header header = HeaderOf(identity_, file_bytes());
  if (pwrite(fd_, &header, sizeof header, 0) != sizeof header) return CannotShare("complete");
  SetLock(fd_, F_UNLCK);
  packs_ = false;
  return {};
}

}  // namespace pinion
