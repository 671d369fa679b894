"""Checkpoints as NVIDIA's ModelOpt writes them: with the quantisation in config.json (since version 0.30) or in
hf_quant_config.json alone (before), against the same values in float32.

The layouts are written here by their definition, values are dequantised in float64. No rule is taken from Pinion's
reader.
"""

import json
import shutil

import numpy as np
import pytest

from checkpoint import Tensor
from test_nvfp4 import Stored, e4m3_values, logits, model_opt, nearest, packed_and_plain, rms, with_tensors


class StoredFp8:
    """A matrix in e4m3: bytes, and the number by which they are multiplied."""

    def __init__(self, weights):
        self.scale = np.float32(np.abs(weights).max() / 448)
        codes = nearest(e4m3_values(), np.abs(weights.astype(np.float64)) / self.scale)
        self.codes = (codes | (weights < 0) << 7).astype(np.uint8)
        self.weights = np.where(weights < 0, -1, 1) * e4m3_values()[codes] * np.float64(self.scale)


def fp8(module, stored):
    return {f"{module}.weight": Tensor("F8_E4M3", stored.codes),
            f"{module}.weight_scale": Tensor("F32", np.array(stored.scale)),
            f"{module}.input_scale": Tensor("F32", np.array(0.25))}


KINDS = {"NVFP4": (Stored, model_opt, {"group_size": 16}), "FP8": (StoredFp8, fp8, {})}
UNROUNDED = ("--dtype", "float32", "--activations", "float")
CACHE_SCALES = {f"model.layers.0.self_attn.{name}_proj.{name}_scale": Tensor("F32", np.array(0.5)) for name in "kv"}


@pytest.fixture(scope="module")
def folders(data, tmp_path_factory):
    """folders(kind) -> (a checkpoint without any quantisation that would be stated, the same values in float32)."""
    made = {}

    def of(kind):
        if kind not in made:
            maker, layout, _ = KINDS[kind]
            packed, plain = packed_and_plain(data / "models/llama", maker, layout)
            packed |= CACHE_SCALES
            top = tmp_path_factory.mktemp(kind)
            made[kind] = (with_tensors(data / "models/llama", top / "packed", packed),
                          with_tensors(data / "models/llama", top / "plain", plain))
        return made[kind]
    return of


def stated_beside(source, folder, quantization, **fields):
    """A copy of the folder, with ModelOpt's file and further fields of config.json."""
    shutil.copytree(source, folder)
    (folder / "hf_quant_config.json").write_text(json.dumps(
        {"producer": {"name": "modelopt", "version": "0.29.0"}, "quantization": quantization}))
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | fields))
    return folder


def as_stated(kind, **fields):
    return {"quant_algo": kind, "kv_cache_quant_algo": "FP8", "exclude_modules": ["lm_head"], **KINDS[kind][2], **fields}


@pytest.mark.parametrize("fields", [{}, {"quantization_config": None}], ids=["absent", "null"])
@pytest.mark.parametrize("kind", KINDS)
def test_the_file_beside_config_json_states_the_quantisation(pinion, folders, tmp_path, kind, fields):
    packed, plain = folders(kind)
    stated = stated_beside(packed, tmp_path / "stated", as_stated(kind), **fields)
    got, want = (logits(pinion, folder, tmp_path, *UNROUNDED) for folder in (stated, plain))
    # The bound for a correct engine in float32 (the fixtures' README).
    assert np.abs(got - want).max() <= 3e-4 * rms(want)
    info = pinion("model", "info", stated).stdout
    assert "in NVFP4, a scale for each 16 inputs" in info if kind == "NVFP4" else "a scale for each matrix" in info


def stated_inside(source, folder, quantization):
    shutil.copytree(source, folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"quantization_config": quantization}))
    return folder


IN_CONFIG = {"quant_method": "modelopt", "quant_algo": "FP8", "ignore": ["lm_head"], "producer": {"name": "modelopt"}}


def test_fp8_in_config_json_is_read_alike(pinion, folders, tmp_path):
    packed, plain = folders("FP8")
    stated = stated_inside(packed, tmp_path / "stated", IN_CONFIG)
    got, want = (logits(pinion, folder, tmp_path, *UNROUNDED) for folder in (stated, plain))
    assert np.abs(got - want).max() <= 3e-4 * rms(want)


def test_fp8_activations_are_rounded_by_each_matrixs_scale(pinion, folders, tmp_path):
    """As those of the same tensors under compressed-tensors' name, of which a fixture has the reference's logits."""
    packed, plain = folders("FP8")
    eight = {"num_bits": 8, "type": "float", "strategy": "tensor", "dynamic": False, "symmetric": True}
    compressed = {"quant_method": "compressed-tensors", "format": "float-quantized", "ignore": ["lm_head"],
                  "config_groups": {"group_0": {"targets": ["Linear"], "weights": eight, "input_activations": eight}}}
    got, want, unrounded = (
        logits(pinion, folder, tmp_path, "--dtype", "float32")
        for folder in (stated_inside(packed, tmp_path / "modelopt", IN_CONFIG),
                       stated_inside(packed, tmp_path / "compressed", compressed), plain))
    assert np.array_equal(got, want)
    assert np.abs(got - unrounded).max() > 1e-2 * rms(unrounded)


def test_config_json_wins_over_the_file_beside_it(pinion, folders, tmp_path):
    packed, _ = folders("FP8")
    both = stated_beside(packed, tmp_path / "both", {"quant_algo": "W4A16_AWQ"},
                         quantization_config={"quant_method": "modelopt", "quant_algo": "FP8"})
    assert logits(pinion, both, tmp_path).size


ALLOWED = ("NVFP4, W4A16_NVFP4 or FP8; the model that it was made of can be quantised with `pinion model quantize`")
REFUSED = {
    "int4": ({"quant_algo": "W4A16_AWQ", "group_size": 128},
             f"'quant_algo' of the quantisation is 'W4A16_AWQ', want {ALLOWED}"),
    "mixed": ({"quant_algo": "MIXED_PRECISION", "quantized_layers": {}},
              f"'quant_algo' of the quantisation is 'MIXED_PRECISION', want {ALLOWED}"),
    "none": ({"quant_algo": None, "kv_cache_quant_algo": "FP8"}, f"'quant_algo' of the quantisation is '', want {ALLOWED}"),
    "number": ({"quant_algo": 4}, "'quant_algo'"),
    "group": (as_stated("NVFP4", group_size=32), "'group_size' of the quantisation is '32', want 16 for NVFP4"),
    "list": ([], "'quantization' is an array, want an object with 'quant_algo'"),
}


@pytest.mark.parametrize("which", REFUSED)
def test_what_pinion_does_not_read_is_refused_in_one_sentence(pinion, data, tmp_path, which):
    """Also of weights that are not quantised: they are never read otherwise than the file says."""
    quantization, sentence = REFUSED[which]
    done = pinion("model", "info", stated_beside(data / "models/llama", tmp_path / "stated", quantization))
    assert done.returncode == 1
    assert len(done.stderr.strip().splitlines()) == 1
    assert f"{tmp_path}/stated/hf_quant_config.json: " in done.stderr and sentence in done.stderr


def test_a_file_that_states_nothing_is_refused(pinion, data, tmp_path):
    folder = stated_beside(data / "models/llama", tmp_path / "stated", {})
    for text, why in (("{}", "'quantization' is missing"), ("{", "hf_quant_config.json")):
        (folder / "hf_quant_config.json").write_text(text)
        done = pinion("model", "info", folder)
        assert done.returncode == 1 and why in done.stderr and "hf_quant_config.json" in done.stderr
