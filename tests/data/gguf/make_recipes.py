"""Writes NAME.json.gz beside itself: how the GGUF file that llama.cpp's converter makes of a checkpoint arises from it.

    make_recipes.py CHECKPOINT FILE.gguf ...

The header is kept as it is. Each tensor is described by the checkpoint's tensors and an operation, both found by
comparing values, so no rule of Pinion's reader is in them; a digest of all bytes closes the description.
Needs the `gguf` package and numpy.
"""

import gzip
import hashlib
import json
import pathlib
import re
import struct
import sys

import gguf
import numpy


def read_checkpoint(folder):
    """Groups of tensors, the experts of a matrix together: (names, float32 arrays stacked)."""
    found = {}
    for path in sorted(folder.glob("model*.safetensors")):
        raw = path.read_bytes()
        length = struct.unpack("<Q", raw[:8])[0]
        for name, tensor in json.loads(raw[8:8 + length]).items():
            if name == "__metadata__" or not tensor["shape"]:
                continue
            begin, end = (8 + length + at for at in tensor["data_offsets"])
            kind = numpy.uint16 if tensor["dtype"] == "BF16" else numpy.float32
            values = numpy.frombuffer(raw[begin:end], kind).reshape(tensor["shape"])
            if kind is numpy.uint16:
                values = (values.astype(numpy.uint32) << 16).view(numpy.float32)
            found[name] = values
    groups = {}
    for name in found:
        groups.setdefault(re.sub(r"(experts|altup_\w+)\.\d+\.", r"\1.*.", name), []).append(name)
    for names in groups.values():
        names.sort(key=lambda name: [int(digits) for digits in re.findall(r"\d+", name)])
        yield names, found[names[0]] if len(names) == 1 else numpy.stack([found[name] for name in names])


def interleaved(a, heads):
    return a.reshape(heads, 2, a.shape[0] // heads // 2, *a.shape[1:]).swapaxes(1, 2)


def tiled(a, first, keys, values, unit):
    """Rows after the `first` ones, of `values` heads for each of `keys`, with those of all first heads before."""
    heads = a[first:].reshape(keys, values, unit, *a.shape[1:]).swapaxes(0, 1)
    return numpy.concatenate([a[:first], heads.reshape(a[first:].shape)])


def of_value_heads(a, config):
    keys, key_dim, unit = (config[f"linear_{name}"] for name in ("num_key_heads", "key_head_dim", "value_head_dim"))
    values = config["linear_num_value_heads"] // keys
    for first, width in (0, 1), (0, unit), (2 * keys * key_dim, unit):
        if a.shape[0] == first + keys * values * width:
            yield f"tiled {first} {keys} {values} {width}", tiled(a, first, keys, values, width)
    if a.ndim == 2 and a.shape[1] == keys * values * unit:
        yield f"tiled_columns {keys} {values} {unit}", tiled(a.T, 0, keys, values, unit).T
    widths = [key_dim, key_dim, values * unit, values * unit]
    if a.ndim == 2 and a.shape[0] == keys * sum(widths):
        cuts = numpy.split(a.reshape(keys, sum(widths), -1), numpy.cumsum(widths)[:-1], axis=1)
        for first, last in (0, 3), (3, 4):
            yield (f"cut {keys} {first} {last} {' '.join(map(str, widths))}",
                   numpy.concatenate([cut.reshape(-1, a.shape[1]) for cut in cuts[first:last]]))


def scaled(a, runs):
    """Runs of rows, each multiplied by its factors one after the other."""
    parts, begin = [], 0
    for rows, *factors in runs:
        part = a[begin:begin + rows]
        for factor in factors:
            part = part * numpy.float32(factor)
        parts.append(part)
        begin += rows
    return numpy.concatenate(parts)


def with_multipliers(a, config):
    """Falcon-H1's, which are parts of the weights."""
    rows, inner = a.shape[0], config["mamba_d_ssm"]
    state = config["mamba_n_groups"] * config["mamba_d_state"]
    sections = [inner, inner, state, state, config["mamba_n_heads"]]
    runs = [[[rows, factor]] for factor in [*config["mlp_multipliers"], *(
        config[f"{name}_multiplier"] for name in ("embedding", "lm_head", "key", "attention_out", "ssm_out"))]]
    if rows == sum(sections):
        runs.append([[rows, config["ssm_in_multiplier"], factor] for rows, factor
                     in zip(sections, config["ssm_multipliers"])])
    for each in runs:
        yield f"scaled {json.dumps(each, separators=(',', ':'))}", scaled(a, each)


def operations(a, config):
    yield "same", a
    yield "plus1", a + numpy.float32(1)
    for heads in {config["num_attention_heads"], config.get("num_key_value_heads", 1)}:
        if a.shape[0] % (2 * heads) == 0:
            yield f"pairs {heads}", interleaved(a, heads)
    if a.ndim == 3:
        turned = a.swapaxes(1, 2)
        yield "turned", turned
        yield "turned even", turned[:, ::2]
        yield "turned odd", turned[:, 1::2]
        yield "turned first", turned[:, :turned.shape[1] // 2]
        yield "turned second", turned[:, turned.shape[1] // 2:]
    if a.ndim >= 2 and a.shape[-2] % 2 == 0:
        middle = a.shape[-2] // 2
        yield "half 0", a[..., :middle, :]
        yield "half 1", a[..., middle:, :]
    if "linear_num_key_heads" in config:
        yield from of_value_heads(a, config)
    if "ssm_multipliers" in config:
        yield from with_multipliers(a, config)
    if a.ndim == 2:
        yield "even", a[:, ::2]
        yield "odd", a[:, 1::2]
    if "kv_lora_rank" in config and a.ndim == 2:
        heads, nope, value = config["num_attention_heads"], config["qk_nope_head_dim"], config["v_head_dim"]
        if a.shape[0] == heads * (nope + value):
            split = a.reshape(heads, nope + value, -1)
            yield f"keys {heads} {nope} {value}", split[:, :nope].swapaxes(1, 2)
            yield f"values {heads} {nope} {value}", split[:, nope:]


def describe(tensor, groups, config):
    values = tensor.data
    if tensor.tensor_type == gguf.GGMLQuantizationType.BF16:
        values = (values.view(numpy.uint16).astype(numpy.uint32) << 16).view(numpy.float32)
    for names, stacked in groups:
        for operation, result in operations(stacked, config):
            if result.size == values.size and numpy.array_equal(result.ravel(), values.ravel()):
                return {"of": names, "operation": operation}
    if values.size > 256:
        sys.exit(f"{tensor.name} is in no tensor of the checkpoint")
    return {"literal": values.ravel().tolist()}


for folder, path in zip(sys.argv[1::2], sys.argv[2::2]):
    reader = gguf.GGUFReader(path)
    checkpoint = pathlib.Path(folder)
    stored = json.loads((checkpoint / "config.json").read_text())
    stored = stored.get("text_config", stored)
    groups = list(read_checkpoint(checkpoint))
    raw = pathlib.Path(path).read_bytes()
    recipe = {"head": raw[:reader.data_offset].hex(), "sha256": hashlib.sha256(raw).hexdigest(), "tensors": [
        {"name": tensor.name, "type": tensor.tensor_type.name, "offset": int(tensor.data_offset),
         **describe(tensor, groups, stored)} for tensor in reader.tensors]}
    part = re.search(r"-\d{5}-of-\d{5}(?=\.gguf$)", path)
    out = pathlib.Path(__file__).with_name(f"{checkpoint.name}{part[0] if part else ''}.json.gz")
    out.write_bytes(gzip.compress(json.dumps(recipe).encode(), mtime=0))
