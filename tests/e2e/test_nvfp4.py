"""NVFP4 checkpoints, laid out here as their tools publish them, against the same values in float32.

The layouts are those of compressed-tensors (compressors/nvfp4) and of NVIDIA's ModelOpt; values are dequantised in
float64 by their definition. No rule is taken from Pinion's reader.
"""

import itertools
import json
import shutil
import sys

import numpy as np
import pytest

from checkpoint import Tensor, read_checkpoint, read_file, write_file
from conftest import ISA_PATHS, TOP
from test_quantised import INT8_ACTIVATIONS_RMS

sys.path.insert(0, str(TOP / "scripts"))
from peers import gguf  # noqa: E402

E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])
GROUP = 16


def e4m3_values():
    """Of the 127 bytes without sign, in ascending order."""
    codes = np.arange(127)
    exponent, mantissa = codes >> 3, codes & 7
    return np.where(exponent == 0, mantissa / 8 * 2.0**-6, (1 + mantissa / 8) * 2.0 ** (exponent - 7))


def nearest(values, wanted):
    """Indices of the nearest of ascending values."""
    return np.searchsorted((values[1:] + values[:-1]) / 2, wanted)


class Stored:
    """A matrix in NVFP4: bytes of codes, bytes of scales, and the number by which those are divided."""

    def __init__(self, weights, divisor=None):
        groups = weights.astype(np.float64).reshape(len(weights), -1, GROUP)
        most = np.abs(groups).max(axis=2)
        self.divisor = np.float32(divisor or 448 * 6 / most.max())
        self.scales = nearest(e4m3_values(), most / 6 * self.divisor).astype(np.uint8)
        steps = (e4m3_values()[self.scales] / np.float64(self.divisor))[..., None]
        codes = nearest(E2M1, np.abs(groups) / np.where(steps > 0, steps, 1))
        self.weights = (np.where(groups < 0, -1, 1) * E2M1[codes] * steps).reshape(weights.shape)
        self.nibbles = (codes | (groups < 0) << 3).astype(np.uint8)  # [rows][groups][16]
        flat = self.nibbles.reshape(len(weights), -1)
        self.codes = flat[:, 0::2] | flat[:, 1::2] << 4


def compressed_tensors(module, stored):
    return {f"{module}.weight_packed": Tensor("U8", stored.codes),
            f"{module}.weight_scale": Tensor("F8_E4M3", stored.scales),
            f"{module}.weight_global_scale": Tensor("F32", np.array([stored.divisor])),
            f"{module}.input_global_scale": Tensor("F32", np.array([17.0]))}


def model_opt(module, stored):
    return {f"{module}.weight": Tensor("U8", stored.codes),
            f"{module}.weight_scale": Tensor("F8_E4M3", stored.scales),
            f"{module}.weight_scale_2": Tensor("F32", np.array(1 / stored.divisor)),
            f"{module}.input_scale": Tensor("F32", np.array(0.25))}


WEIGHTS = {"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16, "symmetric": True,
           "dynamic": False}
WAYS = {
    "compressed-tensors": (compressed_tensors, {
        "quant_method": "compressed-tensors", "format": "nvfp4-pack-quantized", "ignore": ["lm_head"],
        "config_groups": {"group_0": {"format": "nvfp4-pack-quantized", "targets": ["Linear"], "weights": WEIGHTS,
                                      "input_activations": WEIGHTS | {"dynamic": "local"}}}}),
    "modelopt": (model_opt, {"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": ["lm_head"],
                             "producer": {"name": "modelopt"}}),
}


def is_linear(name, tensor):
    return ".layers." in name and name.endswith("_proj.weight") and tensor.values.ndim == 2


def with_tensors(source, folder, tensors, **fields):
    shutil.copytree(source, folder)
    for path in folder.glob("model*.safetensors*"):
        path.unlink()
    write_file(folder / "model.safetensors", tensors)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | fields))
    return folder


def packed_and_plain(folder, store, layout):
    """A checkpoint's tensors with the linear weights as `store` rounds them: as `layout` writes them, and in float32."""
    packed, plain = {}, {}
    for name, tensor in read_checkpoint(folder).items():
        if not is_linear(name, tensor):
            packed[name] = plain[name] = tensor
            continue
        stored = store(tensor.values)
        packed |= layout(name.removesuffix(".weight"), stored)
        plain[name] = Tensor("F32", stored.weights.astype(np.float32))
    return packed, plain


def stores_exactly():
    """A maker of matrices whose values bfloat16 holds, because divisors are powers of two, each another than the last."""
    count = itertools.count()

    def store(weights):
        return Stored(weights, 2.0 ** (np.floor(np.log2(448 * 6 / np.abs(weights).max())) - next(count) % 3))
    return store


