#include "engine/base/trace.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <mutex>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/base/descriptor.h"
#include "engine/base/json.h"
#include "engine/base/log.h"
#include "engine/base/strings.h"

namespace pinion::trace {
namespace {

struct Span {
  const char *name, *key;
  int64_t value, begin_ns, end_ns;
};

template <typename T>
void Publish(T& field, T value) {
  std::atomic_ref(field).store(value, std::memory_order_release);
}
template <typename T>
T Read(T& field) {
  return std::atomic_ref(field).load(std::memory_order_acquire);
}

// A ring of one thread's spans: span i is in slot i modulo their number. Only that thread writes;
// End may read meanwhile, and discards what was overwritten under its hands. All fields are stored
// with release, which puts them after the thread's last store to the count: a reader of a field of
// span n then finds the count to be n or more.
class Buffer {
 public:
  Buffer(size_t capacity, int tid)
      // Not initialised, so that pages without a span take no memory.
      : tid(tid), slots_(capacity + 1), spans_(new Span[slots_]) {}

  void Add(const Span& span) {
    Span& slot = spans_[slot_];
    Publish(slot.name, span.name);
    Publish(slot.key, span.key);
    Publish(slot.value, span.value);
    Publish(slot.begin_ns, span.begin_ns);
    Publish(slot.end_ns, span.end_ns);
    if (++slot_ == slots_) slot_ = 0;
    count_.fetch_add(1, std::memory_order_release);
  }

  // A new recording: events that are here already belong to an older one.
  void StartWindow() { window_ = count_.load(std::memory_order_acquire); }

  struct Copy {
    std::vector<Span> spans;
    size_t lost = 0;
  };
  // The spans of this recording; the oldest may be lost.
  Copy Take() {
    const size_t end = count_.load(std::memory_order_acquire);
    const size_t first = std::max(window_, Oldest(end));
    Copy copy;
    copy.spans.reserve(end - first);
    for (size_t i = first; i < end; ++i) {
      Span& slot = spans_[i % slots_];
      copy.spans.push_back({Read(slot.name), Read(slot.key), Read(slot.value), Read(slot.begin_ns),
                            Read(slot.end_ns)});
    }
    const size_t now = count_.load(std::memory_order_acquire);
    const size_t intact = std::min(end, std::max(first, Oldest(now)));
    copy.spans.erase(copy.spans.begin(),
                     copy.spans.begin() + static_cast<ptrdiff_t>(intact - first));
    copy.lost = intact - window_;
    return copy;
  }

  const int tid;
  std::string name;  // guarded by the registry's mutex

 private:
  // The first span that is whole while span `now` is being written.
  size_t Oldest(size_t now) const { return now < slots_ ? 0 : now - slots_ + 1; }

  const size_t slots_;  // one more than are kept: the next span's
  const std::unique_ptr<Span[]> spans_;
  size_t slot_ = 0;    // of the next span; the thread's own
  size_t window_ = 0;  // guarded by the registry's mutex
  std::atomic<size_t> count_{0};
};

// Buffers outlive their threads, so that End can write the spans of threads that have ended.
struct Registry {
  std::mutex mutex;
  std::vector<std::unique_ptr<Buffer>> buffers;
  size_t spans_per_thread = kSpansPerThread;
  std::string path, process;  // an empty path: not recording, or already written
  int64_t begin_ns = 0;
};

Registry& TheRegistry() {
  static auto* registry = new Registry;  // never destroyed: threads may record until the very end
  return *registry;
}

thread_local Buffer* own_buffer = nullptr;

Buffer& OwnBuffer() {
  if (own_buffer) return *own_buffer;
  Registry& registry = TheRegistry();
  const std::lock_guard lock(registry.mutex);
  registry.buffers.push_back(std::make_unique<Buffer>(registry.spans_per_thread, gettid()));
  own_buffer = registry.buffers.back().get();
  return *own_buffer;
}

constexpr std::string_view kHead = "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n";
constexpr std::string_view kTail = "\n]}\n";

tl::unexpected<Error> FileError(const char* doing, const std::string& path) {
  return Fail(ErrorCode::kIo,
              StrCat("cannot ", doing, " the trace '", path, "': ", std::strerror(errno)));
}

// Writes text to a file in large pieces.
class Writer {
 public:
  explicit Writer(int fd, std::string path) : fd_(fd), path_(std::move(path)) {}

  Status Event(std::string_view text, bool first) {
    if (!first) pending_ += ",\n";
    pending_ += text;
    return pending_.size() < kChunkBytes ? Status{} : Flush();
  }
  void Add(std::string_view text) { pending_ += text; }
  Status Flush() {
    if (!WriteAll(fd_, pending_)) return FileError("write", path_);
    pending_.clear();
    return {};
  }

