#include "engine/base/log.h"

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <cstdlib>
#include <memory>
#include <string>

namespace pinion {
namespace {

spdlog::level::level_enum Translate(LogLevel level) {
  static constexpr spdlog::level::level_enum kLevels[] = {
      spdlog::level::debug, spdlog::level::info, spdlog::level::warn, spdlog::level::err,
      spdlog::level::off};
  return kLevels[static_cast<int>(level)];
}

std::shared_ptr<spdlog::logger> MakeLogger() {
  auto logger = std::make_shared<spdlog::logger>(
      "pinion", std::make_shared<spdlog::sinks::stderr_color_sink_mt>());
  logger->set_pattern("%H:%M:%S.%e %L %v");
  const char* wanted = std::getenv("PINION_LOG");
  logger->set_level(wanted ? spdlog::level::from_str(wanted) : spdlog::level::info);
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
