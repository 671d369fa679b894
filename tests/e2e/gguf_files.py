"""GGUF files that llama.cpp's converter made of the small checkpoints, put together again from those checkpoints.

tests/data/gguf/NAME.json.gz holds a file's header and, for each tensor, the operation that makes it of the
checkpoint's tensors (make_recipes.py there); a digest says that every byte is the converter's.
"""

import gzip
import hashlib
import json
import struct


def read_checkpoint(folder):
    """name -> (shape, elements): a list of two or four bytes each."""
    found = {}
    for path in sorted(folder.glob("model*.safetensors")):
        raw = path.read_bytes()
        length = struct.unpack("<Q", raw[:8])[0]
        for name, tensor in json.loads(raw[8:8 + length]).items():
            if name != "__metadata__":
                begin, end = (8 + length + at for at in tensor["data_offsets"])
                size = {"BF16": 2, "F32": 4}[tensor["dtype"]]
                found[name] = tensor["shape"], [raw[at:at + size] for at in range(begin, end, size)]
    return found


def as_f32(element):
    return element if len(element) == 4 else b"\0\0" + element


def turned(shape, elements):
    """[a][b][c] -> [a][c][b], as a list of its rows."""
    _, inner, last = shape if len(shape) == 3 else (1, *shape)
    return [elements[at + column:at + inner * last:last]
            for at in range(0, len(elements), inner * last) for column in range(last)]


def rows_of(shape, elements):
    width = shape[-1] if len(shape) > 1 else 1
    return [elements[at:at + width] for at in range(0, len(elements), width)]


def joined(rows):
    return [element for row in rows for element in row]


def retiled(rows, first, keys, values, unit):
    """The rows of `values` heads of each of `keys` after the first rows: those of all first heads come before."""
    heads = [rows[at:at + unit] for at in range(first, len(rows), unit)]
    return rows[:first] + joined(heads[key * values + value] for value in range(values) for key in range(keys))


def cut(rows, keys, first, last, *widths):
    """Of each of `keys` groups of rows, which are cut into parts, some parts; one part of all groups, then the next."""
    group = len(rows) // keys
    return joined(rows[key * group + sum(widths[:part]):key * group + sum(widths[:part + 1])]
                  for part in range(first, last) for key in range(keys))


def scaled(element, factors):
    for factor in factors:
        factor, = struct.unpack("<f", struct.pack("<f", factor))
        element = struct.pack("<f", struct.unpack("<f", as_f32(element))[0] * factor)
    return element


def transformed(operation, shape, elements):
    name, *numbers = operation.split()
    if name == "same":
        return elements
    if name == "plus1":
        return [struct.pack("<f", struct.unpack("<f", as_f32(element))[0] + 1) for element in elements]
    if name == "turned":
        rows = turned(shape, elements)
        half = shape[-1] // 2
        halves = {"even": rows[::2], "odd": rows[1::2],
                  "first": [row for at, row in enumerate(rows) if at // half % 2 == 0],
                  "second": [row for at, row in enumerate(rows) if at // half % 2 == 1]}
        return joined(halves[numbers[0]] if numbers else rows)
    if name in ("even", "odd"):
        return joined(row[name == "odd"::2] for row in rows_of(shape, elements))
    rows = rows_of(shape, elements)
    if name == "scaled":
        runs = json.loads(numbers[0])
        factors = [run[1:] for run in runs for _ in range(run[0])]
        return [scaled(element, of_row) for row, of_row in zip(rows, factors, strict=True) for element in row]
    numbers = list(map(int, numbers))
    if name == "half":
        return joined(row for at, row in enumerate(rows) if at % shape[-2] // (shape[-2] // 2) == numbers[0])
    if name == "tiled":
        return joined(retiled(rows, *numbers))
    if name == "tiled_columns":
        return joined(retiled(row, 0, *numbers) for row in rows)
    if name == "cut":
        return joined(cut(rows, *numbers))
    if name == "pairs":
        head = len(rows) // numbers[0]
        return joined(rows[first + half * head // 2 + i]
                      for first in range(0, len(rows), head) for i in range(head // 2) for half in (0, 1))
    heads, nope, value = numbers
    firsts = range(0, heads * (nope + value), nope + value)
    if name == "values":
        return joined(joined(rows[first + nope:first + nope + value]) for first in firsts)
    assert name == "keys"
    keys = [joined(rows[first:first + nope]) for first in firsts]
    return joined(joined(turned([nope, shape[-1]], of_head)) for of_head in keys)


def tensor_bytes(tensor, checkpoint):
    if "literal" in tensor:
        return struct.pack(f"<{len(tensor['literal'])}f", *tensor["literal"])
    shapes, lists = zip(*(checkpoint[name] for name in tensor["of"]))
    elements = transformed(tensor["operation"], shapes[0], joined(lists))
    return b"".join(map(as_f32, elements) if tensor["type"] == "F32" else elements)


def write_gguf(data, name, path, checkpoint=None):
    """Makes `path` of tests/data/gguf/NAME.json.gz."""
    folder = data / "models" / (checkpoint or name)
    recipe = json.loads(gzip.decompress((data / "gguf" / f"{name}.json.gz").read_bytes()))
    stored = read_checkpoint(folder)
    file = bytearray.fromhex(recipe["head"])
    for tensor in sorted(recipe["tensors"], key=lambda tensor: tensor["offset"]):
        file += bytes(tensor["offset"] - len(file)) + tensor_bytes(tensor, stored)
    file += bytes(-len(file) % 32)
    assert hashlib.sha256(file).hexdigest() == recipe["sha256"]
    path.write_bytes(file)
