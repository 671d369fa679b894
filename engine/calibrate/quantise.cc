#include "engine/calibrate/quantise.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>
#include <utility>

#include "engine/base/file.h"
#include "engine/base/log.h"
#include "engine/base/strings.h"
#include "engine/calibrate/calibrated_source.h"
#include "engine/checkpoint/checkpoint_writer.h"
#include "engine/checkpoint/config_json.h"
#include "engine/checkpoint/published.h"
#include "engine/checkpoint/rounded_tensor.h"
#include "engine/checkpoint/unread_layers.h"
#include "engine/run/prompts.h"
#include "engine/spec/attention_spec.h"
#include "kernels/kernels.h"

namespace pinion {
namespace {

namespace fs = std::filesystem;

constexpr size_t kWindow = 512;  // tokens of a text that are seen together

Result<QuantScheme> SchemeOf(const QuantiseOptions& options) {
  constexpr std::pair<const char*, const char*> kTargets[] = {
      {"w8a8", "w8a8"}, {"awq-int4", "awq"}, {"gptq-int4", "gptq"}};
  for (const auto& [target, name] : kTargets) {
    if (options.target != target) continue;
    PINION_ASSIGN(QuantScheme scheme, MadeUpScheme(name));
    if (scheme.bits == 4) scheme.group = options.group;
    return scheme;
  }
  return Fail(ErrorCode::kUsage,
              StrCat("--to '", options.target, "' is unknown, want w8a8, awq-int4 or gptq-int4"));
}

Result<ModelFiles> FindPlainModel(const std::string& model) {
  PINION_ASSIGN(ModelFiles files, FindModel(model));
  const auto refuse = [&](const std::string& why) {
    return Fail(ErrorCode::kUsage, StrCat("'", model, "' ", why));
  };
  if (files.gguf)
    return refuse("is a GGUF file; give the folder of the checkpoint that it was converted from");
  if (files.folder.empty())
    return refuse("has made-up weights; 'pinion model make --scheme' writes them quantised");
  if (files.scheme)
    return refuse(StrCat("is quantised already (", Name(files.scheme->method),
                         "); give the checkpoint that it was quantised from"));
  if (!files.spec.wrapper.empty())
    return refuse(StrCat("is a ", files.spec.wrapper,
                         ", of which only the language model could be quantised; give a checkpoint "
                         "of a language model only"));
  if (files.spec.moe.apart)
    return refuse(
        "has experts with norms of their own, which cannot be scaled yet; take a "
        "checkpoint that was published quantised");
  return files;
}

// Whether a file is copied along: everything but the weights that other engines need to load the
// model.
bool BelongsToModel(const fs::directory_entry& entry) {
  if (!entry.is_regular_file()) return false;
  const std::string name = entry.path().filename(), extension = entry.path().extension();
  constexpr const char* kWeights[] = {".safetensors", ".bin",     ".pt", ".pth",
                                      ".gguf",        ".msgpack", ".h5", ".onnx"};
  const bool is_weights =
      std::find(std::begin(kWeights), std::end(kWeights), extension) != std::end(kWeights);
  return !is_weights && name != "config.json" && !name.ends_with(".index.json") &&
         !name.starts_with(".");
}

// The modules behind an embedder's transformer, which have folders of their own. They stay as they
// are: dense layers are small, and nothing averages their errors.
Status CollectModules(const std::string& folder, std::vector<NamedText>& texts) {
  PINION_ASSIGN(const Json modules, ParseConfigFile(folder + "/modules.json"));
  for (const Json& module : modules.array()) {  // FindModel has read them
    const std::string& path = module.Find("path")->string();
    std::error_code none;
    if (path.empty() || module.Find("type")->string().ends_with("Transformer")) continue;
    for (const auto& entry : fs::directory_iterator(StrCat(folder, "/", path), none)) {
      if (!entry.is_regular_file()) continue;
      PINION_ASSIGN(std::string text, ReadFile(entry.path()));
      texts.push_back({StrCat(path, "/", entry.path().filename().string()), std::move(text)});
    }
  }
  return {};
}

Result<std::vector<NamedText>> CollectTexts(const ModelFiles& files, const Json& quantisation) {
  std::vector<NamedText> texts;
  std::error_code failure;
  for (const auto& entry : fs::directory_iterator(files.folder, failure)) {
    if (!BelongsToModel(entry)) continue;
    PINION_ASSIGN(std::string text, ReadFile(entry.path()));
    texts.push_back({entry.path().filename(), std::move(text)});
  }
  if (failure)
    return Fail(ErrorCode::kIo, StrCat("cannot list '", files.folder, "': ", failure.message()));
  if (files.embedder) PINION_TRY(CollectModules(files.folder, texts));
  // GPTQ loaders older than transformers 4.32 read this file instead of config.json.
  if (quantisation.Find("quant_method")->string() == "gptq")
    texts.push_back({"quantize_config.json", quantisation.Dump(2) + "\n"});
  Json config = files.config;
  config.Set("quantization_config", quantisation);
  texts.push_back({"config.json", config.Dump(2) + "\n"});
  return texts;
}

// Rounding clamps: NaN or infinity would become an ordinary weight, and a broken model would look
// whole.
Status CheckFinite(const DecoderSpec& spec, const TensorSource& plain) {
  std::vector<std::byte> scratch;
  for (const std::string& name : RoundedLinears(spec)) {
    PINION_ASSIGN(const TensorInfo info, plain.Find(name));
    const auto rows = static_cast<size_t>(info.shape[0]);
    std::vector<float> values(RowElements(info.shape));
    for (size_t row = 0; row < rows; ++row) {
      kernels::Convert(reinterpret_cast<std::byte*>(values.data()), kernels::Dtype::kF32,
                       plain.Rows(info, row, 1, scratch), info.dtype, values.size());
      const auto odd = std::find_if_not(values.begin(), values.end(),
                                        [](float value) { return std::isfinite(value); });
      if (odd != values.end())
        return Fail(ErrorCode::kCorrupt,
                    StrCat("tensor '", name, "' of ", info.file, " holds ", *odd, " in row ", row,
                           ", want finite weights; fetch the checkpoint again"));
    }
    plain.Release(info, 0, rows);
  }
  return {};
}

// A tokenizer may know more tokens than the model has rows for.
Status CheckIds(const std::vector<int32_t>& ids, int vocabulary) {
  for (const int32_t id : ids)
    if (id >= vocabulary)
      return Fail(ErrorCode::kUsage,
                  StrCat("the calibration text has token ", id,
                         ", outside the model's vocabulary of ", vocabulary, "; leave it out"));
  return {};
}

Result<std::vector<std::vector<int32_t>>> ReadWindows(const QuantiseOptions& options,
                                                      const ModelFiles& files) {
  PINION_ASSIGN(const auto tokenizer, OpenTokenizer(files));
  PINION_ASSIGN(std::vector<Json> lines, ReadPromptFile(options.calibration));
  PINION_ASSIGN(std::vector<Prompt> prompts, EncodePrompts(std::move(lines), tokenizer.get()));
  for (const Prompt& prompt : prompts) {
    PINION_TRY(prompt.error);
    PINION_TRY(CheckIds(prompt.ids, files.spec.vocabulary));
  }
  const size_t window = std::min(kWindow, static_cast<size_t>(files.spec.max_positions));
  std::vector<std::vector<int32_t>> windows;
  size_t left = options.tokens;
  for (const Prompt& prompt : prompts)
    for (size_t at = 0; at < prompt.ids.size() && left > 0; at += window) {
      const size_t count = std::min({window, prompt.ids.size() - at, left});
      const auto begin = prompt.ids.begin() + static_cast<ptrdiff_t>(at);
      windows.emplace_back(begin, begin + static_cast<ptrdiff_t>(count));
      left -= count;
    }
  if (windows.empty())
    return Fail(ErrorCode::kUsage,
                StrCat("'", options.calibration, "' holds no text to calibrate with"));
  return windows;
}

Result<StartedModel> StartForCalibration(const QuantiseOptions& options, const ModelFiles& files) {
  EngineOptions engine = options.engine;
  engine.model = options.model;
  engine.device = "cpu";  // its teams compute between the steps, too
  engine.max_num_seqs = 1;
  engine.max_model_len = std::min(static_cast<int>(kWindow), files.spec.max_positions);
  engine.max_num_batched_tokens = *engine.max_model_len;
  return StartModel(engine);
}

Status QuantiseWithCalibration(const QuantiseOptions& options, const ModelFiles& files,
                               std::unique_ptr<TensorSource> plain, const QuantScheme& scheme,
                               const std::vector<NamedText>& texts) {
  PINION_ASSIGN(auto windows, ReadWindows(options, files));
  PINION_ASSIGN(StartedModel model, StartForCalibration(options, files));
  Calibration calibration(model, std::move(windows), scheme.method == QuantMethod::kGptq);
  const CalibratedSource source(std::move(plain), model, scheme, calibration);
  return WriteModelFolder(files.spec, source, scheme, texts, options.folder);
}

}  // namespace

Status Quantise(const QuantiseOptions& options) {
  PINION_ASSIGN(const QuantScheme scheme, SchemeOf(options));
  PINION_ASSIGN(const ModelFiles files, FindPlainModel(options.model));
  PINION_TRY(CheckHoldsNoModel(options.folder));
  if (!options.calibration.empty() && RecurrentLayers(files.spec) > 0)
    return Fail(ErrorCode::kUsage,
                StrCat("'", options.model,
                       "' has recurrent layers, which no calibration covers; leave out "
                       "--calibration to round to the nearest number"));
  if (!options.calibration.empty() && !files.spec.has_head())
    return Fail(ErrorCode::kUsage,
                StrCat("'", options.model, "' (", files.spec.architecture,
                       ") gives embeddings or scores, and calibration covers models that generate "
                       "only; leave out --calibration to round to the nearest number"));
  PINION_ASSIGN(const auto texts,
                CollectTexts(files, PublishedConfig(scheme, PlainLinears(files.spec))));
  PINION_ASSIGN(auto plain, OpenWeights(files));
  if (const auto unread = UnreadLayers(files, *plain)) LogWarning(*unread);
  PINION_TRY(CheckFinite(files.spec, *plain));
  if (!options.calibration.empty())
    return QuantiseWithCalibration(options, files, std::move(plain), scheme, texts);
  PINION_ASSIGN(const auto source, RoundLinears(std::move(plain), files.spec, scheme));
  return WriteModelFolder(files.spec, *source, scheme, texts, options.folder);
}

}  // namespace pinion
