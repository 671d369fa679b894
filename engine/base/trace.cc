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

// One thread's spans. Only that thread writes them; its release store to `count` publishes them to
// End, which may read while the thread goes on recording.
struct Buffer {
  Buffer(size_t capacity, int tid)
      // Not initialised, so that pages without a span take no memory.
      : tid(tid), capacity(capacity), spans(new Span[capacity]) {}
  const int tid;
  const size_t capacity;
  std::string name;  // guarded by the registry's mutex
  std::unique_ptr<Span[]> spans;
  std::atomic<size_t> count{0}, dropped{0};
};

// Buffers outlive their threads, so that End can write the spans of threads that have ended.
struct Registry {
  std::mutex mutex;
  std::vector<std::unique_ptr<Buffer>> buffers;
  size_t spans_per_thread = kSpansPerThread;
  std::string path, process;  // an empty path: not recording, or already written
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

void WarnFull(const Buffer& buffer) {
  LogWarning(StrCat("the trace is full: a thread has recorded ", buffer.capacity,
                    " spans, the limit; later ones are dropped, so trace a shorter run"));
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

Status WriteBuffer(Writer& writer, const Buffer& buffer) {
  const size_t count = buffer.count.load(std::memory_order_acquire);
  std::vector<Span> spans(buffer.spans.get(), buffer.spans.get() + count);
  // Spans are recorded when they end, but the format wants enclosing spans first.
  std::sort(spans.begin(), spans.end(), [](const Span& a, const Span& b) {
    return a.begin_ns != b.begin_ns ? a.begin_ns < b.begin_ns : a.end_ns > b.end_ns;
  });
  if (!buffer.name.empty())
    PINION_TRY(writer.Event(Heading("thread_name", buffer.tid, buffer.name), false));
  for (const Span& span : spans) PINION_TRY(writer.Event(Event(span, buffer.tid), false));
  return {};
}

// With the registry's mutex held.
Status WriteRecording(const Registry& registry, Writer& writer, bool first) {
  PINION_TRY(writer.Event(Heading("process_name", getpid(), registry.process), first));
  size_t dropped = 0;
  for (const auto& buffer : registry.buffers) {
    PINION_TRY(WriteBuffer(writer, *buffer));
    dropped += buffer->dropped.load(std::memory_order_relaxed);
  }
  if (dropped > 0)
    LogWarning(StrCat("the trace lacks ", dropped, " spans beyond the limit of ",
                      registry.spans_per_thread, " per thread"));
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
  Buffer& buffer = OwnBuffer();
  const size_t at = buffer.count.load(std::memory_order_relaxed);
  if (at == buffer.capacity) {
    if (buffer.dropped.fetch_add(1, std::memory_order_relaxed) == 0) WarnFull(buffer);
    return;
  }
  buffer.spans[at] = {name, key, value, begin_ns, NowNs()};
  buffer.count.store(at + 1, std::memory_order_release);
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
