#include "harness/sweep/engine_files.h"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "engine/base/strings.h"
#include "harness/sweep/provenance.h"

namespace pinion::harness {
namespace {

Json HashOf(const std::string& path) {
  const Json hashed = ModelFilesJson(path);
  return hashed.is_null() ? Json() : *hashed.Find("hash");
}

// As exec finds it; the name itself if no folder of PATH has it.
std::string InPath(const std::string& program) {
  const char* folders = std::getenv("PATH");
  if (program.find('/') != std::string::npos || !folders) return program;
  for (const std::string& folder : Split(folders, ':')) {
    std::string path = StrCat(folder.empty() ? "." : folder, "/", program);
    if (access(path.c_str(), X_OK) == 0) return path;
  }
  return program;
}

std::vector<std::string> WordsOf(const EngineChoice& engine) {
  return engine.command.empty() ? RowOf(engine.kind).program : engine.command;
}

Json ProgramHash(const std::vector<std::string>& words) {
  std::string hashes = HashOf(InPath(words.front())).Dump();
  for (size_t i = 1; i < words.size(); ++i) {
    std::error_code none;
    if (std::filesystem::is_regular_file(words[i], none)) hashes += HashOf(words[i]).Dump();
  }
  return hashes;
}

}  // namespace

Json EngineFiles(const Definition& definition) {
  Json engines = Json::MakeObject();
  for (const EngineChoice& engine : definition.engines) {
    Json files = Json::MakeObject();
    if (!engine.binary.empty()) files.Set("binary", HashOf(engine.binary));
    if (!engine.model.empty()) files.Set("model", HashOf(engine.model));
    if (const auto words = WordsOf(engine); !words.empty())
      files.Set("program", ProgramHash(words));
    engines.Set(engine.name, std::move(files));
  }
  return engines;
}

}  // namespace pinion::harness
