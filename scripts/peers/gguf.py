"""Writes a checkpoint of `pinion model make` as a GGUF file, so that llama.cpp reads the same model.

For Llama, Qwen2 and Qwen3 in bfloat16; the standard library suffices. The layout is that of
https://github.com/ggml-org/ggml/blob/master/docs/gguf.md, little-endian, version 3.
"""

import dataclasses
import json
import math
import mmap
import re
import struct

ARCHITECTURES = {"LlamaForCausalLM": "llama", "Qwen2ForCausalLM": "qwen2", "Qwen3ForCausalLM": "qwen3"}
U32, I32, F32, BOOL, STRING, ARRAY = 4, 5, 6, 7, 8, 9  # types of metadata
SCALARS = {U32: "<I", I32: "<i", F32: "<f", BOOL: "<?"}
TENSOR_F32, TENSOR_BF16 = 0, 30
ALIGNMENT = 32
NORMAL, CONTROL = 1, 3  # kinds of token
OUTER = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}
INNER = {"input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm",
         "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
         "self_attn.o_proj": "attn_output", "self_attn.q_norm": "attn_q_norm",
         "self_attn.k_norm": "attn_k_norm", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
         "mlp.down_proj": "ffn_down"}


class Unsupported(Exception):
    """The checkpoint is none that this module can write."""


@dataclasses.dataclass(frozen=True)
class Tensor:
    """A tensor to write: its name and type in the file, and its bytes in pieces, which are asked for once."""

    name: str
    shape: list  # slowest dimension first
    kind: int
    size_bytes: int
    pieces: object


# ---- Reading -------------------------------------------------------------------------------------


def read_tensors(folder):
    """name -> (shape, bytes in bfloat16), in the order of the files."""
    tensors = {}
    for path in sorted(folder.glob("*.safetensors")):
        with open(path, "rb") as file:
            data = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        start = 8 + struct.unpack("<Q", data[:8])[0]
        for name, tensor in json.loads(bytes(data[8:start])).items():
            if name == "__metadata__":
                continue
            if tensor["dtype"] != "BF16":
                raise Unsupported(f"{name} is {tensor['dtype']}, want BF16")
            first, last = tensor["data_offsets"]
            tensors[name] = (tensor["shape"], data[start + first:start + last])
    return tensors


def gguf_name(name):
    stem, _, kind = name.rpartition(".")
    layer = re.fullmatch(r"model\.layers\.(\d+)\.(.*)", stem)
    known = INNER.get(layer[2]) if layer else OUTER.get(stem)
    if not known:
        raise Unsupported(f"{name} has no name in a GGUF file")
    return f"blk.{layer[1]}.{known}.{kind}" if layer else f"{known}.{kind}"


# ---- Converting ----------------------------------------------------------------------------------


def as_f32(data):
    """bfloat16 is the upper half of float32."""
    widened = bytearray(2 * len(data))
    widened[2::4], widened[3::4] = data[0::2], data[1::2]
    return bytes(widened)


