"""Every type of the KV cache: what it costs in accuracy, what it saves in bytes, what is said of it.

No bound is a figure that Pinion once gave. tests/engine/decoder/kv_types_test.cc holds the scalar path to
attention in double over keys and values that the test rounds itself; here the scalar path is what the
others are held to, and what a type may cost follows from its rounding.
"""

import functools
import importlib.machinery
import importlib.util
import json
import math

import pytest

from conftest import ISA_PATHS

TRAINED = "models/tiny-trained"
SMALL = ["--kv-cache-space", "64MiB", "--threads-bind", "nobind"]
KV_TYPES = ["fp32", "bf16", "fp16", "int8", "fp8_e4m3", "fp8_e5m2"]
NAMES = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}
WEIGHTS = ["llama-w8a8", "llama-w8a8-static-asym", "llama-w4a16", "qwen2-awq",
           "llama-gptq-sym", "llama-gptq-actorder", "llama-q4_k.gguf", "llama-q8_0.gguf"]
EXACT = ("--dtype", "float32", "--activations", "bf16")
# Logits of float32 engines err by up to 3e-4 of their RMS, here 4.65 nats (the fixtures' README): a KL
# divergence of half of its square.
FLOAT32_NATS = (3e-4 * 4.65)**2 / 2


@pytest.fixture(scope="module")
def table(top):
    """scripts/perplexity-table as a module."""
    path = str(top / "scripts/perplexity-table")
    loader = importlib.machinery.SourceFileLoader("perplexity_table", path)
    spec = importlib.util.spec_from_loader(loader.name, loader)
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def text(data, tmp_path_factory):
    """Some hundred tokens that the model was not trained on."""
    path = tmp_path_factory.mktemp("text") / "some.txt"
    path.write_text((data / TRAINED / "heldout.txt").read_text()[:3000])
    return path


@pytest.fixture(scope="module")
def measure(pinion, pinion_json, data, text, tmp_path_factory):
    """measure(model, flags of the reference, flags) -> what `score --compare` found; every reference is
    computed once."""

    def score(model):
        return ["score", data / model, "--input", text, "--window", 256, *SMALL]

    @functools.lru_cache
    def reference(model, flags):
        logits = tmp_path_factory.mktemp("reference") / "logits.safetensors"
        done = pinion(*score(model), *flags, "--logits", logits, "--output", logits.with_suffix(".jsonl"))
        assert done.returncode == 0, done.stderr
        return logits

    @functools.lru_cache
    def run(model, of_reference, flags):
        return pinion_json(*score(model), "--compare", reference(model, of_reference), "--json", *flags)

    return run


def scalar(kv):
    return (*EXACT, "--isa", "scalar", "--kv-cache-dtype", kv)


@pytest.fixture(scope="module")
def cost(measure):
    """cost(model, type) -> what the type costs on the scalar path, against a float32 cache."""
    return lambda model, kv: measure(model, scalar("fp32"), scalar(kv))


def times_float16(kv, dim):
    """How much more a type errs than float16, at most. A float of m mantissa bits errs by up to
    2^-(m + 1) of the value, evenly, an int8 by up to half of max / 127; and no vector of d elements has a
    maximum above sqrt(d) times its RMS. Float16's RMS error is at least half of 2^-11 / sqrt(3)."""
    mantissa = {"bf16": 7, "fp16": 10, "fp8_e4m3": 3, "fp8_e5m2": 2}
    if kv in mantissa:
        return 2.0 ** (10 - mantissa[kv])
    return math.sqrt(dim / 12) / 127 / (0.5 * 2**-11 / math.sqrt(3))


def test_types_cost_no_more_than_their_rounding(cost, data):
    # Keys and values in float16 cost less than all that the reference library rounds when it computes in
    # bfloat16, with 8 times the steps: logits' errors, and half of their square is the divergence.
    golden = json.loads((data / TRAINED / "golden.json").read_text())
    bf16_error = max(prompt["bf16_rms_logit_error"] for prompt in golden["prompts"])
    float16 = cost(TRAINED, "fp16")["kl_nats"]
    assert 0 < float16 <= (bf16_error / 8)**2 / 2
    for kv in KV_TYPES[1:]:
        found = cost(TRAINED, kv)
        nats, tokens = found["kl_nats"], found["positions"]
        # The divergence goes with the square of the errors; twice that, for one sample of them.
        assert nats <= 2 * float16 * times_float16(kv, dim=32)**2, kv
        # If errors are independent of the tokens, a token's log-probability has a variance of 2 KL
        # and a bias of KL: four standard deviations of the mean.
        moved = abs(math.log(found["perplexity"] / found["reference_perplexity"]))
        assert moved <= nats + 4 * math.sqrt(2 * nats / tokens), kv
    steps = [cost(TRAINED, kv)["kl_nats"] for kv in ("fp16", "bf16", "fp8_e4m3", "fp8_e5m2")]
    assert all(2 * fine < coarse for fine, coarse in zip(steps, steps[1:])), steps
    assert cost(TRAINED, "int8")["kl_nats"] < cost(TRAINED, "fp8_e4m3")["kl_nats"]


