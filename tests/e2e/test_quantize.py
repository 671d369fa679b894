"""`pinion model quantize`: its checkpoints are complete, gain by calibration, and run; failures leave nothing
behind. test_quantize_rounding.py reads the weights themselves. No bound is a figure that Pinion once gave."""

import json
import math
import os
import random
import resource
import shutil
import signal
import subprocess

import numpy as np
import pytest

from checkpoint import read_file
from large_channels import with_large_channels
from quantised_copy import with_outliers

MODEL = "models/tiny-trained"
SMALL = ["--kv-cache-space", "64MiB", "--threads-bind", "nobind"]
# Logits of float32 engines err by up to 3e-4 of their RMS, here 4.65 nats (the fixtures' README): a KL
# divergence of half of its square.
FLOAT32_NATS = (3e-4 * 4.65)**2 / 2


@pytest.fixture(scope="module")
def texts(data, tmp_path_factory):
    """(what is calibrated on, what is measured on)"""
    folder = tmp_path_factory.mktemp("texts")
    text = (data / MODEL / "heldout.txt").read_text()
    half = len(text) // 2
    paths = folder / "calibration.txt", folder / "measured.txt"
    for path, part in zip(paths, (text[:half], text[half:half + 12000])):
        path.write_text(part)
    return paths


@pytest.fixture
def quantize(pinion, data, tmp_path):
    """quantize(target, flags...) -> the folder"""

    def run(target, *flags, model=MODEL):
        folder = tmp_path / f"{target}-{len(list(tmp_path.iterdir()))}"
        done = pinion("model", "quantize", data / model, folder, "--to", target, *flags)
        assert done.returncode == 0, done.stderr
        return folder

    return run


@pytest.fixture(scope="module")
def compare(pinion, pinion_json, data, texts, tmp_path_factory):
    """compare(folder, flags...) -> what `score --compare` finds, against the original in float32 arithmetic,
    whose logits are computed once."""

    def score(model):
        return ["score", model, "--input", texts[1], "--window", 256, *SMALL]

    logits = tmp_path_factory.mktemp("reference") / "logits.safetensors"
    done = pinion(*score(data / MODEL), "--dtype", "float32", "--logits", logits, "--output", logits.with_suffix(".jsonl"))
    assert done.returncode == 0, done.stderr
    return lambda folder, *flags: pinion_json(*score(folder), "--compare", logits, "--json", *flags)


@pytest.fixture
def divergence(compare):
    """From the original, both in float32 arithmetic if the scheme allows."""
    return lambda folder: compare(folder, "--dtype", "float32")["kl_nats"]


# GPTQ weighs its errors by the inputs, of text of the same kind; rounding to the nearest does not look.
def test_gptq_gains_by_calibration(quantize, divergence, texts):
    calibrated = quantize("gptq-int4", "--calibration", texts[0], "--threads-bind", "nobind")
    assert 0 < divergence(calibrated) < divergence(quantize("gptq-int4"))


# The outliers' power of two cancels in the weights that read them, so the model computes the same. Rounding to the
# nearest loses these channels (AWQ) or the channels beside them (W8A8). Factors of full strength undo the outliers, and
# the strength with the smallest error is chosen, so the divergence must be nearer to that without outliers than to
# that without calibration: below their geometric mean.
@pytest.mark.parametrize("target", ["w8a8", "awq-int4"])
def test_scales_tame_channels_that_stand_out(quantize, divergence, data, texts, tmp_path, target):
    model = with_outliers(data / MODEL, tmp_path / "outliers")
    assert divergence(model) <= FLOAT32_NATS
    plain, without = divergence(quantize(target, model=model)), divergence(quantize(target))
    calibrated = divergence(quantize(target, "--calibration", texts[0], "--threads-bind", "nobind", model=model))
    assert calibrated**2 <= plain * without


# The rule for defaults, of a model with channels a hundred times as large as the rest.
SURVIVAL = 1.02


@pytest.mark.parametrize("target", ["awq-int4", "gptq-int4"])
def test_default_activations_survive_outliers(quantize, compare, data, tmp_path, target):
    original = with_large_channels(data / MODEL, 100, tmp_path / "outliers")
    folder = quantize(target, model=original)
    floats = compare(folder, "--activations", "bf16")["perplexity"]
    for isa in ("auto", "scalar"):
        assert compare(folder, "--isa", isa)["perplexity"] <= SURVIVAL * floats, isa


def test_all_that_belongs_to_the_model_comes_along(quantize, pinion, data):
    folder = quantize("gptq-int4")
    original = data / MODEL
    for path in original.iterdir():
        if path.suffix != ".safetensors" and path.name != "config.json":
            assert (folder / path.name).read_bytes() == path.read_bytes()
    config = json.loads((folder / "config.json").read_text())
    assert config["quantization_config"]["quant_method"] == "gptq"
    assert config["quantization_config"] == json.loads(
        (folder / "quantize_config.json").read_text())
    del config["quantization_config"]
    assert config == json.loads((original / "config.json").read_text())
    done = pinion("run", folder, "-p", "def f(", "--max-tokens", 4, "--ignore-eos", *SMALL)
    assert done.returncode == 0 and done.stdout.strip()


