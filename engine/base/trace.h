#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

#include "engine/base/clock.h"
#include "engine/base/result.h"

namespace pinion {

// Records what each thread does and when, as Chrome trace events (chrome://tracing,
// https://ui.perfetto.dev). Off until Begin or Join; until then a span costs one load.
//
// The newest spans of each thread are kept in a ring, and only End formats them. Times come from
// CLOCK_MONOTONIC, so the processes of one machine share a time line.
// Thread rule: any thread may call anything; End may run while others still record.
namespace trace {

// 40 bytes each, 20 MiB a thread, touched as it fills: the last 1,000 or so steps of a model of 32
// layers.
inline constexpr size_t kSpansPerThread = size_t{1} << 19;

// Makes an empty file at `path` and starts recording; `process` is the heading of this process's
// rows. Errors: the file cannot be made or is not a regular one. Of a thread that records more
// than `spans_per_thread` the oldest spans are lost, with a warning at the end; a thread keeps the
// limit of the recording in which it first took part. After End another recording may begin; one
// that begins before takes the place of the last.
Status Begin(const std::string& path, const std::string& process,
             size_t spans_per_thread = kSpansPerThread);
// The same for a process that adds to the file of another's Begin; their Ends must not overlap.
void Join(const std::string& path, const std::string& process,
          size_t spans_per_thread = kSpansPerThread);

// Ends the recording and adds it to the file, which then holds one JSON object. Does nothing if
// there is no recording.
Status End();

// Sets the heading of the calling thread's row; only the first call counts.
void NameThread(const std::string& name);

namespace internal {
inline std::atomic<bool> recording{false};
void Record(const char* name, const char* key, int64_t value, int64_t begin_ns);
}  // namespace internal

inline bool on() { return internal::recording.load(std::memory_order_relaxed); }

}  // namespace trace

// Records one span of the calling thread, from construction to destruction. `name` and `key` (of
// `value`; null: none) are literals, or live as long as the process.
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
