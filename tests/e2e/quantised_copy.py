"""A quantised checkpoint beside its original: the rules of the formats by which one was made of the other.

No figure here was taken from Pinion. Factors that calibration moves from norms and up projections into the matrices
behind them are read from the file: a norm's from the norm, an up projection's from the steps of its rows.
"""

import json
import re
import shutil

import numpy as np

from checkpoint import Tensor, read_checkpoint, read_quantised, write_file

# Steps of a format from zero (AWQ: from a group's lowest weight) to the furthest weight.
REACH = {"w8a8": 127, "awq-int4": 15, "gptq-int4": 7}
# Operations in float32 on the way to a step: two factors and their products, a difference, a quotient. Each errs by
# 2^-24.
FLOAT32 = 8 * 2.0**-24
OUTLIERS, OUTLIER = [3, 17], 64.0  # channels that stand out, and how far

# ---- Which linears read which tensors, by the names of published checkpoints.

ATTENTION_IN = {"q_proj", "k_proj", "v_proj", "qkv_proj", "q_a_proj", "kv_a_proj_with_mqa"}
MLP_IN = {"gate_proj", "up_proj", "gate_up_proj", "w1", "w3", "fc1"}
ROUTER = "gate"
LATENT = {"q_b_proj": "self_attn.q_a_layernorm", "kv_b_proj": "self_attn.kv_a_layernorm"}


def leaf(module):
    return module.rsplit(".", 1)[1]


def norm_before(module, tensors):
    """The norm whose output a linear reads, if the model has one there."""
    layer = re.match(r".*layers\.\d+\.", module)[0]
    norms = []
    if leaf(module) in ATTENTION_IN:
        norms = ["input_layernorm", "self_attn_layer_norm"]
    elif leaf(module) in MLP_IN | {ROUTER}:
        norms = ["pre_feedforward_layernorm", "final_layer_norm"]
        if layer + "input_layernorm.weight" in tensors:  # Olmo 2 has the name behind its attention
            norms.append("post_attention_layernorm")
    elif leaf(module) in LATENT:
        norms = [LATENT[leaf(module)]]
    return next((layer + norm for norm in norms if layer + norm + ".weight" in tensors), None)


def up_before(module):
    """The up projection whose rows are a down projection's columns, and which share of its rows they are."""
    block = module.rsplit(".", 1)[0]
    return {"down_proj": [(f"{block}.up_proj", 0), (f"{block}.gate_up_proj", 0.5)], "w2": [(f"{block}.w3", 0)]}.get(
        leaf(module), [])


def linears_of(tensors):
    return [name.removesuffix(".weight") for name, tensor in tensors.items()
            if ".layers." in name and name.endswith(".weight") and tensor.values.ndim == 2]


def config_of(folder):
    return json.loads((folder / "config.json").read_text())


def is_gemma(folder):
    return "Gemma" in config_of(folder)["architectures"][0]


def norm_offset(folder):
    """Gemma multiplies by 1 + weight."""
    return 1.0 if is_gemma(folder) else 0.0


# ---- The rules of the formats.


def exact_steps(target, weights, group):
    """[outputs][groups]: the step with which the codes just reach both ends of the group's weights."""
    groups = weights.astype(float).reshape(len(weights), -1, group)
    if target == "awq-int4":  # the range includes 0
        return (np.maximum(groups.max(2), 0) - np.minimum(groups.min(2), 0)) / REACH[target]
    return abs(groups).max(2) / REACH[target]


def step_error(target, steps):
    """How far a stored step may be from the exact one: int4 formats keep float16."""
    if target == "w8a8":
        return steps * FLOAT32
    return steps * FLOAT32 + np.spacing(steps.astype(np.float16)).astype(float) / 2


def allowed_step_errors(target, linear, weights, unknown):
    """[outputs][groups]: by how much of itself each step may err if the weights are known to a relative `unknown`."""
    steps = exact_steps(target, weights, linear.group)
    return step_error(target, steps) / steps + unknown


def steps_hold(target, linear, weights, step_errors):
    steps = exact_steps(target, weights, linear.group)
    return (abs(linear.scales - steps) <= step_errors * steps).all()


def codes_hold(target, linear, weights, step_errors):
    """Every weight is within half a step. An error of the step counts REACH times at the last code."""
    steps = np.repeat(linear.scales, linear.group, axis=1)
    allowed = 0.5 + REACH[target] * np.repeat(step_errors, linear.group, axis=1)
    return (abs(linear.weights() - weights) <= allowed * steps).all()


# ---- Factors that calibration moved.