@pytest.fixture(scope="module")
def folders(data, tmp_path_factory):
    """folders(model, way, exactly) -> (the checkpoint in NVFP4, the same values in float32), made once."""
    made = {}

    def of(model, way, exactly=False):
        if (model, way, exactly) not in made:
            layout, config = WAYS[way]
            packed, plain = packed_and_plain(data / "models" / model, stores_exactly() if exactly else Stored, layout)
            top = tmp_path_factory.mktemp(f"{model}-{way}")
            made[model, way, exactly] = (
                with_tensors(data / "models" / model, top / "packed", packed, quantization_config=config),
                with_tensors(data / "models" / model, top / "plain", plain))
        return made[model, way, exactly]
    return of


def logits(pinion, folder, tmp_path, *flags):
    ids, written = tmp_path / "ids.jsonl", tmp_path / "logits.safetensors"
    ids.write_text(json.dumps({"input_ids": [5 + 3 * i for i in range(40)]}) + "\n")
    done = pinion("score", folder, "--input", ids, "--logits", written, "--output", tmp_path / "scores.jsonl",
                  "--kv-cache-space", "64MiB", *flags)
    assert done.returncode == 0, done.stderr
    return read_file(written)["prompt0.logits"].values.astype(np.float64)


def rms(values):
    return np.sqrt((values**2).mean())


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("model", ["llama", "qwen3moe"])
def test_float32_gives_the_results_of_the_values(pinion, folders, tmp_path, model, way):
    packed, plain = (logits(pinion, folder, tmp_path, "--dtype", "float32") for folder in folders(model, way))
    # The bound for a correct engine in float32 (the fixtures' README).
    assert np.abs(packed - plain).max() <= 3e-4 * rms(plain)


# Not the mixture: where rounding chooses another expert, no bound is known.
@pytest.mark.parametrize("isa", ISA_PATHS)
def test_integers_stay_near_the_values_on_every_path(pinion, folders, tmp_path, need_isa, isa):
    need_isa(isa)
    packed, plain = folders("llama", "compressed-tensors")
    got = logits(pinion, packed, tmp_path, "--isa", isa)
    want = logits(pinion, plain, tmp_path, "--dtype", "float32")
    assert rms(got - want) <= INT8_ACTIVATIONS_RMS


# A cut lies between groups of 16 inputs.
RANKS = {"one rank": ("--activations", "bf16"), "two ranks": ("--activations", "float", "--tensor-parallel-size", "2")}


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("model", ["llama", "qwen3moe"])
def test_every_weight_in_memory_is_its_value(pinion, folders, tmp_path, need_isa, model, ranks):
    """If bfloat16 holds the values, the checkpoint and the values alone give the same weights, and so the same sums and
    experts, whatever else is rounded: a scale of another tensor or expert would show."""
    need_isa("avx2")
    flags = ("--dtype", "bfloat16", "--isa", "avx2", "--gemm-kernel", "avx2", *RANKS[ranks])
    got, want = (logits(pinion, folder, tmp_path, *flags) for folder in folders(model, "modelopt", exactly=True))
    assert np.abs(got - want).max() <= 3e-4 * rms(want)


