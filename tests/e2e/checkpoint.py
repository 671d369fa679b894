"""Checkpoints as their formats define them, read and written without Pinion: safetensors, and in them
the linears of compressed-tensors (int8), AWQ and GPTQ (int4)."""

import json
import struct
from typing import NamedTuple

import numpy as np

# FP8 is read and written as bytes.
KINDS = {"F8_E4M3": np.uint8, "F64": np.float64, "F32": np.float32, "F16": np.float16, "I64": np.int64, "I32": np.int32, "I8": np.int8, "U8": np.uint8}
AWQ_ORDER = [0, 2, 4, 6, 1, 3, 5, 7]  # which of eight outputs each nibble of a word holds, lowest first
SHIFTS = np.arange(0, 32, 4, dtype=np.uint32)


class Tensor(NamedTuple):
    kind: str  # of the file, "BF16"
    values: np.ndarray  # BF16 as float32


def read_file(path):
    """{name: Tensor} of one safetensors file."""
    raw = path.read_bytes()
    (length,) = struct.unpack("<Q", raw[:8])
    header = json.loads(raw[8:8 + length])
    header.pop("__metadata__", None)
    tensors = {}
    for name, entry in header.items():
        begin, end = (8 + length + offset for offset in entry["data_offsets"])
        if entry["dtype"] == "BF16":  # the upper half of a float32
            values = (np.frombuffer(raw[begin:end], np.uint16).astype(np.uint32) << 16).view(np.float32)
        else:
            values = np.frombuffer(raw[begin:end], KINDS[entry["dtype"]])
        tensors[name] = Tensor(entry["dtype"], values.reshape(entry["shape"]))
    return tensors


def read_checkpoint(folder):
    """{name: Tensor} of all files that the index names, or of the only one."""
    index = folder / "model.safetensors.index.json"
    names = {"model.safetensors"}
    if index.exists():
        names = set(json.loads(index.read_text())["weight_map"].values())
    tensors = {}
    for name in names:
        tensors |= read_file(folder / name)
    return tensors


def write_file(path, tensors):
    header, parts, end = {}, [], 0
    for name, (kind, values) in tensors.items():
        if kind == "BF16":
            bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
            assert not (bits & 0xffff).any(), f"{name} does not fit bfloat16"
            part = (bits >> 16).astype(np.uint16).tobytes()
        else:
            part = np.ascontiguousarray(values, KINDS[kind]).tobytes()
        header[name] = {"dtype": kind, "shape": list(values.shape), "data_offsets": [end, end + len(part)]}
        parts.append(part)
        end += len(part)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(parts))


class Linear(NamedTuple):
    """weight[o][i] = scales[o][i // group] (codes[o][i] - zeros[o][i // group])"""
    codes: np.ndarray
    scales: np.ndarray
    zeros: np.ndarray

    @property
    def group(self):
        return self.codes.shape[1] // self.scales.shape[1]

    def weights(self):
        """In float32: exact for 4 bits and float16 scales, rounded once for 8 bits and float32 scales."""
        codes, zeros = self.codes.astype(np.float32), self.zeros.astype(np.float32)
        spread = [np.repeat(of_group, self.group, axis=1) for of_group in (self.scales, zeros)]
        return spread[0] * (codes - spread[1])


def nibbles(words):
    """[...] words -> [..., 8], the lowest first"""
    return (words.view(np.uint32)[..., None] >> SHIFTS & 15).astype(np.int32)


def read_int8(of, config):
    (group,) = config["config_groups"].values()
    assert config["format"] == "int-quantized" and group["weights"]["num_bits"] == 8
    assert group["weights"]["symmetric"] and group["weights"]["strategy"] == "channel"
    scales = of["weight_scale"]
    return Linear(of["weight"], scales, np.zeros_like(scales))


def awq_outputs(words):
    """[rows][words] -> [rows][outputs]"""
    return nibbles(words)[..., np.argsort(AWQ_ORDER)].reshape(len(words), -1)


def read_awq(of, config):
    assert (config["version"], config["bits"], config["zero_point"]) == ("gemm", 4, True)
    return Linear(awq_outputs(of["qweight"]).T, of["scales"].astype(np.float32).T, awq_outputs(of["qzeros"]).T)


def read_gptq(of, config):
    assert (config["checkpoint_format"], config["bits"], config["desc_act"]) == ("gptq", 4, False)
    words = of["qweight"]  # [inputs / 8][outputs]
    codes = np.moveaxis(nibbles(words), 2, 1).reshape(-1, words.shape[1])
    groups = len(of["scales"])
    assert (of["g_idx"] == np.arange(len(codes)) // (len(codes) // groups)).all()
    zeros = nibbles(of["qzeros"]).reshape(groups, -1) + 1  # of version 1 of the format
    return Linear(codes.T, of["scales"].astype(np.float32).T, zeros.T)


READERS = {"compressed-tensors": (read_int8, "weight weight_scale"), "awq": (read_awq, "qweight qzeros scales"),
           "gptq": (read_gptq, "qweight qzeros scales g_idx")}


def read_quantised(folder):
    """({module: Linear}, {name: Tensor} of all that is not quantised)"""
    config = json.loads((folder / "config.json").read_text())["quantization_config"]
    read, suffixes = READERS[config["quant_method"]]
    suffixes = suffixes.split()
    rest = read_checkpoint(folder)
    modules = [name.removesuffix("." + suffixes[1]) for name in rest if name.endswith("." + suffixes[1])]
    linears = {}
    for module in modules:
        parts = {suffix: rest.pop(f"{module}.{suffix}").values for suffix in suffixes}
        linears[module] = read(parts, config)
        stated = config.get("group_size", -1)
        assert linears[module].group == (linears[module].codes.shape[1] if stated == -1 else stated)
    return linears, rest
