// Mamba-2, as the configs of hybrids spell it.

#include <cmath>

#include "engine/base/strings.h"
#include "engine/spec/architecture.h"

namespace pinion {
namespace {

// One bound of a step in time. JSON has no infinity: transformers 5 writes an object for it.
Result<float> TimeStepBound(const Json& value) {
  if (value.is_number()) return static_cast<float>(value.number());
  const Json* special = value.is_object() ? value.Find("__float__") : nullptr;
  if (special && special->is_string() && special->string() == "Infinity") return INFINITY;
  return Fail(ErrorCode::kUnsupported,
              StrCat("'time_step_limit' holds ", value.Dump().substr(0, 60), ", want two numbers"));
}

Status ReadTimeSteps(const Json& config, MambaSpec& mamba) {
  const Json* limit = config.Find("time_step_limit");
  if (!limit || limit->is_null()) return {};
  if (!limit->is_array() || limit->array().size() != 2)
    return Fail(ErrorCode::kCorrupt, StrCat("'time_step_limit' is ", limit->Dump().substr(0, 60),
                                            ", want a list of two numbers"));
  PINION_ASSIGN(mamba.dt_min, TimeStepBound(limit->array()[0]));
  PINION_ASSIGN(mamba.dt_max, TimeStepBound(limit->array()[1]));
  if (mamba.dt_min >= 0 && mamba.dt_min <= mamba.dt_max) return {};
  return Fail(ErrorCode::kCorrupt, StrCat("'time_step_limit' goes from ", mamba.dt_min, " to ",
                                          mamba.dt_max, ", want 0 or more and no less"));
}

// "auto" is what the model's inner width leaves for each head.
Result<int> MambaHeadDim(const Json& config, std::string_view key, const DecoderSpec& spec) {
  const Json* given = config.Find(key);
  const bool is_auto = given && given->is_string() && given->string() == "auto";
  if (given && !given->is_null() && !is_auto) return RequireIn(config, key, 1, kMaxStateDim);
  PINION_ASSIGN(const int expand, OptionalIn(config, "mamba_expand", 1, 64, 2));
  const int inner = expand * spec.hidden;
  if (inner % spec.mamba.heads == 0 && inner / spec.mamba.heads <= kMaxStateDim)
    return inner / spec.mamba.heads;
  return Fail(ErrorCode::kCorrupt,
              StrCat("there are ", spec.mamba.heads, " Mamba heads, which do not divide ", inner,
                     ", 'mamba_expand' times 'hidden_size', into heads of at most ", kMaxStateDim));
}

}  // namespace

Status ReadMamba(const Json& config, const MambaKeys& keys, const std::string& module,
                 DecoderSpec& spec) {
  MambaSpec& mamba = spec.mamba;
  PINION_ASSIGN(mamba.heads, RequireIn(config, keys.heads, 1, kMaxHeads));
  PINION_ASSIGN(mamba.head_dim, MambaHeadDim(config, keys.head_dim, spec));
  PINION_ASSIGN(mamba.state_dim, RequireIn(config, keys.state_dim, 1, kMaxStateDim));
  PINION_ASSIGN(mamba.groups, OptionalIn(config, keys.groups, 1, kMaxHeads, 1));
  PINION_ASSIGN(mamba.conv_width, OptionalIn(config, keys.conv_width, 2, kMaxConvWidth, 4));
  PINION_ASSIGN(mamba.conv_bias, Optional<bool>(config, keys.conv_bias, true));
  PINION_TRY(ReadTimeSteps(config, mamba));
  mamba.norm_runs = mamba.groups;
  TensorNames& names = spec.names;
  names.mamba_in = module + "in_proj";
  names.mamba_conv = module + "conv1d";
  names.mamba_decay = module + "A_log";
  names.mamba_skip = module + "D";
  names.mamba_dt_bias = module + "dt_bias";
  names.mamba_norm = module + "norm";
  names.mamba_o = module + "out_proj";
  return {};
}

}  // namespace pinion