class Quantised:
    """A quantised folder beside the original, with the factors that lie between them."""

    def __init__(self, target, original, folder):
        self.target, self.original, self.folder = target, original, folder
        self.before = read_checkpoint(original)
        self.linears, self.rest = read_quantised(folder)
        self.offset = norm_offset(original)

    def of_norm(self, norm):
        """The factors by which a norm's outputs have been divided, channel by channel."""
        old, new = (tensors[norm + ".weight"].values.astype(float) + self.offset
                    for tensors in (self.before, self.rest))
        assert (new[old != 0] != 0).all()
        return np.divide(old, new, out=np.ones_like(old), where=new != 0)

    def behind_norm(self, module):
        """The original's weights times the factors of the norm before them."""
        weights = self.before[module + ".weight"].values.astype(float)
        norm = norm_before(module, self.before)
        return weights if norm is None else weights * self.of_norm(norm)

    def of_up(self, up, share):
        """The factors by which the rows of an up projection have been divided, and their relative error: each row's
        lies between those that the steps of its groups allow."""
        weights, linear = self.behind_norm(up), self.linears[up]
        first = int(share * len(weights))
        exact, scales = exact_steps(self.target, weights[first:], linear.group), linear.scales[first:].astype(float)
        error = step_error(self.target, scales)
        least, most = (exact / (scales + error)).max(1), (exact / (scales - error)).min(1)
        assert (least <= most).all(), "the groups of a row do not agree on its factor"
        return (least + most) / 2, ((most - least) / (most + least)).max()

    def scaled(self, module):
        """The weights that the integers of a linear stand for, and the relative error to which they are known."""
        weights, unknown = self.behind_norm(module), 0.0
        for up, share in up_before(module):
            if up in self.linears:
                factors, unknown = self.of_up(up, share)
                weights = weights * factors
        for down in self.linears:  # of this up projection
            for up, share in up_before(down):
                if up == module:
                    factors, unknown = self.of_up(up, share)
                    weights[int(share * len(weights)):] /= factors[:, None]
        return weights, unknown

    def norms(self):
        """All norms that linears read."""
        return sorted({norm_before(module, self.before) for module in self.linears} - {None})

    def dense_ups(self):
        """(module, share) of all up projections outside of experts, which may see too few tokens."""
        return [(up, share) for down in self.linears if ".experts." not in down
                for up, share in up_before(down) if up in self.linears]

    def check_rest(self):
        """Besides the linears only norms change, and the routers that read them."""
        assert set(self.before) - set(self.rest) == {module + ".weight" for module in self.linears}
        norms, routers = self.norms(), {module + ".weight" for module in linears_of(self.rest)}
        assert all(name.endswith(f".{ROUTER}.weight") for name in routers)
        for name, (kind, values) in self.rest.items():
            old = self.before[name]
            assert kind == old.kind
            module, part = name.rsplit(".", 1)
            if module in norms and part == "bias":  # rounded to bfloat16, as the file has it
                assert (abs(values * self.of_norm(module) - old.values) <= 2.0**-8 * abs(old.values)).all()
            elif name in routers:  # the factors are powers of two
                assert (values == self.behind_norm(module)).all()
            elif module not in norms:
                assert (values == old.values).all(), name


def with_outliers(original, folder):
    """A copy in which some channels behind every norm, and some outputs of every gated MLP's up projection, are
    OUTLIER times as large, and the weights that read them that much smaller, as in real models."""
    shutil.copytree(original, folder, ignore=shutil.ignore_patterns("*.safetensors", "*.index.json"))
    tensors = {name: Tensor(kind, values.copy()) for name, (kind, values) in read_checkpoint(original).items()}
    for module in linears_of(tensors):
        weights = tensors[module + ".weight"].values
        if norm_before(module, tensors):
            weights[:, OUTLIERS] /= OUTLIER
        for up, share in up_before(module):
            if up + ".weight" in tensors:
                rows = tensors[up + ".weight"].values
                rows[[int(share * len(rows)) + channel for channel in OUTLIERS]] *= OUTLIER
                weights[:, OUTLIERS] /= OUTLIER
    offset = norm_offset(original)
    for norm in {norm_before(module, tensors) for module in linears_of(tensors)} - {None}:
        for part, moved in (("weight", offset), ("bias", 0.0)):
            if f"{norm}.{part}" in tensors:
                values = tensors[f"{norm}.{part}"].values
                values[OUTLIERS] = (values[OUTLIERS] + moved) * OUTLIER - moved
                values.view(np.uint32)[:] &= 0xffff0000  # the part that bfloat16 keeps
    write_file(folder / "model.safetensors", tensors)
    return folder


# ---- Products of the first layer, whose inputs follow from the embeddings alone.


def first_inputs(folder, ids):
    """The inputs of the first layer's attention: embeddings behind an RMS norm, float64 [tokens][channels]."""
    config, tensors = config_of(folder), read_checkpoint(folder)
    x = tensors["model.embed_tokens.weight"].values.astype(float)[ids]
    if is_gemma(folder):
        x *= config["hidden_size"]**0.5
    norm = "model.layers.0.input_layernorm.weight"
    if norm not in tensors:
        return x
    x /= np.sqrt((x**2).mean(1, keepdims=True) + config["rms_norm_eps"])
    return x * (tensors[norm].values + norm_offset(folder))


def product_error(found, x):
    """The squared error of all products of the first layer's attention with its inputs x, which W8A8 rounds."""
    error = 0
    for module, linear in found.linears.items():
        if ".layers.0." not in module or leaf(module) not in ATTENTION_IN:
            continue
        norm = norm_before(module, found.before)
        scaled = x if norm is None else x / found.of_norm(norm)
        if found.target == "w8a8":
            steps = abs(scaled).max(1, keepdims=True) / 127
            scaled = np.round(scaled / steps) * steps
        error += ((scaled @ linear.weights().T - x @ found.before[module + ".weight"].values.T)**2).sum()
    return error