 private:
  static constexpr size_t kChunkBytes = size_t{1} << 20;
  const int fd_;
  const std::string path_;
  std::string pending_;
};

// {"name":"process_name",...}: the heading of a process's or thread's rows.
std::string Heading(const char* what, int tid, const std::string& name) {
  return StrCat("{\"name\":\"", what, "\",\"ph\":\"M\",\"pid\":", getpid(), ",\"tid\":", tid,
                ",\"args\":{\"name\":", Json(name).Dump(), "}}");
}

// Chrome counts in microseconds. Names and keys are literals of ours: nothing to escape.
std::string Event(const Span& span, int tid) {
  const auto ns = [](int64_t value) { return static_cast<int>(value % 1000); };
  const auto us = [](int64_t value) { return static_cast<long long>(value / 1000); };
  const int64_t length = span.end_ns - span.begin_ns;
  char text[256];
  int used = std::snprintf(
      text, sizeof text,
      R"({"name":"%s","ph":"X","ts":%lld.%03d,"dur":%lld.%03d,"pid":%d,"tid":%d)", span.name,
      us(span.begin_ns), ns(span.begin_ns), us(length), ns(length), getpid(), tid);
  if (span.key)
    used += std::snprintf(text + used, sizeof text - static_cast<size_t>(used),
                          R"(,"args":{"%s":%lld})", span.key, static_cast<long long>(span.value));
  return std::string(text, static_cast<size_t>(used)) + "}";
}

// Returns the number of spans that are lost.
Result<size_t> WriteBuffer(Writer& writer, Buffer& buffer, int64_t begin_ns) {
  auto [spans, lost] = buffer.Take();
  // Begun during an earlier recording.
  std::erase_if(spans, [&](const Span& span) { return span.begin_ns < begin_ns; });
  // Spans are recorded when they end, but the format wants enclosing spans first.
  std::sort(spans.begin(), spans.end(), [](const Span& a, const Span& b) {
    return a.begin_ns != b.begin_ns ? a.begin_ns < b.begin_ns : a.end_ns > b.end_ns;
  });
  if (!buffer.name.empty())
    PINION_TRY(writer.Event(Heading("thread_name", buffer.tid, buffer.name), false));
  for (const Span& span : spans) PINION_TRY(writer.Event(Event(span, buffer.tid), false));
  return lost;
}

// With the registry's mutex held.
Status WriteRecording(const Registry& registry, Writer& writer, bool first) {
  PINION_TRY(writer.Event(Heading("process_name", getpid(), registry.process), first));
  size_t all_lost = 0;
  for (const auto& buffer : registry.buffers) {
    PINION_ASSIGN(const size_t lost, WriteBuffer(writer, *buffer, registry.begin_ns));
    all_lost += lost;
  }
  if (all_lost > 0)
    LogWarning(StrCat("the trace has the newest ", registry.spans_per_thread, " spans per thread; ",
                      all_lost, " older ones are lost"));
  writer.Add(kTail);
  return writer.Flush();
}

// Removes the closing brackets of an existing trace, so that more events can follow. True: there
// were events.
Result<bool> Reopen(int fd, const std::string& path) {
  struct stat info;
  if (fstat(fd, &info) != 0) return FileError("read", path);
  if (info.st_size == 0) return false;
  const auto end = static_cast<off_t>(info.st_size - static_cast<off_t>(kTail.size()));
  char tail[kTail.size()];
  if (end < 0 || pread(fd, tail, sizeof tail, end) != static_cast<ssize_t>(sizeof tail) ||
      std::string_view(tail, sizeof tail) != kTail)
    return Fail(ErrorCode::kIo,
                StrCat("the trace '", path, "' was changed by another program during recording"));
  if (ftruncate(fd, end) != 0 || lseek(fd, end, SEEK_SET) != end) return FileError("write", path);
  return true;
}

}  // namespace

namespace internal {

void Record(const char* name, const char* key, int64_t value, int64_t begin_ns) {
  OwnBuffer().Add({name, key, value, begin_ns, NowNs()});
}

}  // namespace internal

Status Begin(const std::string& path, const std::string& process, size_t spans_per_thread) {
  struct stat info;
  if (stat(path.c_str(), &info) == 0 && !S_ISREG(info.st_mode))
    return Fail(ErrorCode::kIo, StrCat("cannot make the trace '", path,
                                       "': it is not a regular file; name a new one"));
  if (!Descriptor(open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644)).is_open())
    return FileError("make", path);
  Join(path, process, spans_per_thread);
  return {};
}

void Join(const std::string& path, const std::string& process, size_t spans_per_thread) {
  Registry& registry = TheRegistry();
  const std::lock_guard lock(registry.mutex);
  registry.path = path;
  registry.process = process;
  registry.spans_per_thread = spans_per_thread;
  registry.begin_ns = NowNs();
  for (const auto& buffer : registry.buffers) buffer->StartWindow();
  internal::recording.store(true, std::memory_order_release);
}

Status End() {
  Registry& registry = TheRegistry();
  const std::lock_guard lock(registry.mutex);
  internal::recording.store(false, std::memory_order_relaxed);
  if (registry.path.empty()) return {};
  const std::string path = std::exchange(registry.path, "");
  const Descriptor file(open(path.c_str(), O_RDWR | O_CLOEXEC));
  if (!file.is_open()) return FileError("open", path);
  PINION_ASSIGN(const bool continued, Reopen(file.get(), path));
  Writer writer(file.get(), path);
  if (!continued) writer.Add(kHead);
  return WriteRecording(registry, writer, !continued);
}

void NameThread(const std::string& name) {
  Buffer& buffer = OwnBuffer();
  const std::lock_guard lock(TheRegistry().mutex);
  if (buffer.name.empty()) buffer.name = name;
}

}  // namespace pinion::trace
