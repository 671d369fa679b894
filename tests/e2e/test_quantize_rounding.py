"""The checkpoints that `pinion model quantize` writes, read without Pinion: each weight is the original's, rounded by
its format's rule, and the engine computes with these numbers. No bound is a figure that Pinion once gave."""

import json
import os
import random
import shutil

import numpy as np
import pytest

from checkpoint import Tensor, read_file, write_file
from quantised_copy import (OUTLIERS, Quantised, allowed_step_errors, codes_hold, config_of, first_inputs,
                            product_error, steps_hold, with_outliers)

TARGETS = ["w8a8", "awq-int4", "gptq-int4"]
TRAINED = "models/tiny-trained"
OPT = "models/opt"  # adds positions to embeddings, and its norms subtract means
# A norm that attention and MLP share (cohere2) is held by ScalesOf in tests/engine/calibrate.
MODELS = [TRAINED, OPT, *(f"models/{name}" for name in ["gemma3", "phi3", "olmo2", "qwen3moe", "mixtral", "deepseekv2",
                                                        "deepseekv3"])]
HAVE_ATTENTION_NORM = [model for model in MODELS if model not in (OPT, "models/olmo2")]
TOKENS = 240  # of calibration: all are in the sample of 256 by which factors are chosen


@pytest.fixture(scope="session")
def one_cpu():
    """Flags for one thread on a CPU of this worker's own: models so small have nothing to share out."""
    cpus = sorted(os.sched_getaffinity(0))
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    return ["--threads-bind", cpus[worker % len(cpus)]]


@pytest.fixture(scope="module")
def quantise(pinion, one_cpu, tmp_path_factory):
    """quantise(target, original, flags...) -> Quantised"""

    def run(target, original, *flags):
        folder = tmp_path_factory.mktemp("quantised") / target
        if config_of(original)["hidden_size"] % 128 != 0:  # the default
            flags = [*flags, "--group-size", 16]
        done = pinion("model", "quantize", original, folder, "--to", target, *one_cpu, *flags)
        assert done.returncode == 0, done.stderr
        return Quantised(target, original, folder)

    return run


