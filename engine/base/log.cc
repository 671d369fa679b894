#include "engine/base/log.h"

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <cstdlib>
#include <iterator>
#include <memory>
#include <optional>
#include <string_view>

namespace pinion {
namespace {

spdlog::level::level_enum Translate(LogLevel level) {
  static constexpr spdlog::level::level_enum kLevels[] = {spdlog::level::info, spdlog::level::warn,
                                                          spdlog::level::err, spdlog::level::off};
  return kLevels[static_cast<int>(level)];
}

// spdlog's own from_str treats every unknown name as "off".
std::optional<spdlog::level::level_enum> LevelOf(std::string_view name) {
  static constexpr std::string_view kNames[] = {"info", "warning", "error", "off"};
  for (size_t i = 0; i < std::size(kNames); ++i)
    if (name == kNames[i]) return Translate(static_cast<LogLevel>(i));
  return std::nullopt;
}

std::shared_ptr<spdlog::logger> MakeLogger() {
  auto logger = std::make_shared<spdlog::logger>(
      "pinion", std::make_shared<spdlog::sinks::stderr_color_sink_mt>());
  logger->set_pattern("%H:%M:%S.%e %L %v");
  const char* wanted = std::getenv("PINION_LOG");
  const auto level = LevelOf(wanted && *wanted ? wanted : "info");
  logger->set_level(level.value_or(spdlog::level::info));
  if (!level)
    logger->warn("PINION_LOG '{}' is not a level; use info, warning, error or off", wanted);
  return logger;
}

spdlog::logger& Logger() {
  static const std::shared_ptr<spdlog::logger> logger = MakeLogger();
  return *logger;
}

}  // namespace

void Log(LogLevel level, std::string_view text) {
  Logger().log(Translate(level), spdlog::string_view_t(text.data(), text.size()));
}

void SetLogLevel(LogLevel level) { Logger().set_level(Translate(level)); }

}  // namespace pinion