def test_w8a8_is_described_as_compressed_tensors_does(quantize, data):
    """Of the scheme: how weights are stored, and that activations are rounded token by token."""
    ours, theirs = (json.loads((folder / "config.json").read_text())["quantization_config"]
                    for folder in (quantize("w8a8"), data / "quantised/llama-w8a8"))
    for key in ("quant_method", "format", "quantization_status"):
        assert ours[key] == theirs[key]
    ours, theirs = ours["config_groups"]["group_0"], theirs["config_groups"]["group_0"]
    for part in ("weights", "input_activations"):
        assert ours[part] == {key: theirs[part][key] for key in ours[part]}


@pytest.fixture
def random_text(tmp_path):
    """random_text(name, prompts, vocabulary, seed) -> a file of random tokens, 100 a prompt"""

    def write(name, prompts, vocabulary, seed):
        rng = random.Random(seed)
        path = tmp_path / f"{name}.jsonl"
        path.write_text("".join(json.dumps({"input_ids": [rng.randrange(3, vocabulary) for _ in range(100)]}) + "\n"
                                for _ in range(prompts)))
        return path

    return write


# The error of each matrix is a unit test's; what is left of it in the logits of random weights is little.
@pytest.mark.parametrize("model", ["models/qwen3moe", "models/mixtral", "models/deepseekv2", "models/deepseekv3"])
def test_experts_gain_by_gptq(quantize, pinion_json, random_text, data, model):
    vocabulary = json.loads((data / model / "config.json").read_text())["vocab_size"]
    text, measured = random_text("text", 60, vocabulary, 1), random_text("measured", 20, vocabulary, 2)
    flags = ["--group-size", 16, "--threads-bind", "nobind"]
    nats = [pinion_json("score", quantize("gptq-int4", *flags, *calibration, model=model), "--compare",
                        data / model, "--input", measured, "--dtype", "float32", "--json", *SMALL)["kl_nats"]
            for calibration in ([], ["--calibration", text])]
    assert nats[1] < nats[0]


def test_experts_do_not_depend_on_the_number_of_threads(quantize, random_text):
    text = random_text("text", 10, 576, 1)
    folders = [quantize("gptq-int4", "--group-size", 32, "--calibration", text, "--threads-bind", cpus,
                        model="models/qwen3moe") for cpus in ("0", "0-1")]
    first, second = ((folder / "model.safetensors").read_bytes() for folder in folders)
    assert first == second


# Weights of 1040 KiB, other files of 110: a disk that is too small for all, and one that the last
# files fill up.
@pytest.mark.parametrize("kib, words", [(500, ["make room", "free"]), (1100, ["No space left"])])
def test_a_full_disk_is_a_sentence_and_leaves_nothing(small_disk, binary, data, kib, words):
    disk, prefix = small_disk(kib * 1024)
    done = subprocess.run([*prefix, binary, "model", "quantize", data / MODEL, disk / "out", "--to", "w8a8"],
                          capture_output=True, text=True, check=False, env={**os.environ, "PINION_LOG": "off"})
    assert done.returncode == 1
    assert done.stdout == "", "something is left"
    assert len(done.stderr.strip().splitlines()) == 1
    for word in words:
        assert word in done.stderr


def test_a_limit_on_files_is_a_sentence_and_leaves_nothing(binary, data, tmp_path):
    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, 400_000))

    done = subprocess.run([binary, "model", "quantize", data / MODEL, tmp_path / "out", "--to", "gptq-int4"],
                          capture_output=True, text=True, check=False, preexec_fn=limit,
                          env={**os.environ, "PINION_LOG": "off"})
    assert done.returncode == 1
    assert "File too large" in done.stderr and len(done.stderr.strip().splitlines()) == 1
    assert not (tmp_path / "out").exists()


def test_a_killed_process_leaves_no_model_and_does_not_hinder_the_next(spawn, pinion, quantize, data, tmp_path):
    folder = tmp_path / "out"
    folder.mkdir()
    part = folder / "model.safetensors.part"
    os.mkfifo(part)  # the writer waits for its reader: it is killed in the middle of the weights
    process = spawn("model", "quantize", data / MODEL, folder, "--to", "w8a8")
    with open(part, "rb") as weights:
        assert weights.read(1000)
        process.kill()
        assert process.wait() == -signal.SIGKILL
    assert [path.name for path in folder.iterdir()] == [part.name]
    done = pinion("model", "info", folder)
    assert done.returncode == 1 and "config.json" in done.stderr
    part.unlink()
    part.write_bytes(b"half of the weights")
    done = pinion("model", "quantize", data / MODEL, folder, "--to", "w8a8")
    assert done.returncode == 0, done.stderr
    names = {path.name for path in folder.iterdir()}
    assert names == {path.name for path in quantize("w8a8").iterdir()}


