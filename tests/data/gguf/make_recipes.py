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
            if name == "__metadata__":
                continue
            begin, end = (8 + length + at for at in tensor["data_offsets"])
            kind = numpy.uint16 if tensor["dtype"] == "BF16" else numpy.float32
            values = numpy.frombuffer(raw[begin:end], kind).reshape(tensor["shape"])
            if kind is numpy.uint16:
                values = (values.astype(numpy.uint32) << 16).view(numpy.float32)
            found[name] = values
    groups = {}
    for name in found:
        groups.setdefault(re.sub(r"experts\.\d+\.", "experts.*.", name), []).append(name)
    for names in groups.values():
        names.sort(key=lambda name: [int(digits) for digits in re.findall(r"\d+", name)])
        yield names, found[names[0]] if len(names) == 1 else numpy.stack([found[name] for name in names])


def interleaved(a, heads):
    return a.reshape(heads, 2, a.shape[0] // heads // 2, *a.shape[1:]).swapaxes(1, 2)


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
    groups = list(read_checkpoint(checkpoint))
    raw = pathlib.Path(path).read_bytes()
    recipe = {"head": raw[:reader.data_offset].hex(), "sha256": hashlib.sha256(raw).hexdigest(), "tensors": [
        {"name": tensor.name, "type": tensor.tensor_type.name, "offset": int(tensor.data_offset),
         **describe(tensor, groups, stored)} for tensor in reader.tensors]}
    part = re.search(r"-\d{5}-of-\d{5}(?=\.gguf$)", path)
    out = pathlib.Path(__file__).with_name(f"{checkpoint.name}{part[0] if part else ''}.json.gz")
    out.write_bytes(gzip.compress(json.dumps(recipe).encode(), mtime=0))
