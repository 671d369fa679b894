#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "engine/base/json.h"
#include "engine/base/result.h"
#include "engine/spec/spec.h"

namespace pinion {

// A field of config.json that changes the mathematics, with the values at which it does not.
// Absent and null are always fine.
struct NeutralField {
  std::string_view key;
  std::string_view values;  // separated by '|'; numbers compare by value; empty: only null will do
};

// A field that an architecture's configs call otherwise than those of its relatives do. Code knows
// it by the common name.
struct FieldAlias {
  std::string_view own, common;
};

// One architecture as data: how its config.json becomes a DecoderSpec. Lives in an arch_*.cc file
// of its own and is listed in architectures.cc.
struct Architecture {
  std::string_view name;                  // architectures[0]
  std::string_view model_type;            // config.json's, if it names no architecture
  std::string_view models;                // as people call them
  std::span<const NeutralField> neutral;  // beyond those of all (architectures.cc)
  // Fills the shape, the kinds, the biases and the names; the fields that every architecture shares
  // (dtype, ids) are filled by ReadSpec.
  Status (*read)(const Json& config, DecoderSpec& spec);
  // Fields that `read` understands, although they are not neutral for all architectures.
  std::span<const std::string_view> reads = {};
  // JSON object: the architecture's defaults for fields that config.json leaves out.
  std::string_view defaults = "{}";
  // architectures[0] of published checkpoints that hold it beside other parts, as 'text_config'.
  std::string_view wrapper = {};
  // Errors name these fields as the config does.
  std::span<const FieldAlias> aliases = {};
};

std::span<const Architecture* const> Architectures();
// A table in Markdown, a row for each: docs/models.md, and `pinion model list`.
std::string ArchitectureTable();
// By architectures[0], else by model_type; the error says how to list the known ones.
Result<const Architecture*> FindArchitecture(const Json& config);
// An error if a field that changes the mathematics has a value that Pinion does not compute; fields
// named in `but` are skipped.
Status CheckNeutralFields(const Json& config, std::span<const NeutralField> fields,
                          std::span<const std::string_view> but = {});
std::span<const NeutralField> CommonNeutralFields();

// Integers of config.json within [low, high]; the error names key, value and range.
Result<int> RequireIn(const Json& config, std::string_view key, int64_t low, int64_t high);
Result<int> OptionalIn(const Json& config, std::string_view key, int64_t low, int64_t high,
                       int fallback);

// Upper limits for hostile or broken configs. No published model comes near, and products of any
// two stay far from overflow.
inline constexpr int64_t kMaxLayers = 1024, kMaxHeads = 1024, kMaxHeadDim = 512;
inline constexpr int64_t kMaxHidden = 1 << 17, kMaxIntermediate = 1 << 20;
inline constexpr int64_t kMaxExperts = 1 << 14;
// Over all layers: each expert is three tensors to look up, and today's largest models have 25,000.
inline constexpr int64_t kMaxExpertsInAll = 1 << 17;
inline constexpr int64_t kMaxTokenTypes = 256, kMaxLabels = 1 << 16;
inline constexpr int64_t kMaxVocabulary = 1 << 22, kMaxPositions = 1 << 26;

// Reads the parts that Llama's relatives share: shape, norms, activation, names, rope.
Status ReadLlamaShape(const Json& config, DecoderSpec& spec);
// Reads what encoders share, after which names are to be filled in: Llama's shape, attention in
// both directions, LayerNorm with the epsilon under `eps_key`, no head.
Status ReadEncoderShape(const Json& config, std::string_view eps_key, DecoderSpec& spec);
// The number of labels that a classifier tells apart; 2 if config.json does not say it, as there.
Result<int> ReadLabels(const Json& config);
// "silu", "gelu_pytorch_tanh", ...; silu if absent.
Result<kernels::Activation> ReadActivation(const Json& config, std::string_view key);
// Sets the windows of layers that layer_types calls sliding_attention or, if it is absent, for
// which `slides` returns true; none if sliding_window is null or 0.
Status ReadWindows(const Json& config, DecoderSpec& spec, const std::function<bool(int)>& slides);
// A layer's type by its name in configs of hybrids before transformers 5.24, which calls mamba
// linear_attention and attention full_attention; other names stay, "" if it is not a string.
std::string OlderLayerType(const Json& type);
// A multiplier or cap; absent and null give `fallback`.
Result<float> OptionalPositive(const Json& config, std::string_view key, float fallback);

// The config of latent attention with the rotated part of a head as 'head_dim', as transformers
// has it: the value in configs, or hidden_size / heads, is of no use.
Json WithRotatedHead(Json config);
// Reads latent attention as DeepSeek's configs have it, after ReadLlamaShape.
Status ReadLatentAttention(const Json& config, DecoderSpec& spec);
// Reads DeepSeek's experts: router, groups, which layers have them, the shared MLP, names. method,
// score: topk_method and scoring_func if the config leaves them out.
Status ReadGroupedExperts(const Json& config, const char* method, const char* score,
                          DecoderSpec& spec);

// Reads inputs of layers by token as Gemma's configs have them, after ReadLlamaShape.
Status ReadLayerInputs(const Json& config, DecoderSpec& spec);
// Lets the last num_kv_shared_layers layers see the keys and values of the last layer before them
// that is of their type, after ReadWindows.
Status ShareKeysAndValues(const Json& config, DecoderSpec& spec);

// config.json's names of Mamba-2's numbers, which architectures spell differently.
struct MambaKeys {
  std::string_view heads = "mamba_n_heads", head_dim = "mamba_d_head", state_dim = "mamba_d_state",
                   groups = "mamba_n_groups", conv_width = "mamba_d_conv",
                   conv_bias = "mamba_conv_bias";
};
// Reads Mamba-2 after ReadLlamaShape, with a norm over each group; layers' mixers are the caller's.
// module: of a layer's mixer, "model.layers.{}.mamba."
Status ReadMamba(const Json& config, const MambaKeys& keys, const std::string& module,
                 DecoderSpec& spec);

// Reads rotary position embeddings from rope_parameters (transformers 5) or rope_theta and
// rope_scaling (4): fills ropes and, if the scaling stretches it, max_positions, which must be set
// before, as must head_dim. Types: default, linear, dynamic, llama3 (Llama 3.1), yarn, longrope,
// proportional; others are errors.
Status ReadRope(const Json& config, DecoderSpec& spec);
// The config with these rope parameters if it has none, not even 'rope_scaling'.
Json WithDefaultRope(Json config, std::string_view parameters);
// If transformers 5 wrote a rope for each type of layer: the config with that of the layers without
// window alone.
Json WithFullRope(Json config);
// Gives the layers with a window a second rope: config.json's rope_parameters of sliding_attention
// or, if there are none, `parameters`. To be called after ReadWindows.
Status AddWindowRope(const Json& config, const Json& parameters, DecoderSpec& spec);
// One rope from its parameters; those that are missing are looked up in config.json itself.
Result<RopeSpec> ReadRopeParameters(const Json& config, const Json& parameters,
                                    const DecoderSpec& spec);

}  // namespace pinion
