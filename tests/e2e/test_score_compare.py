"""`pinion score --compare`: two models, or one under two settings, over the same text."""

import json
import math

import pytest

from conftest import wait_until

MODEL = "models/tiny-trained"
SMALL = ["--kv-cache-space", "64MiB", "--threads-bind", "nobind"]


@pytest.fixture(scope="module")
def text(data, tmp_path_factory):
    """Some hundred tokens that the model was not trained on."""
    path = tmp_path_factory.mktemp("text") / "some.txt"
    path.write_text((data / MODEL / "heldout.txt").read_text()[:2000])
    return path


def test_a_model_does_not_differ_from_itself(pinion_json, data, text):
    whole = pinion_json("score", data / MODEL, "--compare", data / MODEL, "--input", text,
                        "--window", 64, "--json", *SMALL)
    assert whole["kl_max_nats"] < 1e-6 and whole["top1_agreement"] == 1
    assert whole["perplexity_difference"] == 0


def test_settings_of_the_reference_make_a_difference_as_its_logits_do(pinion_json, pinion, data,
                                                                      text, tmp_path):
    score = ["score", data / MODEL, "--input", text, "--window", 64, *SMALL]
    ran = pinion_json(*score, "--compare", data / MODEL, "--reference", "dtype=float32", "--json")
    logits = tmp_path / "reference.safetensors"
    assert pinion(*score, "--dtype", "float32", "--logits", logits).returncode == 0
    read = pinion_json(*score, "--compare", logits, "--json")
    assert ran == read
    assert 0 < ran["kl_nats"] <= ran["kl_p99_nats"] <= ran["kl_max_nats"] < 0.1
    assert ran["positions"] % 65 == 0
    assert math.isclose(ran["perplexity"] - ran["reference_perplexity"],
                        ran["perplexity_difference"], abs_tol=1e-9)


def test_plain_text_gives_the_perplexity_of_the_references_windows(pinion, data, tmp_path):
    heldout = json.loads((data / MODEL / "golden.json").read_text())["heldout"]
    done = pinion("score", data / MODEL, "--input", data / MODEL / heldout["file"], "--window",
                  heldout["stride"], "--dtype", "float32", "--compare", data / MODEL, *SMALL)
    assert done.returncode == 0, done.stderr
    (line,) = [line for line in done.stdout.splitlines() if "perplexity" in line]
    perplexity = float(line.split()[1].rstrip(","))
    assert math.isclose(math.log(perplexity), heldout["nll_per_token"], rel_tol=1e-3)


@pytest.mark.parametrize("arguments, words", [
    (["--compare", "models/llama"], ["vocabularies of 1024 and 576 tokens", "the same tokenizer"]),
    (["--compare", MODEL, "--reference", "dtype"], ["'dtype'", "NAME=VALUE"]),
    (["--compare", MODEL, "--reference", "colour=red"], ["'colour'", "kv_cache_space"]),
    (["--compare", MODEL, "--reference", "isa=scalar"], ["isa=scalar", "--logits"]),
    (["--reference", "dtype=float32"], ["--compare"]),
    (["--json"], ["--json", "compare"]),
    (["--compare", "no/such/model"], ["no/such/model"]),
])
def test_an_impossible_comparison_is_one_clear_sentence(pinion, data, text, arguments, words):
    paths = [data / each if each.startswith("models/") else each for each in arguments]
    done = pinion("score", data / MODEL, "--input", text, *paths, *SMALL,
                  env={"PINION_LOG": "off"})
    assert done.returncode in (1, 2) and done.stdout == ""
    assert len(done.stderr.strip().splitlines()) == 1
    for word in words:
        assert word in done.stderr


def test_models_that_cut_text_differently_are_not_compared(pinion, data, text):
    done = pinion("score", data / "models/qwen2", "--input", text, "--compare", data / "models/llama")
    assert done.returncode == 2
    assert "into different tokens" in done.stderr


def test_logits_of_a_killed_run_are_not_a_reference(spawn, pinion, data, tmp_path):
    many, logits = tmp_path / "many.jsonl", tmp_path / "logits.safetensors"
    many.write_text((json.dumps({"input_ids": list(range(64))}) + "\n") * 2000)
    running = spawn("score", data / MODEL, "--input", many, "--logits", logits, *SMALL)
    assert wait_until(lambda: logits.exists() and logits.stat().st_size > 0)
    running.kill()
    running.wait()
    done = pinion("score", data / MODEL, "--input", many, "--compare", logits, *SMALL)
    assert done.returncode == 1
    assert f"{logits}: its header: " in done.stderr
