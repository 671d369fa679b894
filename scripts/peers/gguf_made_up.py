"""Writes a mixture of experts with made-up weights as a GGUF file, in its final types from the start.

A copy in bfloat16 of such a model, from which llama-quantize could start, is larger than the machines that run the
quantised one. Speed depends on the values in one way only: each token must choose experts of its own. So the blocks
are random, with the deviations of Pinion's made-up weights (engine/checkpoint/made_up_weights.cc), but not the same
numbers. The types are those that llama-quantize and the publishers' own files give to each tensor; the blocks are
those of ggml-common.h in https://github.com/ggml-org/llama.cpp.
"""

import array
import dataclasses
import functools
import json
import math
import random
import struct

from peers import gguf

LAYERS = {"qwen3-30b-a3b": 48, "gpt-oss-20b": 24}  # the presets, whole
BLOCKS = 1_000_003  # in a pool; prime, so that no two rows of a matrix are cut from the same place


# ---- Types of tensors ----------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Type:
    """How a GGUF file stores the values of a tensor."""

    number: int
    values: int  # in a block
    fields: tuple  # of a block, in order; each is a function of (random, blocks, deviation) to bytes in equal parts


def noise(count):
    """Random bytes."""
    return lambda source, blocks, _: source.randbytes(count * blocks)


def half(unit_deviation):
    """float16 scales of random sign; `unit_deviation`: of the values at a scale of 1.

    A block of values from -8 to 7 has a mean below 0. Signs that differ among blocks keep it from being that of a
    row, which would turn all tokens into the same vector within a few layers.
    """
    def scales(source, blocks, deviation):
        low, high = struct.pack("<e", deviation / unit_deviation)
        made = bytearray([low, high]) * blocks
        made[1::2] = source.randbytes(blocks).translate(bytes(high | sign << 7 for sign in (0, 1) for _ in range(128)))
        return bytes(made)

    return scales


def power(unit_deviation):
    """Powers of two as their exponent plus 127: the one below the deviation, or above it with the chance that gives
    the same variance."""
    def scales(source, blocks, deviation):
        exponent = math.floor(math.log2(deviation / unit_deviation))
        chance = ((deviation / unit_deviation / 2**exponent) ** 2 - 1) / 3
        return source.randbytes(blocks).translate(bytes(127 + exponent + (byte < 256 * chance) for byte in range(256)))

    return scales


def spread(levels):
    """Deviation of equally likely values."""
    return math.sqrt(sum(level * level for level in levels) / len(levels))


def signed_steps(most):
    """int8 from -most to most without 0, a byte each."""
    levels = [level for level in range(-most, most + 1) if level]
    table = bytes(levels[byte % len(levels)] & 255 for byte in range(256))
    return lambda count: lambda source, blocks, _: source.randbytes(count * blocks).translate(table)


E2M1 = [0, 0.5, 1, 1.5, 2, 3, 4, 6]
Q4_0 = Type(2, 32, (half(spread(range(-8, 8))), noise(16)))
Q8_0 = Type(8, 32, (half(spread(range(-128, 128))), noise(32)))
# 4 and 2 bits of each value, int8 scales of 16 values, and their common scale.
Q6_K = Type(14, 256, (noise(128), noise(64), signed_steps(8)(16),
                      half(spread(range(-32, 32)) * spread([1, 2, 3, 4, 5, 6, 7, 8]))))
MXFP4 = Type(39, 32, (power(spread(E2M1)), noise(16)))


@dataclasses.dataclass(frozen=True)
class Kinds:
    """The type of each group of tensors; all others are float32."""

    experts: Type
    matrix: Type  # attention's and the embedding
    head: Type


# Heads of Q4_0 files are Q6_K, or Q8_0 if their rows are not a multiple of its 256 values.
FORMATS = {"Q4_0": lambda hidden: Kinds(Q4_0, Q4_0, Q8_0 if hidden % Q6_K.values else Q6_K),
           "MXFP4": lambda hidden: Kinds(MXFP4, Q8_0, Q8_0)}


# ---- Values --------------------------------------------------------------------------------------


