#include "engine/run/prefill_role.h"

#include <algorithm>
#include <utility>

#include "engine/base/log.h"
#include "engine/base/strings.h"
#include "engine/base/version.h"
#include "engine/run/config_agreement.h"
#include "engine/run/join_processes.h"
#include "engine/run/prefill_service.h"
#include "engine/run/remote_prefill.h"
#include "engine/run/start.h"

namespace pinion {
namespace {

using Role = PrefillOptions::Role;

// Keys and values must come through the prefix cache, whole, from a model in one process.
Status CheckCanTransfer(const StartedModel& model) {
  const std::string flag = StrCat("--role ", Name(model.options.prefill.role));
  if (model.info.task != ModelTask::kGenerate)
    return Fail(ErrorCode::kUsage, StrCat(flag, " is for models that generate, and this one is to ",
                                          Name(model.info.task), " texts"));
  if (!model.options.prefix_caching)
    return Fail(
        ErrorCode::kUsage,
        StrCat(flag,
               " hands keys and values over by way of the prefix cache, which is off; leave "
               "out --no-enable-prefix-caching, or give the states of recurrent layers more "
               "room with --kv-cache-space"));
  if (!model.executor->image_bytes().blocks.empty()) return {};
  if (model.info.processes > 1)
    return Fail(ErrorCode::kUnsupported, StrCat(flag, " needs the whole model in one process, and ",
                                                model.info.processes, " compute it together"));
  return Fail(
      ErrorCode::kUnsupported,
      StrCat(flag, " is not possible with --device ", model.options.device,
             ", which cannot hand over keys and values; leave it out, or use --device cpu"));
}

// Of the model's ropes, as far as they depend on it.
std::string LengthsOfRopes(const DecoderSpec& spec, size_t longest) {
  std::string lengths = "any";
  for (const RopeSpec& rope : spec.ropes) {
    const std::string same = SameFrequencies(rope, static_cast<int>(longest));
    if (same != "any") lengths = lengths == "any" ? same : StrCat(lengths, " and ", same);
  }
  return lengths;
}

// Of each table.
std::string BytesOfBlocks(const ImageBytes& bytes) {
  std::string text;
  for (const size_t of_table : bytes.blocks) text += StrCat(text.empty() ? "" : " ", of_table);
  return text;
}

Result<MakePrefillRole> StartService(const StartedModel& model, const std::vector<int>& cpus) {
  PINION_ASSIGN(const Address listen,
                ParseAddress(model.options.prefill.listen, "--prefill-listen"));
  PINION_ASSIGN(std::shared_ptr<PrefillServer> server,
                PrefillServer::Start({.listen = listen,
                                      .facts = FactsOfTransfer(model),
                                      .most_tokens = model.info.max_model_len,
                                      .cpus = cpus}));
  LogInfo(StrCat("computes prompts for the engines that ask at ", server->address().Text()));
  return [server](PrefillRole::Parts parts) -> std::unique_ptr<PrefillRole> {
    return std::make_unique<PrefillService>(std::move(parts), server);
  };
}

Result<MakePrefillRole> StartRemote(const StartedModel& model, const std::vector<int>& cpus) {
  PrefillClient::Options options;
  options.facts = FactsOfTransfer(model);
  options.cpus = cpus;
  for (const std::string& from : model.options.prefill.from) {
    PINION_ASSIGN(Address address, ParseAddress(from, "--prefill-from"));
    options.from.push_back(std::move(address));
  }
  const ImageBytes bytes = model.executor->image_bytes();
  options.block_bytes = *std::max_element(bytes.blocks.begin(), bytes.blocks.end());
  options.state_bytes = bytes.state;
  const auto most = static_cast<size_t>(model.options.max_num_seqs);
  std::shared_ptr<PrefillClient> client = PrefillClient::Start(std::move(options));
  return [client, most](PrefillRole::Parts parts) -> std::unique_ptr<PrefillRole> {
    return std::make_unique<RemotePrefill>(std::move(parts), client, most);
  };
}

}  // namespace

Facts FactsOfTransfer(const StartedModel& model) {
  const EngineInfo& info = model.info;
  return {
      {"Pinion", Version()},
      {"the model", StrCat(model.files.spec.architecture, " with weights ", model.weights_hash)},
      {"config.json", HashOf(ConfigOf(model.files).Dump())},
      {"the type of weights", info.dtype},
      {"--activations", model.options.activations},
      {"--kv-cache-dtype", kernels::Name(info.kv_dtype)},
      {"--block-size", StrCat(info.block_tokens)},
      {"--max-model-len", LengthsOfRopes(model.files.spec, info.max_model_len)},
      {"the split into ranks",
       StrCat("-tp ", model.options.tensor_parallel, " -pp ", model.options.pipeline_parallel)},
      {"the bytes of a block", BytesOfBlocks(model.executor->image_bytes())}};
}

Result<MakePrefillRole> StartPrefillRole(const StartedModel& model, const std::vector<int>& cpus) {
  const Role role = model.options.prefill.role;
  if (role == Role::kBoth)
    return [](const PrefillRole::Parts&) { return std::make_unique<PrefillRole>(); };
  PINION_TRY(CheckCanTransfer(model));
  return role == Role::kPrefill ? StartService(model, cpus) : StartRemote(model, cpus);
}

}  // namespace pinion