def write_tokens(path, vocabulary, seed):
    """Two lines of random tokens, TOKENS in all, which are returned."""
    rng = random.Random(seed)
    lines = [[rng.randrange(3, vocabulary) for _ in range(TOKENS // 2)] for _ in range(2)]
    path.write_text("".join(json.dumps({"input_ids": line}) + "\n" for line in lines))
    return [token for line in lines for token in line]


@pytest.fixture(scope="module")
def check_logits(pinion, one_cpu, tmp_path_factory):
    """check_logits(Quantised): the engine gives the same logits for the integers as for the floats that they stand
    for. In float32 it multiplies by the same numbers, so only the order of sums may differ. The fixtures' README
    allows any two float32 engines 3e-4 of the logits' RMS for that."""

    def score(model, lines):
        logits = lines.with_name("logits.safetensors")
        done = pinion("score", model, "--input", lines, "--dtype", "float32", "--logits", logits, "--output",
                      lines.with_name("scores.jsonl"), "--kv-cache-space", "64MiB", *one_cpu)
        assert done.returncode == 0, done.stderr
        return np.concatenate([tensor.values.ravel() for tensor in read_file(logits).values()])

    def check(found):
        folder = tmp_path_factory.mktemp("logits")
        floats, integers = folder / "floats", folder / "integers"
        shutil.copytree(found.original, floats, ignore=shutil.ignore_patterns("*.safetensors", "*.index.json"))
        write_file(floats / "model.safetensors", found.rest | {
            f"{module}.weight": Tensor("F32", linear.weights()) for module, linear in found.linears.items()})
        shutil.copytree(found.folder, integers)
        if found.target == "w8a8":
            # Without the rounding of activations, which test_quantised.py holds to the reference's.
            config = config_of(integers)
            config["quantization_config"]["config_groups"]["group_0"]["input_activations"] = None
            (integers / "config.json").write_text(json.dumps(config))
        lines = folder / "lines.jsonl"
        write_tokens(lines, config_of(found.original)["vocab_size"], seed=3)
        want, got = score(floats, lines), score(integers, lines)
        assert abs(got - want).max() <= 3e-4 * np.sqrt((want**2).mean())

    return check


def check_nearest(found, calibrated=True):
    found.check_rest()
    for module, linear in found.linears.items():
        weights, unknown = found.scaled(module) if calibrated else (found.before[module + ".weight"].values, 0.0)
        step_errors = allowed_step_errors(found.target, linear, weights, unknown)
        assert steps_hold(found.target, linear, weights, step_errors), module
        assert codes_hold(found.target, linear, weights, step_errors), module


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("model", MODELS)
def test_weights_are_within_half_a_step_of_the_originals(quantise, check_logits, data, model, target):
    found = quantise(target, data / model)
    check_nearest(found, calibrated=False)
    assert all((found.of_norm(norm) == 1).all() for norm in found.norms()), "nothing was calibrated"
    check_logits(found)


# Channels that stand out are divided by more than the others. At full strength their factors undo them, and the
# strength with the smallest error is chosen, so the error of the first layer's products must be nearer to that
# without outliers than to that without factors: below their geometric mean.
@pytest.mark.parametrize("target", ["w8a8", "awq-int4"])
@pytest.mark.parametrize("model", MODELS)
def test_scales_move_through_every_kind_of_norm_and_projection(quantise, check_logits, data, tmp_path, model, target):
    outliers, lines = with_outliers(data / model, tmp_path / "outliers"), tmp_path / "lines.jsonl"
    ids = write_tokens(lines, config_of(outliers)["vocab_size"], seed=1)
    found = quantise(target, outliers, "--calibration", lines)
    check_nearest(found)
    check_logits(found)
    moved = [found.of_norm(norm) for norm in found.norms()]
    moved += [found.of_up(up, share)[0] for up, share in found.dense_ups()]
    assert all(factors[OUTLIERS].min() > np.median(factors) for factors in moved)
    if model in HAVE_ATTENTION_NORM:
        without = quantise(target, data / model), first_inputs(data / model, ids)
        unscaled, x = quantise(target, outliers), first_inputs(outliers, ids)
        assert product_error(found, x)**2 <= product_error(unscaled, x) * product_error(*without)


# Factors are kept only if the products err less with them. The products measured here are those of the calibration.
@pytest.mark.parametrize("target", ["w8a8", "awq-int4"])
def test_scales_never_cost_more_than_they_gain(quantise, data, tmp_path, target):
    ids = write_tokens(tmp_path / "lines.jsonl", config_of(data / TRAINED)["vocab_size"], seed=1)
    x = first_inputs(data / TRAINED, ids)
    found = quantise(target, data / TRAINED, "--calibration", tmp_path / "lines.jsonl")
    check_nearest(found)
    assert product_error(found, x) <= product_error(quantise(target, data / TRAINED), x)


@pytest.mark.parametrize("model", MODELS)
def test_gptq_moves_codes_alone_and_errs_less_on_its_text(quantise, check_logits, data, tmp_path, model):
    ids = write_tokens(tmp_path / "lines.jsonl", config_of(data / model)["vocab_size"], seed=1)
    found = quantise("gptq-int4", data / model, "--calibration", tmp_path / "lines.jsonl")
    nearest = quantise("gptq-int4", data / model)
    found.check_rest()
    for module, linear in found.linears.items():
        assert (linear.scales == nearest.linears[module].scales).all()
        assert (linear.zeros == nearest.linears[module].zeros).all()
    check_logits(found)
    if model != OPT:
        x = first_inputs(data / model, ids)
        assert product_error(found, x) < product_error(nearest, x)
