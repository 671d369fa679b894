"""`pinion model quantize`: what it writes loads, stays near the original, and gains by calibration."""

import json
import os
import random
import resource
import shutil
import signal
import struct
import subprocess

import pytest

MODEL = "models/tiny-trained"
SMALL = ["--kv-cache-space", "64MiB", "--threads-bind", "nobind"]
# Mean KL divergence from the original on text that neither training nor calibration has seen: two to three
# times docs/accuracy.md.
BOUNDS = {"w8a8": 0.003, "awq-int4": 0.08, "gptq-int4": 0.1}


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


@pytest.fixture
def divergence(pinion_json, data, texts):
    """From the original, both in float32 arithmetic if the scheme allows."""

    def run(folder, model=MODEL):
        return pinion_json("score", folder, "--compare", data / model, "--input", texts[1],
                           "--window", 256, "--dtype", "float32", "--json", *SMALL)["kl_nats"]

    return run


@pytest.mark.parametrize("target", BOUNDS)
def test_quantised_models_stay_near_the_original(quantize, divergence, texts, target):
    plain = divergence(quantize(target))
    calibrated = divergence(quantize(target, "--calibration", texts[0], "--threads-bind", "nobind"))
    assert 0 < plain < BOUNDS[target]
    # So small a model has no outliers for scales to tame; GPTQ needs none.
    assert calibrated < (0.9 if target == "gptq-int4" else 1.03) * plain


def scale_channels(path, channels, factor):
    """Multiplies some channels behind every norm and divides what reads them: by a power of two, so
    that the model computes the very same, as real models with outliers do."""
    raw = bytearray(path.read_bytes())
    (length,) = struct.unpack("<Q", raw[:8])
    header = json.loads(raw[8:8 + length])
    readers = ("q_proj", "k_proj", "v_proj", "gate_proj", "up_proj")
    for name, tensor in header.items():
        is_norm = name.endswith("layernorm.weight")
        if not is_norm and not any(reader in name for reader in readers):
            continue
        assert tensor["dtype"] == "BF16"
        rows, columns = (1, tensor["shape"][0]) if is_norm else tensor["shape"]
        begin = 8 + length + tensor["data_offsets"][0]
        for row in range(rows):
            for channel in channels:
                at = begin + 2 * (row * columns + channel)
                (bits,) = struct.unpack("<H", raw[at:at + 2])
                (value,) = struct.unpack("<f", struct.pack("<I", bits << 16))
                value = value * factor if is_norm else value / factor
                raw[at:at + 2] = struct.pack("<f", value)[2:]
    path.write_bytes(raw)


@pytest.mark.parametrize("target", ["w8a8", "awq-int4"])
def test_scales_tame_channels_that_stand_out(pinion, quantize, divergence, data, texts, tmp_path,
                                             target):
    model = tmp_path / "outliers"
    shutil.copytree(data / MODEL, model)
    scale_channels(model / "model.safetensors", [3, 77], 64)
    assert divergence(model) < 1e-6
    plain = divergence(quantize(target, model=model))
    calibrated = divergence(quantize(target, "--calibration", texts[0], "--threads-bind", "nobind",
                                     model=model))
    assert calibrated < 0.6 * plain


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


DENSE = ["models/gemma3", "models/phi3", "models/opt", "models/olmo2"]


# Random weights: a rounding that flips an expert costs more than all others.
@pytest.mark.parametrize("model", [*DENSE, "models/qwen3moe", "models/mixtral", "models/deepseekv2",
                                   "models/deepseekv3"])
def test_scales_move_through_every_kind_of_norm_and_projection(quantize, divergence, pinion, data,
                                                               tmp_path, model):
    lines = tmp_path / "lines.jsonl"
    golden = json.loads((data / model / "golden.json").read_text())
    lines.write_text("".join(json.dumps({"input_ids": prompt["input_ids"]}) + "\n"
                             for prompt in golden["prompts"]))
    folder = quantize("w8a8", "--calibration", lines, "--threads-bind", "nobind", model=model)
    done = pinion("score", folder, "--compare", data / model, "--input", lines, "--dtype", "float32",
                  "--json", *SMALL)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["kl_nats"] < (0.02 if model in DENSE else 0.05)


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
@pytest.mark.parametrize("target", ["awq-int4", "gptq-int4"])
def test_experts_gain_by_calibration(quantize, pinion_json, random_text, data, model, target):
    vocabulary = json.loads((data / model / "config.json").read_text())["vocab_size"]
    text, measured = random_text("text", 60, vocabulary, 1), random_text("measured", 20, vocabulary, 2)
    flags = ["--group-size", 16, "--threads-bind", "nobind"]
    nats = [pinion_json("score", quantize(target, *flags, *calibration, model=model), "--compare", data / model,
                        "--input", measured, "--dtype", "float32", "--json", *SMALL)["kl_nats"]
            for calibration in ([], ["--calibration", text])]
    assert nats[1] < (0.95 if target == "gptq-int4" else 1.03) * nats[0]


def test_experts_do_not_depend_on_the_number_of_threads(quantize, random_text):
    text = random_text("text", 10, 576, 1)
    folders = [quantize("gptq-int4", "--group-size", 32, "--calibration", text, "--threads-bind", cpus,
                        model="models/qwen3moe") for cpus in ("0", "0-1")]
    first, second = ((folder / "model.safetensors").read_bytes() for folder in folders)
    assert first == second


@pytest.fixture
def small_disk(tmp_path):
    """small_disk(bytes) -> (folder, prefix of commands that find a disk of that size there)"""

    def mount(size):
        folder = tmp_path / "disk"
        folder.mkdir()
        script = f'mount -t tmpfs -o size={size} none {folder} && "$@"; status=$?; ls -A {folder}; exit $status'
        prefix = ["unshare", "--mount", "sh", "-c", script, "sh"]
        if subprocess.run([*prefix, "true"], capture_output=True, check=False).returncode != 0:
            pytest.skip("this process may not mount file systems")
        return folder, prefix

    return mount


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


# Random weights: what is compared is only the way of computing, with an exact copy of the same.
@pytest.mark.parametrize("prepack", [0, 1])
def test_experts_in_four_bits_take_both_kinds_of_activations(pinion, pinion_json, data, tmp_path, prepack):
    model = tmp_path / "out"
    done = pinion("model", "quantize", data / "models/qwen3moe", model, "--to", "awq-int4", "--group-size", 32)
    assert done.returncode == 0, done.stderr
    golden = json.loads((data / "models/qwen3moe/golden.json").read_text())
    lines, logits = tmp_path / "lines.jsonl", tmp_path / "logits.safetensors"
    lines.write_text("".join(json.dumps({"input_ids": prompt["input_ids"]}) + "\n"
                             for prompt in golden["prompts"]))
    score = ["score", model, "--input", lines, "--moe-prepack", prepack, *SMALL]
    done = pinion(*score, "--dtype", "float32", "--logits", logits, "--output", tmp_path / "exact.jsonl")
    assert done.returncode == 0, done.stderr
    for flags, nats in ((["--dtype", "float16", "--activations", "bf16"], 1e-3),
                        (["--dtype", "bfloat16", "--activations", "bf16"], 0.02),
                        (["--dtype", "bfloat16", "--activations", "int8"], 0.04)):
        assert 0 < pinion_json(*score, "--compare", logits, "--json", *flags)["kl_nats"] < nats, flags


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