@functools.cache
def block_pool(kind, deviation):
    source, parts = random.Random(1), []
    for field in kind.fields:
        data = field(source, BLOCKS, deviation)
        parts.append((len(data) // BLOCKS, data))
    size = sum(width for width, _ in parts)
    pool, start = bytearray(size * BLOCKS), 0
    for width, data in parts:
        for byte in range(width):
            pool[start + byte::size] = data[byte::width]
        start += width
    return pool


@functools.cache
def float_pool(deviation):
    source = random.Random(2)
    return array.array("f", (source.gauss(0, deviation) for _ in range(BLOCKS))).tobytes()


class Cutter:
    """Cuts tensors out of pools, each from a place of its own."""

    def __init__(self):
        self.place = 0

    def cut(self, pool, element_bytes, elements):
        """`elements` of the pool, from the place on and around its end, in pieces."""
        self.place = (self.place + 389_171) % BLOCKS
        view, at, left = memoryview(pool), self.place, elements
        while left > 0:
            count = min(left, BLOCKS - at)
            yield view[at * element_bytes:(at + count) * element_bytes]
            at, left = 0, left - count

    def blocks(self, name, shape, kind, deviation):
        pool = block_pool(kind, deviation)
        count = math.prod(shape) // kind.values
        size = len(pool) // BLOCKS
        return gguf.Tensor(name, shape, kind.number, size * count, self.cut(pool, size, count))

    def floats(self, name, shape, deviation):
        count = math.prod(shape)
        return gguf.Tensor(name, shape, gguf.TENSOR_F32, 4 * count, self.cut(float_pool(deviation), 4, count))


def ones(name, size):
    return gguf.Tensor(name, [size], gguf.TENSOR_F32, 4 * size, [struct.pack("<f", 1) * size])


# ---- The two architectures -----------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Architecture:
    gguf: str
    experts: str  # keys of config.json
    wide: str
    mlp_norm: str
    head_norms: bool
    biases: bool  # of attention, the router and the experts; and sinks


ARCHITECTURES = {
    "Qwen3MoeForCausalLM": Architecture("qwen3moe", "num_experts", "moe_intermediate_size", "ffn_norm", True, False),
    "GptOssForCausalLM": Architecture("gpt-oss", "num_local_experts", "intermediate_size", "post_attention_norm", False,
                                      True),
}
ATTENTION_GAIN, MLP_GAIN, BIAS = 0.5, 3, 0.02  # of Pinion's made-up weights


def tensors_of(config, architecture, kinds):
    """All tensors of the file, layer by layer."""
    cutter = Cutter()
    hidden, layers, head = config["hidden_size"], config["num_hidden_layers"], gguf.head_dim(config)
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    experts, wide = config[architecture.experts], config[architecture.wide]

    def linear(name, shape, kind, gain=1.0):
        yield cutter.blocks(name + ".weight", shape, kind, gain / math.sqrt(shape[-1]))
        if architecture.biases:
            yield cutter.floats(name + ".bias", shape[:-1], BIAS)

    vocabulary = [config["vocab_size"], hidden]
    yield cutter.blocks("token_embd.weight", vocabulary, kinds.matrix, 1 / math.sqrt(hidden))
    yield cutter.blocks("output.weight", vocabulary, kinds.head, 1 / math.sqrt(hidden))
    yield ones("output_norm.weight", hidden)
    for layer in (f"blk.{i}." for i in range(layers)):
        yield ones(f"{layer}attn_norm.weight", hidden)
        yield ones(f"{layer}{architecture.mlp_norm}.weight", hidden)
        for name, rows in [("attn_q", heads), ("attn_k", kv_heads), ("attn_v", kv_heads)]:
            yield from linear(layer + name, [rows * head, hidden], kinds.matrix)
        yield from linear(layer + "attn_output", [hidden, heads * head], kinds.matrix,
                          ATTENTION_GAIN / math.sqrt(2 * layers))
        if architecture.head_norms:
            yield ones(f"{layer}attn_q_norm.weight", head)
            yield ones(f"{layer}attn_k_norm.weight", head)
        yield cutter.floats(f"{layer}ffn_gate_inp.weight", [experts, hidden], 1 / math.sqrt(hidden))
        if architecture.biases:
            yield cutter.floats(f"{layer}attn_sinks.weight", [heads], BIAS)
            yield cutter.floats(f"{layer}ffn_gate_inp.bias", [experts], BIAS)
        for name in ("ffn_gate_exps", "ffn_up_exps"):
            yield from linear(layer + name, [experts, wide, hidden], kinds.experts)
        yield from linear(layer + "ffn_down_exps", [experts, hidden, wide], kinds.experts,
                          MLP_GAIN / math.sqrt(2 * layers))


def mixture_keys(config, architecture):
    """Metadata beside that of a dense model."""
    keys = {"expert_count": (gguf.U32, config[architecture.experts]),
            "expert_used_count": (gguf.U32, config["num_experts_per_tok"]),
            "expert_feed_forward_length": (gguf.U32, config[architecture.wide])}
    if window := config.get("sliding_window"):
        keys["attention.sliding_window"] = (gguf.U32, window)
    if scaling := config.get("rope_scaling"):
        keys["rope.scaling.type"] = (gguf.STRING, scaling["rope_type"])
        keys["rope.scaling.factor"] = (gguf.F32, scaling["factor"])
        keys["rope.scaling.original_context_length"] = (gguf.U32, scaling["original_max_position_embeddings"])
    return {f"{architecture.gguf}.{key}": value for key, value in keys.items()}


def write_made_up(folder, layers, kind, path):
    """Makes `path`: the model of config.json and tokenizer.json in `folder` with `layers` layers, in the types of a
    `kind` file (of FORMATS)."""
    if kind not in FORMATS:
        raise gguf.Unsupported(f"mixtures are made up as {' and '.join(FORMATS)}, not as {kind}")
    config = json.loads((folder / "config.json").read_text()) | {"num_hidden_layers": layers}
    architecture = ARCHITECTURES.get(config["architectures"][0])
    if not architecture:
        raise gguf.Unsupported(f"it is a {config['architectures'][0]}, want one of {', '.join(ARCHITECTURES)}")
    keys = gguf.metadata(folder, config, architecture.gguf) | mixture_keys(config, architecture)
    gguf.write_file(path, keys, list(tensors_of(config, architecture, FORMATS[kind](config["hidden_size"]))))