def interleave(shape, data, heads):
    """Rows of queries or keys in llama's order: it rotates neighbours, Hugging Face's halves of a head."""
    row_bytes = len(data) // shape[0]
    head = shape[0] // heads
    order = [first + half * head // 2 + i
             for first in range(0, shape[0], head) for i in range(head // 2) for half in (0, 1)]
    return b"".join(data[row * row_bytes:(row + 1) * row_bytes] for row in order)


def head_dim(config):
    return config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]


def rope_divisors(config):
    """llama3's scaling as a divisor of each frequency (Llama 3.1's announcement), or None without scaling."""
    scaling = config.get("rope_scaling")
    if not scaling:
        return None
    if scaling.get("rope_type") != "llama3":
        raise Unsupported(f"rope_scaling is {scaling.get('rope_type')!r}, want llama3 or none")
    low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
    divisors = []
    for i in range(0, head_dim(config), 2):
        wavelength = 2 * math.pi * config["rope_theta"] ** (i / head_dim(config))
        turns = scaling["original_max_position_embeddings"] / wavelength
        kept = min(1.0, max(0.0, (turns - low) / (high - low)))
        divisors.append(1 / (kept + (1 - kept) / scaling["factor"]))
    return divisors


def converted(config, tensors):
    """Tensors: matrices as they are, vectors in float32, as llama.cpp wants them."""
    rotated = {"q_proj": config["num_attention_heads"], "k_proj": config["num_key_value_heads"]}
    is_llama = config["architectures"][0] == "LlamaForCausalLM"
    for name, (shape, data) in tensors.items():
        heads = rotated.get(name.split(".")[-2])
        if is_llama and heads:
            data = interleave(shape, data, heads)
        matrix = len(shape) > 1
        data = data if matrix else as_f32(data)
        yield Tensor(gguf_name(name), shape, TENSOR_BF16 if matrix else TENSOR_F32, len(data), [data])
    if divisors := rope_divisors(config):
        data = struct.pack(f"<{len(divisors)}f", *divisors)
        yield Tensor("rope_freqs.weight", [len(divisors)], TENSOR_F32, len(data), [data])


def tokenizer_metadata(folder, config):
    """Name and tokenizer, which is the same of all made-up models: key -> (type, value), or (ARRAY, type, values)."""
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    vocabulary = sorted(tokenizer["model"]["vocab"], key=tokenizer["model"]["vocab"].get)
    special = {token["content"] for token in tokenizer["added_tokens"] if token["special"]}
    keys = {
        "general.name": (STRING, folder.name),
        "tokenizer.ggml.model": (STRING, "gpt2"),
        "tokenizer.ggml.pre": (STRING, "gpt-2"),
        "tokenizer.ggml.tokens": (ARRAY, STRING, vocabulary),
        "tokenizer.ggml.token_type": (ARRAY, I32, [CONTROL if t in special else NORMAL for t in vocabulary]),
        "tokenizer.ggml.merges": (ARRAY, STRING, tokenizer["model"]["merges"]),
        "tokenizer.ggml.add_bos_token": (BOOL, tokenizer["post_processor"] is not None),
    }
    if (bos := config.get("bos_token_id")) is not None:
        keys["tokenizer.ggml.bos_token_id"] = (U32, bos)
    if (eos := config.get("eos_token_id")) is not None:
        keys["tokenizer.ggml.eos_token_id"] = (U32, eos[0] if isinstance(eos, list) else eos)
    return keys


def metadata(folder, config, architecture):
    """key -> (type, value), or (ARRAY, type, values)."""
    keys = {"general.architecture": (STRING, architecture), **tokenizer_metadata(folder, config)}
    for key, kind, value in [
            ("block_count", U32, config["num_hidden_layers"]),
            ("context_length", U32, config["max_position_embeddings"]),
            ("embedding_length", U32, config["hidden_size"]),
            ("feed_forward_length", U32, config["intermediate_size"]),
            ("attention.head_count", U32, config["num_attention_heads"]),
            ("attention.head_count_kv", U32, config["num_key_value_heads"]),
            ("attention.key_length", U32, head_dim(config)),
            ("attention.value_length", U32, head_dim(config)),
            ("attention.layer_norm_rms_epsilon", F32, config["rms_norm_eps"]),
            ("rope.dimension_count", U32, head_dim(config)),
            ("rope.freq_base", F32, config["rope_theta"]),
            ("vocab_size", U32, len(keys["tokenizer.ggml.tokens"][2]))]:
        keys[f"{architecture}.{key}"] = (kind, value)
    return keys


# ---- Writing -------------------------------------------------------------------------------------


def packed(kind, value):
    if kind == STRING:
        text = value.encode()
        return struct.pack("<Q", len(text)) + text
    return struct.pack(SCALARS[kind], value)


def packed_entry(key, kind, *rest):
    head = packed(STRING, key) + struct.pack("<I", kind)
    if kind != ARRAY:
        return head + packed(kind, *rest)
    element, values = rest
    return head + struct.pack("<IQ", element, len(values)) + b"".join(packed(element, v) for v in values)


def padding(size):
    return -size % ALIGNMENT


def write_file(path, keys, tensors):
    """Makes `path` of metadata and a list of tensors; a file of that name is always a whole one."""
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(keys))
    head += b"".join(packed_entry(key, *entry) for key, entry in keys.items())
    offset = 0
    for tensor in tensors:  # GGUF names the fastest dimension first
        head += packed(STRING, tensor.name) + struct.pack(f"<I{len(tensor.shape)}QIQ", len(tensor.shape),
                                                          *reversed(tensor.shape), tensor.kind, offset)
        offset += tensor.size_bytes + padding(tensor.size_bytes)
    part = path.with_suffix(".part")
    with open(part, "wb") as file:
        file.write(head + bytes(padding(len(head))))
        for tensor in tensors:
            file.writelines(tensor.pieces)
            file.write(bytes(padding(tensor.size_bytes)))
    part.rename(path)


def write_gguf(folder, path):
    """Makes `path` of the checkpoint in `folder`."""
    config = json.loads((folder / "config.json").read_text())
    architecture = ARCHITECTURES.get(config["architectures"][0])
    if not architecture:
        raise Unsupported(f"it is a {config['architectures'][0]}, want one of {', '.join(ARCHITECTURES)}")
    write_file(path, metadata(folder, config, architecture), list(converted(config, read_tensors(folder))))