def test_model_info_names_the_format_and_its_bytes(pinion_json, folders):
    """A weight takes 4 bits of a file and of memory, and the scale of 16 weights 8 bits."""
    packed, plain = folders("llama", "compressed-tensors")
    info = pinion_json("model", "info", packed, "--json")
    shapes = {name: tensor.values.shape for name, tensor in read_checkpoint(plain).items()}
    linears = {name: shape for name, shape in shapes.items() if ".layers." in name and name.endswith("_proj.weight")}
    weights = sum(outputs * inputs for outputs, inputs in linears.values())
    whole = 4 * len(linears)  # bytes of the matrices' own factors
    assert info["stored"]["bytes"]["NVFP4"] - whole == weights * 4.5 / 8

    merged = {}  # q, k and v are one matrix in memory, gate and up another: (layer, which) -> [outputs, inputs]
    for name, (outputs, inputs) in linears.items():
        layer, which = name.split(".")[2], name.split(".")[4]
        which = {"k_proj": "q_proj", "v_proj": "q_proj", "up_proj": "gate_proj"}.get(which, which)
        merged.setdefault((layer, which), [0, inputs])[0] += outputs
    assert info["packed"]["int4_matrices"] == len(merged)
    # 64 outputs are a block (kBlockN of kernels/kernels.h), with 8 bytes for each; norms are kept in float32.
    in_memory = sum(-(-outputs // 64) * 64 * (inputs * 4.5 / 8 + 8) for outputs, inputs in merged.values())
    others = sum(2 * shape[0] * shape[1] if len(shape) == 2 else 4 * shape[0]
                 for name, shape in shapes.items() if name not in linears)
    assert info["packed"]["bytes"] == in_memory + others


BROKEN = {
    "scales": (lambda tensors: tensors.pop("model.layers.0.mlp.up_proj.weight_scale"),
               "'model.layers.0.mlp.up_proj' has no 'weight_scale'"),
    "whole": (lambda tensors: tensors.pop("model.layers.0.mlp.up_proj.weight_global_scale"),
              "'model.layers.0.mlp.up_proj' has no 'weight_global_scale'"),
    "zero": (lambda tensors: tensors.update(
        {"model.layers.0.mlp.up_proj.weight_global_scale": Tensor("F32", np.zeros(1))}),
        "'model.layers.0.mlp.up_proj.weight_global_scale' holds 0, want a positive number with a finite inverse"),
    "inputs": (lambda tensors: tensors.update(
        {"model.layers.0.mlp.up_proj.weight_packed": Tensor("U8", np.zeros((4, 12), np.uint8))}),
        "'model.layers.0.mlp.up_proj' has 24 inputs, want a multiple of 16 in NVFP4"),
}


@pytest.mark.parametrize("which", BROKEN)
def test_a_tensor_that_does_not_fit_is_named(pinion, folders, tmp_path, which):
    source = folders("llama", "compressed-tensors")[0]
    tensors = read_checkpoint(source)
    change, sentence = BROKEN[which]
    change(tensors)
    done = pinion("run", with_tensors(source, tmp_path / "broken", tensors), "--prompt", "x", "--kv-cache-space", "64MiB")
    assert done.returncode == 1
    assert sentence in done.stderr


# ---- In GGUF files: blocks of four groups, and the scale of the matrix in a tensor of its own ----------------------

NVFP4 = 40
SMALL = {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "hidden_size": 64, "intermediate_size": 128,
         "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "vocab_size": 512,
         "max_position_embeddings": 512, "rms_norm_eps": 1e-5, "bos_token_id": 1, "eos_token_id": 2, "rope_theta": 1e4,
         "torch_dtype": "bfloat16", "tie_word_embeddings": True}


def gguf_blocks(stored):
    """Groups of four: their scales, then for each the low nibbles of its first eight values and the high of the rest."""
    halves = stored.nibbles[..., :8] | stored.nibbles[..., 8:] << 4
    scales = stored.scales.reshape(len(halves), -1, 4)
    return np.concatenate([scales, halves.reshape(*scales.shape[:2], 32)], axis=2).tobytes()


def in_nvfp4(tensor):
    """(the tensors to store, the tensor that they mean)"""
    bits = np.frombuffer(b"".join(map(bytes, tensor.pieces)), np.uint16).astype(np.uint32) << 16
    stored = Stored(bits.view(np.float32).reshape(tensor.shape))
    blocks, meant = gguf_blocks(stored), stored.weights.astype(np.float32).tobytes()
    scale = np.float32(1 / stored.divisor).tobytes()
    return ([gguf.Tensor(tensor.name, tensor.shape, NVFP4, len(blocks), [blocks]),
             gguf.Tensor(tensor.name.replace(".weight", ".scale"), [1], gguf.TENSOR_F32, 4, [scale])],
            gguf.Tensor(tensor.name, tensor.shape, gguf.TENSOR_F32, len(meant), [meant]))


def test_a_gguf_file_in_nvfp4_gives_the_results_of_its_values(pinion, tmp_path):
    config, folder = tmp_path / "config.json", tmp_path / "folder"
    config.write_text(json.dumps(SMALL))
    assert pinion("model", "make", "--config", config, folder).returncode == 0
    stored, meant = [], []
    for tensor in gguf.converted(SMALL, gguf.read_tensors(folder)):
        if tensor.name.startswith("blk.") and tensor.kind == gguf.TENSOR_BF16:
            pieces, plain = in_nvfp4(tensor)
            stored += pieces
            meant.append(plain)
        else:
            stored.append(tensor)
            meant.append(tensor)
    files = [tmp_path / "stored.gguf", tmp_path / "meant.gguf"]
    for path, tensors in zip(files, (stored, meant)):
        gguf.write_file(path, gguf.metadata(folder, SMALL, "qwen3"), tensors)
    packed, plain = (logits(pinion, path, tmp_path, "--dtype", "float32") for path in files)
    assert np.abs(packed - plain).max() <= 3e-4 * rms(plain)
