#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

#include "engine/base/clock.h"
#include "engine/base/result.h"

namespace pinion {

// The recording of a process: what every thread did when, as Chrome's trace events
// (chrome://tracing, https://ui.perfetto.dev). Off until Begin or Join; a span costs one load then.
//
// Spans are kept in a buffer per thread, up to a limit, and become text in End alone. Times are
// CLOCK_MONOTONIC's, so the processes of one machine share a time line.
// Thread rule: all of it from any thread; End while others still record, too.
namespace trace {

// 40 bytes each, 20 MiB a thread, touched as they fill: some 1,000 steps of a model of 32 layers.
inline constexpr size_t kSpansPerThread = size_t{1} << 19;

// Makes an empty file at `path` and begins to record; `process` is the heading of this one's rows.
// Errors: a file that cannot be made, or is no regular one. Of a thread that has recorded
// `spans_per_thread`, later spans are dropped, with a warning. At most one Begin or Join a process.
Status Begin(const std::string& path, const std::string& process,
             size_t spans_per_thread = kSpansPerThread);
// The same for a process that adds to the file of another one's Begin; they must take turns to End.
void Join(const std::string& path, const std::string& process,
          size_t spans_per_thread = kSpansPerThread);

// Ends the recording and adds it to the file, which then holds one JSON object. Does nothing where
// none was begun, or it has ended.
Status End();

// How the calling thread's row is headed; the first name stays.
void NameThread(const std::string& name);

namespace internal {
inline std::atomic<bool> recording{false};
void Record(const char* name, const char* key, int64_t value, int64_t begin_ns);
}  // namespace internal

inline bool on() { return internal::recording.load(std::memory_order_relaxed); }

}  // namespace trace

// From construction to destruction: one span of the calling thread, within whatever spans enclose
// it. `name` and `key` (of `value`; null: none) are literals, or live until End.
class TraceSpan {
 public:
  explicit TraceSpan(const char* name, const char* key = nullptr, int64_t value = 0)
      : name_(name), key_(key), value_(value), begin_ns_(trace::on() ? NowNs() : kOff) {}
  explicit TraceSpan(const char* name, const char* key, size_t value)
      : TraceSpan(name, key, static_cast<int64_t>(value)) {}
  ~TraceSpan() {
    if (begin_ns_ != kOff) trace::internal::Record(name_, key_, value_, begin_ns_);
  }
  TraceSpan(const TraceSpan&) = delete;
  TraceSpan& operator=(const TraceSpan&) = delete;

 private:
  static constexpr int64_t kOff = -1;
  const char* const name_;
  const char* const key_;
  const int64_t value_, begin_ns_;
};

}  // namespace pinion