# Two paths round keys and values alike but for the few that fall the other way for the last bit of a
# float32: they are nearer to each other than the type's roundings moved the scalar one. From
# avx512_bf16 on attention also rounds queries and weights, to the cache's own precision or finer: of
# four operands instead of two, so at most as much again.
@pytest.mark.parametrize("isa", ISA_PATHS[1:])
def test_every_path_computes_as_the_scalar_one_with_the_same_roundings(measure, cost, need_isa, isa):
    need_isa(isa)
    for kv in KV_TYPES:
        allowed = FLOAT32_NATS
        if kv != "fp32":
            allowed += cost(TRAINED, kv)["kl_nats"]
        found = measure(TRAINED, scalar(kv), (*EXACT, "--isa", isa, "--kv-cache-dtype", kv))
        assert found["kl_nats"] <= allowed, kv


# The best path over quantised weights: rounded activations and the cache err independently, so that
# their divergences add up. Weight-only formats are held to 0.01 nat (the fixtures' README), W8A8 to
# twice the reference's own bfloat16 error; the cache, twice for one sample, to what it costs the scalar
# path with these weights.
@pytest.mark.parametrize("name", WEIGHTS)
def test_the_cache_costs_quantised_weights_as_much_as_the_scalar_path(measure, cost, data, name):
    model = f"quantised/{name}"
    of_activations = 0.01
    if "w8a8" in name:
        golden = json.loads((data / model / "golden.json").read_text())
        of_activations = max(2 * prompt["bf16_rms_logit_error"] for prompt in golden["prompts"])**2 / 2
    for kv in ("bf16", "int8", "fp8_e4m3", "fp8_e5m2"):
        found = measure(model, scalar("fp32"), ("--kv-cache-dtype", kv))
        assert found["kl_nats"] <= of_activations + 2 * cost(model, kv)["kl_nats"], kv


@pytest.mark.parametrize("flags", [("--tensor-parallel-size", "2"), ("--max-num-batched-tokens", "7"), ("--block-size", "16")],
                         ids=" ".join)
@pytest.mark.parametrize("kv", ["int8", "fp8_e4m3"])
def test_bytes_run_in_every_way(measure, cost, kv, flags):
    plain = (*EXACT, "--kv-cache-dtype", kv)
    found = measure(TRAINED, plain, (*plain, *flags))
    assert found["kl_nats"] <= cost(TRAINED, kv)["kl_nats"] + FLOAT32_NATS


def test_bytes_hold_twice_the_tokens_and_everybody_counts_them(pinion, pinion_json, data):
    info = pinion_json("model", "info", data / TRAINED, "--json")["kv_bytes_per_token"]
    heads, dim = 4 * 2, 32  # layers x KV heads
    assert {kv: info[NAMES.get(kv, kv)] for kv in KV_TYPES} == {
        "fp32": heads * 2 * dim * 4, "bf16": heads * 2 * dim * 2, "fp16": heads * 2 * dim * 2,
        "int8": heads * 2 * (dim + 2), "fp8_e4m3": heads * 2 * (dim + 2), "fp8_e5m2": heads * 2 * (dim + 2)}
    for kv in KV_TYPES:
        done = pinion("run", data / TRAINED, "-p", "x", "--max-tokens", 2, "--kv-cache-dtype", kv, *SMALL)
        assert done.returncode == 0, done.stderr
        (line,) = [line for line in done.stderr.splitlines() if "KV cache" in line]
        assert f"64.0 MiB of {NAMES.get(kv, kv)} for " in line or f"64 MiB of {NAMES.get(kv, kv)} for " in line
        tokens = int(line.split(" for ")[1].split()[0])
        assert tokens == (64 << 20) // (64 * info[NAMES.get(kv, kv)]) * 64


def test_a_server_says_its_caches_type(start_server, data):
    server = start_server(data / TRAINED, "--kv-cache-dtype", "fp8", *SMALL)
    info = json.loads(server.get("/server_info"))
    assert info["kv_cache"]["dtype"] == "fp8_e4m3"
    assert info["options"]["kv_cache_dtype"] == "fp8"


def test_an_unknown_type_is_a_usage_error(pinion, data):
    done = pinion("run", data / TRAINED, "-p", "x", "--kv-cache-dtype", "int4")
    assert done.returncode == 2
    assert "'int4'" in done.stderr and "fp8_e4m3" in done.stderr


def test_the_table_has_a_row_a_model_and_a_column_a_type(table, data, tmp_path, monkeypatch, capsys, binary):
    text = tmp_path / "some.txt"
    text.write_text((data / TRAINED / "heldout.txt").read_text()[:2000])
    figures = tmp_path / "figures.json"
    monkeypatch.setattr(table, "PINION", binary)
    monkeypatch.setattr("sys.argv", ["perplexity-table", "--text", str(text), "--kv", "fp32,int8", "--json",
                                     str(figures), str(data / TRAINED)])
    table.main()
    head, _, row = capsys.readouterr().out.splitlines()
    assert head == "| weights | exact | KV fp32 | KV int8 |"
    assert row.count("|") == 5
    (result,) = json.loads(figures.read_text())
    assert 0 < result["kv"]["fp32"]["kl_nats"] <= result["kv"]["int8"]["kl_nats"] < 0.01
