#include "harness/cli/engine_flags.h"

#include <utility>

#include "harness/cli/vllm_flags.h"

namespace pinion::harness {
void EngineFlags::AddTo(CLI::App& command) {
  CLI::Option* model = command.add_option(
      "MODEL", model_,
      "a folder, a .gguf file, preset:NAME, or org/name in the Hugging Face cache");
  command.add_option("--model", model_, "the same as MODEL, in vLLM's form")
      ->excludes(model)
      ->group("Engine");
  needs_model_ = true;
  AddFlagsTo(command);
}

void EngineFlags::AddServersTo(CLI::App& command) {
  for (const SettingRow& row : SettingRows())
    if (row.is_of_server) AddSetting(command, row);
}

void EngineFlags::AddSetting(CLI::App& command, const SettingRow& row) {
  const std::string key = row.key;
  CLI::Option* option = nullptr;
  if (std::string_view(row.flag).find('!') != std::string_view::npos) {
    option = command.add_flag_function(
        row.flag, [this, key](int64_t count) { texts_[key] = count > 0 ? "1" : "0"; });
  } else {
    option = command.add_option_function<std::string>(
        row.flag, [this, key](const std::string& text) { texts_[key] = text; });
    const bool is_number = row.kind == SettingKind::kInteger || row.kind == SettingKind::kSeed;
    option->type_name(is_number ? "INT" : "TEXT");
  }
  option->description(SettingHelp(row))->group("Engine");
}

void EngineFlags::AddFlagsTo(CLI::App& command) {
  for (const SettingRow& row : SettingRows())
    if (row.is_of_engine()) AddSetting(command, row);
  RefuseGpuFlags(command);
}

void EngineFlags::AddSomeTo(CLI::App& command, const std::vector<std::string>& keys) {
  needs_valid_ = false;
  for (const std::string& key : keys) AddSetting(command, *FindSetting(key));
}

Result<EngineOptions> EngineFlags::Resolve(EngineOptions base) const {
  PINION_ASSIGN(Configuration all, ResolveAll(std::move(base)));
  return std::move(all.options);
}

Result<Configuration> EngineFlags::ResolveAll(EngineOptions options) const {
  PINION_TRY(ReadEnvironment(options));
  if (needs_model_ && model_.empty() && options.model.empty())
    return Fail(ErrorCode::kUsage,
                "MODEL is missing: give a folder, a .gguf file, preset:NAME, or org/name in the "
                "Hugging Face cache");
  if (!model_.empty()) options.model = model_;
  Configuration all{std::move(options)};
  for (const auto& [key, text] : texts_) {
    const SettingRow& row = *FindSetting(key);
    PINION_ASSIGN(const Json value, ParseSetting(row, text, row.name()));
    PINION_TRY(CheckSetting(row, value, row.name()));
    row.set(value, all);
  }
  if (needs_valid_) PINION_TRY(Validate(all.options));
  return all;
}

}  // namespace pinion::harness
