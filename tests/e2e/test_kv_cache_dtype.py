"""Every type of the KV cache: what it costs in accuracy, what it saves in bytes, what is said of it."""

import importlib.machinery
import importlib.util
import json

import pytest

TRAINED = "models/tiny-trained"
SMALL = ["--kv-cache-space", "64MiB", "--threads-bind", "nobind"]
KV_TYPES = ["fp32", "bf16", "fp16", "int8", "fp8_e4m3", "fp8_e5m2"]
NAMES = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}
# Of the float32 model on text it has not seen: by what part the perplexity may change, and the KL
# divergence per token in nats; two to three times what was measured.
LIMITS = {"fp32": (1e-5, 1e-6), "bf16": (0.001, 1e-4), "fp16": (1e-4, 1e-5), "int8": (0.001, 2e-4),
          "fp8_e4m3": (0.005, 4e-3), "fp8_e5m2": (0.01, 0.012)}
WEIGHTS = ["llama-w8a8", "llama-w8a8-static-asym", "llama-w4a16", "qwen2-awq",
           "llama-gptq-sym", "llama-gptq-actorder", "llama-q4_k.gguf", "llama-q8_0.gguf"]


@pytest.fixture(scope="module")
def table(top):
    """scripts/perplexity-table as a module."""
    path = str(top / "scripts/perplexity-table")
    loader = importlib.machinery.SourceFileLoader("perplexity_table", path)
    spec = importlib.util.spec_from_loader(loader.name, loader)
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


@pytest.fixture
def measure(pinion, pinion_json, data, tmp_path):
    """measure(model, text, flags of the reference, flags) -> what `score --compare` found."""

    def run(model, text, reference, *flags):
        logits = tmp_path / "reference.safetensors"
        score = ["score", data / model, "--input", text, "--window", 256, *SMALL]
        if not logits.exists():
            done = pinion(*score, *reference, "--logits", logits, "--output", tmp_path / "ref.jsonl")
            if done.returncode == 2 and "not usable on this machine" in done.stderr:
                pytest.skip("this machine lacks the ISA path")
            assert done.returncode == 0, done.stderr
        return pinion_json(*score, "--compare", logits, "--json", *flags)

    return run


EXACT = ["--dtype", "float32", "--activations", "bf16", "--kv-cache-dtype", "fp32"]


@pytest.mark.parametrize("isa", ["scalar", "avx2", "avx512", "avx512_bf16", "amx"])
def test_perplexity_stays_within_each_types_limit(measure, data, tmp_path, isa):
    heldout = data / TRAINED / "heldout.txt"
    text = heldout
    if isa == "scalar":  # slow, and every step of it is compared with the others' in tests/kernels
        text = tmp_path / "some.txt"
        text.write_text(heldout.read_text()[:4000])
    for kv, (part, nats) in LIMITS.items():
        found = measure(TRAINED, text, [*EXACT, "--isa", isa], "--dtype", "float32", "--isa", isa,
                        "--kv-cache-dtype", kv)
        assert abs(found["perplexity"] / found["reference_perplexity"] - 1) <= part, kv
        assert found["kl_nats"] <= nats, kv


# What the cache may cost random weights with heads of 16 elements, in nats a token
# (tests/engine/run/golden_test.cc), beside the 0.01 of rounded activations.
RANDOM_LIMITS = {"fp32": 0, "bf16": 1e-3, "fp16": 4e-5, "int8": 0.01, "fp8_e4m3": 0.1, "fp8_e5m2": 0.3}


@pytest.mark.parametrize("name", WEIGHTS)
def test_the_cache_costs_quantised_weights_little(measure, data, tmp_path, name):
    text = tmp_path / "some.txt"
    text.write_text((data / TRAINED / "heldout.txt").read_text()[:4000])
    for kv, nats in RANDOM_LIMITS.items():
        found = measure(f"quantised/{name}", text, EXACT, "--kv-cache-dtype", kv)
        assert found["kl_nats"] <= 0.01 + nats, kv


@pytest.mark.parametrize("flags", [["--tensor-parallel-size", "2"], ["--max-num-batched-tokens", "7"], ["--block-size", "16"]],
                         ids=" ".join)
@pytest.mark.parametrize("kv", ["int8", "fp8"])
def test_bytes_run_in_every_way(measure, data, tmp_path, kv, flags):
    text = tmp_path / "some.txt"
    text.write_text((data / TRAINED / "heldout.txt").read_text()[:3000])
    part, nats = LIMITS["int8" if kv == "int8" else "fp8_e4m3"]
    found = measure(TRAINED, text, EXACT, "--dtype", "float32", "--kv-cache-dtype", kv, *flags)
    assert abs(found["perplexity"] / found["reference_perplexity"] - 1) <= 2 * part
    assert found["kl_nats"] <= nats


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
