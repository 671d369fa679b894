"""A copy of the trained fixture that computes the same with 4 channels behind every layer's norms FACTOR times as large.
Alone: large_channels.py FIXTURE FACTOR DIR
"""

import pathlib
import random
import re
import shutil
import sys

from checkpoint import Tensor, read_file, write_file


def with_large_channels(original, factor, folder):
    shutil.copytree(original, folder)
    channels = random.Random(19).sample(range(128), 4)
    tensors = {}
    for name, (kind, values) in read_file(original / "model.safetensors").items():
        values = values.copy()
        if re.search(r"layers.*layernorm", name):
            values[channels] *= factor
            kind = "F32"
        elif re.search(r"(q|k|v|gate|up)_proj", name):
            values[:, channels] /= factor
            kind = "F32"
        tensors[name] = Tensor(kind, values)
    write_file(folder / "model.safetensors", tensors)
    return folder


if __name__ == "__main__":
    with_large_channels(pathlib.Path(sys.argv[1]), float(sys.argv[2]), pathlib.Path(sys.argv[3]))
