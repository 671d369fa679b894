// The facts about a model from its files, and from the server's options.

#include <utility>

#include "engine/checkpoint/model.h"
#include "engine/checkpoint/tokenizer_end.h"
#include "engine/serve/options.h"
#include "engine/serve/served_model.h"

namespace pinion {

Result<ServedModel> ServedModelOf(ModelFiles& files, const ServeOptions& options) {
  PINION_ASSIGN(const ModelTask task, ApplyTask(options.engine.task, files));
  ServedModel model;
  model.root = options.engine.model;
  model.name = model.root;
  if (const auto& names = options.served_model_names; !names.empty()) {
    model.name = names.front();
    model.aliases.assign(names.begin() + 1, names.end());
  }
  model.pooling = FactsOf(files, task);
  model.vocabulary = static_cast<size_t>(files.spec.vocabulary);
  model.eos_ids = files.spec.eos_ids;
  model.template_kwargs = options.template_kwargs;
  PINION_ASSIGN(model.defaults,
                ReadApiDefaults(
                    options.generation_config ? options.generation_config : files.generation_config,
                    options.generation_overrides));
  if (const auto& config = options.generation_config; config && !config->object().empty()) {
    // As in vLLM the file has those of the model's own, whose config.json and tokenizer still
    // count.
    PINION_ASSIGN(DecoderSpec spec, ReadSpec(files.config));
    PINION_TRY(JoinEosIds(*config, spec));
    PINION_TRY(JoinTokenizerEnd(files.folder, spec));
    model.defaults.params.eos_ids = std::move(spec.eos_ids);
  }
  return model;
}

}  // namespace pinion