def middle(errors):
    """The median RMS of rows: a rounding that flips an expert costs its row more than all others, and is chance."""
    return float(np.median(np.sqrt((errors**2).mean(1))))


def bf16_error(model):
    """Of the reference library's logits in bfloat16: of the middle prompt."""
    prompts = json.loads((model / "golden.json").read_text())["prompts"]
    return float(np.median([prompt["bf16_rms_logit_error"] for prompt in prompts]))


def int8_error(model):
    """The cost of int8 activations, scaled token by token, to the reference library."""
    golden = read_file(model / "golden.safetensors")
    return middle(np.concatenate([
        golden[name].values - golden[name.replace("weights_only", "float32")].values
        for name in golden if name.endswith("logits.weights_only")]))


# The same integers are multiplied in float32 and with rounded activations. The engine may err twice as much
# as the reference library with the same rounding of activations (the fixtures' rule); float16's steps are an
# eighth of bfloat16's, and independent roundings add up in squares.
@pytest.mark.parametrize("prepack", [0, 1])
def test_experts_in_four_bits_take_both_kinds_of_activations(pinion, quantize, data, tmp_path, prepack):
    name = "models/qwen3moe"
    model = quantize("awq-int4", "--group-size", 32, model=name)
    golden = json.loads((data / name / "golden.json").read_text())
    lines = tmp_path / "lines.jsonl"
    lines.write_text("".join(json.dumps({"input_ids": prompt["input_ids"]}) + "\n"
                             for prompt in golden["prompts"]))

    def logits(*flags):
        path = tmp_path / "logits.safetensors"
        done = pinion("score", model, "--input", lines, "--moe-prepack", prepack, *SMALL, *flags, "--logits", path,
                      "--output", tmp_path / "scores.jsonl")
        assert done.returncode == 0, done.stderr
        return np.concatenate([tensor.values for _, tensor in sorted(read_file(path).items())])

    exact = logits("--dtype", "float32")
    bf16, int8 = bf16_error(data / name), int8_error(data / "quantised/qwen3moe-w8a8")
    for flags, error in ((["--dtype", "float16", "--activations", "bf16"], bf16 / 8),
                         (["--dtype", "bfloat16", "--activations", "bf16"], bf16),
                         (["--dtype", "bfloat16", "--activations", "int8"], math.hypot(bf16, int8))):
        found = middle(logits(*flags) - exact)
        assert 0 < found <= 2 * error, flags


@pytest.mark.parametrize("target, flags, words", [
    ("int3", [], ["'int3'", "w8a8, awq-int4 or gptq-int4"]),
    ("awq-int4", ["--group-size", 100], ["100", "w8a8"]),
    ("w8a8", ["--calibration", "missing.txt"], ["missing.txt"]),
])
def test_bad_settings_leave_nothing_behind(pinion, data, tmp_path, target, flags, words):
    folder = tmp_path / "out"
    done = pinion("model", "quantize", data / MODEL, folder, "--to", target, *flags,
                  env={"PINION_LOG": "off"})
    assert done.returncode in (1, 2)
    assert len(done.stderr.strip().splitlines()) == 1
    for word in words:
        assert word in done.stderr
    assert not folder.exists()


@pytest.mark.parametrize("model, words", [
    ("quantised/llama-w8a8", ["quantised already", "int-quantized"]),
    ("quantised/llama-q4_0.gguf", ["GGUF"]),
    ("no/such/model", ["no/such/model"]),
])
def test_models_that_cannot_be_quantised_are_refused(pinion, data, tmp_path, model, words):
    path = data / model if (data / model).exists() else model
    done = pinion("model", "quantize", path, tmp_path / "out", "--to", "w8a8")
    assert done.returncode in (1, 2) and not (tmp_path / "out").exists()
    for word in words:
        assert word in done.stderr


def test_an_unknown_architecture_and_a_used_folder_are_refused(pinion, data, tmp_path):
    model = tmp_path / "model"
    shutil.copytree(data / MODEL, model)
    done = pinion("model", "quantize", data / MODEL, model, "--to", "w8a8")
    assert done.returncode == 2 and "already holds" in done.stderr
    config = json.loads((model / "config.json").read_text())
    config["architectures"] = ["NovelForCausalLM"]
    (model / "config.json").write_text(json.dumps(config))
    done = pinion("model", "quantize", model, tmp_path / "out", "--to", "w8a8")
    assert done.returncode == 1 and "NovelForCausalLM" in done.stderr
