#pragma once

#include <string_view>

namespace pinion {

enum class LogLevel { kInfo, kWarning, kError, kOff };

// One line on standard error: "12:34:56.789 I text". Standard output belongs to results.
// Thread-safe. The level is kInfo unless the environment's PINION_LOG (info, warning, error, off)
// or SetLogLevel says otherwise.
void Log(LogLevel level, std::string_view text);
void SetLogLevel(LogLevel level);

inline void LogInfo(std::string_view text) { Log(LogLevel::kInfo, text); }
inline void LogWarning(std::string_view text) { Log(LogLevel::kWarning, text); }
inline void LogError(std::string_view text) { Log(LogLevel::kError, text); }

}  // namespace pinion
