#pragma once

#include <cstdint>

namespace pinion {

// The descriptors of a helper process that is an embedded Python: of requests and of answers.
inline constexpr int kHelperRequests = 3, kHelperAnswers = 4;

// Makes this process the system's Python, whatever PATH, the environment or a virtual environment
// name, with at most so much private writable memory and no core dumps. False, with a line on
// standard error that names `what`, if Python does not start. Once per process.
bool StartEmbeddedPython(const char* what, uint64_t max_data_bytes);

}  // namespace pinion
