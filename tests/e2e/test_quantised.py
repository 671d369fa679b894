"""Every published quantised format against the reference outputs: logits, greedy tokens, tokenizers.

The bounds are those of a correct engine: float32 arithmetic differs from the reference only by the
order of summation; bfloat16 may err twice as much as the reference's own bfloat16.
"""

import array
import json
import math
import struct

import pytest

FOLDERS = ["llama-w4a16", "llama-w4a16-asym", "llama-gptq-sym", "llama-gptq-v2", "llama-gptq-8bit",
           "llama-gptq-g-1", "llama-gptq-actorder", "qwen2-awq", "qwen2-awq-g128"]
W8A8 = ["llama-w8a8", "llama-w8a8-static", "llama-w8a8-static-asym", "qwen3moe-w8a8"]
GGUF = [f"llama-{kind}.gguf" for kind in
        ["f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "q5_0", "q5_1", "q4_k", "q5_k", "q6_k"]]
GGUF += ["qwen2-q8_0.gguf", "qwen3-q4_0.gguf"]
QUANTISED_GGUF = [name for name in GGUF if "16" not in name and "f32" not in name]
# Every ISA path that the machine has, tensor parallelism, steps of a few tokens.
WAYS_OF_RUNNING = [["--isa", "scalar"], ["--isa", "avx2"], ["--isa", "avx2_vnni"],
                   ["--isa", "avx512"], ["--isa", "avx512_vnni"], ["--isa", "avx512_bf16"],
                   ["--isa", "amx"], ["-tp", "2"], ["--max-num-batched-tokens", "7"]]
NEAR_TIE_NATS = 0.01
SMALL = ["--kv-cache-space", "64MiB", "--threads-bind", "nobind"]


def read_safetensors(path):
    raw = path.read_bytes()
    (length,) = struct.unpack("<Q", raw[:8])
    header = json.loads(raw[8:8 + length])

    def floats(name):
        begin, end = header[name]["data_offsets"]
        return header[name]["shape"], array.array("f", raw[8 + length + begin:8 + length + end])

    return floats


def divergence(p_logits, q_logits):
    """KL(p || q) in nats."""
    def log_softmax(logits):
        top = max(logits)
        normaliser = top + math.log(sum(math.exp(x - top) for x in logits))
        return [x - normaliser for x in logits]

    p, q = log_softmax(p_logits), log_softmax(q_logits)
    return sum(math.exp(a) * (a - b) for a, b in zip(p, q))


class Fixture:
    def __init__(self, data, name):
        self.path = data / "quantised" / name
        beside = self.path.with_suffix("") if name.endswith(".gguf") else self.path / ""
        separator = "." if name.endswith(".gguf") else "/"
        self.golden = json.loads(open(f"{beside}{separator}golden.json").read())
        self.prompts = self.golden["prompts"]
        self.reference = read_safetensors(type(self.path)(f"{beside}{separator}golden.safetensors"))

    def inputs(self, tmp_path):
        lines = [json.dumps({"input_ids": prompt["input_ids"]}) for prompt in self.prompts]
        path = tmp_path / "in.jsonl"
        path.write_text("\n".join(lines) + "\n")
        return path

    def errors(self, logits, kind):
        """Of the rows that the reference kept, the last ones of each prompt; and the mean KL
        divergence from the reference in nats."""
        squares = count = 0
        divergences = []
        for i in range(len(self.prompts)):
            (rows, vocabulary), want = self.reference(f"prompt{i}.logits.{kind}")
            shape, got = logits(f"prompt{i}.logits")
            got = got[(shape[0] - rows) * vocabulary:]
            squares += sum((a - b) ** 2 for a, b in zip(got, want))
            count += len(want)
            for at in range(0, len(want), vocabulary):
                divergences.append(divergence(want[at:at + vocabulary], got[at:at + vocabulary]))
        return math.sqrt(squares / count), sum(divergences) / len(divergences)

    def bf16_error(self):
        errors = [prompt["bf16_rms_logit_error"] for prompt in self.prompts]
        return math.sqrt(sum(error**2 for error in errors) / len(errors))


@pytest.fixture
def score(pinion, data, tmp_path):
    """score(name, kind of reference, flags...) -> (fixture, RMS error of the logits, KL divergence)."""

    def run(name, kind, *flags):
        fixture = Fixture(data, name)
        logits = tmp_path / "logits.safetensors"
        done = pinion("score", fixture.path, "--input", fixture.inputs(tmp_path), "--logits", logits,
                      "--output", tmp_path / "scores.jsonl", *SMALL, *flags)
        if done.returncode == 2 and "not usable on this machine" in done.stderr:
            pytest.skip("this machine lacks the ISA path")
        assert done.returncode == 0, done.stderr
        return fixture, *fixture.errors(read_safetensors(logits), kind)

    return run


def check_greedy(fixture, lines):
    for prompt, line in zip(fixture.prompts, lines, strict=True):
        want, got = prompt["greedy_ids"], line["output_ids"]
        assert got == want or prompt["min_gap_nats"] < NEAR_TIE_NATS, prompt["text"]


def test_the_fixtures_are_all_here(data):
    there = {path.name for path in (data / "quantised").iterdir()}
    assert there >= set(FOLDERS + W8A8 + GGUF)


@pytest.fixture
def run_greedy(pinion, tmp_path):
    """run_greedy(fixture, flags...) checks the generated tokens."""

    def run(fixture, *flags):
        output = tmp_path / "out.jsonl"
        done = pinion("run", fixture.path, "--input", fixture.inputs(tmp_path), "--output", output,
                      "--ignore-eos", "--max-tokens", len(fixture.prompts[0]["greedy_ids"]), *SMALL,
                      *flags)
        assert done.returncode == 0, done.stderr
        check_greedy(fixture, [json.loads(line) for line in output.read_text().splitlines()])

    return run


@pytest.mark.parametrize("name", FOLDERS + GGUF)
def test_float32_arithmetic_gives_the_references_logits_and_tokens(score, run_greedy, name):
    fixture, error, _ = score(name, "float32", "--dtype", "float32")
    assert error <= 1e-3
    run_greedy(fixture, "--dtype", "float32")


@pytest.mark.parametrize("name", FOLDERS + GGUF)
def test_bfloat16_errs_at_most_twice_as_much_as_the_references(score, name):
    fixture, error, _ = score(name, "float32", "--dtype", "bfloat16", "--activations", "bf16")
    assert error <= 2 * fixture.bf16_error()


@pytest.mark.parametrize("name", FOLDERS + QUANTISED_GGUF)
def test_int8_activations_stay_within_their_divergence(score, name):
    _, error, divergence = score(name, "float32", "--dtype", "bfloat16", "--activations", "int8")
    assert error <= 0.12
    assert divergence <= 0.01


@pytest.mark.parametrize("flags", WAYS_OF_RUNNING, ids=" ".join)
@pytest.mark.parametrize("name", W8A8)
def test_w8a8_in_float32_is_the_references_integer_arithmetic(score, run_greedy, name, flags):
    fixture, error, _ = score(name, "float32", "--dtype", "float32", *flags)
    if "-tp" in flags and "static" not in name:
        # A rank's dynamic scale is that of its own columns, so it rounds otherwise, no worse.
        assert error <= 2 * fixture.bf16_error()
        return
    assert error <= 1e-3
    run_greedy(fixture, "--dtype", "float32", *flags)


def test_integer_experts_are_the_same_packed_at_every_step(score, run_greedy):
    for prepack in (0, 1):
        flags = ["--dtype", "float32", "--moe-prepack", prepack]
        fixture, error, _ = score("qwen3moe-w8a8", "float32", *flags)
        assert error <= 1e-3
        run_greedy(fixture, *flags)


@pytest.mark.parametrize("name", W8A8)
def test_w8a8_in_bfloat16_errs_at_most_twice_as_much_as_the_references(score, name):
    fixture, error, _ = score(name, "float32", "--dtype", "bfloat16")
    assert error <= 2 * fixture.bf16_error()


# Groups with and without offsets, whole rows, act-order, groups of 16 in 8 bits.
LAYOUTS = ["qwen2-awq", "llama-gptq-g-1", "llama-gptq-actorder", "llama-q4_k.gguf", "llama-q6_k.gguf"]


@pytest.mark.parametrize("flags", WAYS_OF_RUNNING, ids=" ".join)
@pytest.mark.parametrize("name", LAYOUTS)
def test_integer_weights_run_in_every_way(score, name, flags):
    _, error, divergence = score(name, "float32", "--activations", "int8", *flags)
    assert error <= 0.12 and divergence <= 0.01


@pytest.mark.parametrize("flags", WAYS_OF_RUNNING, ids=" ".join)
@pytest.mark.parametrize("name", LAYOUTS)
def test_integer_weights_take_float_activations_in_every_way(score, name, flags):
    fixture, error, _ = score(name, "float32", "--dtype", "bfloat16", "--activations", "bf16", *flags)
    assert error <= 2 * fixture.bf16_error()
    fixture, error, _ = score(name, "float32", "--dtype", "float16", "--activations", "bf16", *flags)
    assert error <= fixture.bf16_error() / 2


@pytest.mark.parametrize("name", [*FOLDERS, *QUANTISED_GGUF])
def test_the_log_says_what_is_kept_and_only_float32_dequantises(pinion, pinion_json, data, name):
    model = data / "quantised" / name
    said = {}
    for flags in (["--activations", "int8"], ["--activations", "bf16"], ["--dtype", "float32"]):
        done = pinion("run", model, "-p", "x", "--max-tokens", 1, *SMALL, *flags)
        assert done.returncode == 0, done.stderr
        (said[flags[1]],) = [line for line in done.stderr.splitlines() if "of the quantised matrices" in line]
    assert "multiplied with int8 activations" in said["int8"] and "dequantised" not in said["int8"]
    assert "block by block" in said["bf16"] and "dequantised" not in said["bf16"]
    assert "dequantised to float32 at loading" in said["float32"] and "stay" not in said["float32"]
    info = pinion_json("model", "info", model, "--json")
    packed = info["packed"]
    assert packed["int4_matrices"] + packed["int8_matrices"] >= 4 * info["layers"]
    assert packed["dequantised_matrices"] == 0
    assert packed["bytes"] < info["weight_bytes"]["float16"]


@pytest.mark.parametrize("name", GGUF)
def test_the_tokenizer_inside_a_gguf_file_is_the_references(pinion, data, tmp_path, name):
    fixture = Fixture(data, name)
    cases, chats = fixture.golden["tokenization"], fixture.golden["chats"]
    lines = [{"text": case["text"]} for case in cases]
    lines += [{"messages": chat["messages"]} for chat in chats if "error" not in chat]
    source, output = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    source.write_text("".join(json.dumps(line) + "\n" for line in lines))
    done = pinion("tokenize", fixture.path, "--input", source, "--output", output)
    assert done.returncode == 0, done.stderr
    got = [json.loads(line) for line in output.read_text().splitlines()]
    for case, line in zip(cases, got):
        assert (line["ids"], line["decoded"]) == (case["ids"], case["decoded"])
    want = [(chat["rendered"], chat["input_ids"]) for chat in chats if "error" not in chat]
    assert [(line["rendered"], line["ids"]) for line in got[len(cases):]] == want


# Q8_0 of one architecture, Q4_0 of another: weights, tokenizer and template from one file.
@pytest.mark.parametrize("name", ["llama-q8_0.gguf", "qwen3-q4_0.gguf"])
def test_a_gguf_file_is_served_from_end_to_end(start_server, data, name):
    fixture = Fixture(data, name)
    server = start_server(fixture.path, "--dtype", "float32", *SMALL)
    (model,) = json.loads(server.get("/v1/models"))["data"]
    for prompt in fixture.prompts:
        if prompt["min_gap_nats"] < NEAR_TIE_NATS:
            continue
        answer = server.post("/v1/completions", {
            "model": model["id"], "prompt": prompt["text"], "temperature": 0, "ignore_eos": True,
            "max_tokens": len(prompt["greedy_ids"]), "skip_special_tokens": True})
        assert answer["choices"][0]["text"] == prompt["greedy_text"]
        assert answer["usage"]["prompt_tokens"] == len(prompt["input_ids"])
    chat = next(chat for chat in fixture.golden["chats"] if "error" not in chat)
    answer = server.post("/v1/chat/completions", {
        "model": model["id"], "messages": chat["messages"], "temperature": 0, "max_tokens": 4})
    assert answer["usage"]["prompt_tokens"] == len(chat["input_ids"])
    assert answer["choices"][0]["message"]["role"] == "assistant"
    assert server.stop() == 0


@pytest.mark.parametrize("keep", [0, 3, 30, 3000, 0.5, 0.99])
def test_truncated_gguf_files_are_one_clear_error(pinion, data, tmp_path, keep):
    raw = (data / "quantised" / "llama-q4_0.gguf").read_bytes()
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(raw[:int(keep * len(raw)) if isinstance(keep, float) else keep])
    done = pinion("model", "info", broken)
    assert done.returncode == 1
    assert len(done.stderr.strip().splitlines()) == 1
    assert "broken.gguf" in done.stderr


@pytest.mark.parametrize("scheme", ["w8a8", "awq", "gptq"])
def test_made_up_checkpoints_hold_what_the_preset_computes(pinion, tmp_path, scheme):
    config = {"architectures": ["LlamaForCausalLM"], "hidden_size": 128, "intermediate_size": 256,
              "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1,
              "vocab_size": 320, "max_position_embeddings": 64, "torch_dtype": "bfloat16"}
    (tmp_path / "config.json").write_text(json.dumps(config))
    made = pinion("model", "make", "--config", tmp_path / "config.json", "--scheme", scheme,
                  tmp_path / "model")
    assert made.returncode == 0, made.stderr
    info = json.loads(pinion("model", "info", tmp_path / "model", "--json").stdout)
    kinds = {tensor["dtype"] for tensor in info["tensors"]}
    assert len(kinds) == 2 and "bfloat16" in kinds
    lines = tmp_path / "in.jsonl"
    lines.write_text('{"input_ids": [5, 6, 7, 8, 9, 10, 11, 12]}\n')
    logits = tmp_path / "logits.safetensors"
    for flags in (["--dtype", "float32", "--logits", logits], ["--compare", logits]):
        done = pinion("score", tmp_path / "model", "--input", lines, "--output",
                      tmp_path / "out.jsonl", *SMALL, *flags)
        assert done.returncode == 0, done.stderr
    compared = json.loads((tmp_path / "out.jsonl").read_text())["compare"]
    assert 0 < compared["kl_nats"] < 0.02
    assert compared["top1_agreement"] > 0.5
    assert abs(compared["perplexity"] - compared["reference_perplexity"]
               - compared["perplexity_difference"]) < 1e-6


def test_unknown_schemes_and_settings_are_usage_errors(pinion, tmp_path):
    for arguments, said in [
            (["model", "make", "--preset", "tiny", "--scheme", "fp8", tmp_path / "m"], "w8a8, awq or gptq"),
            (["run", "preset:tiny:q4", "-p", "x"], "w8a8, awq or gptq"),
            (["run", "preset:tiny", "-p", "x", "--activations", "int4"], "auto, int8 or bf16"),
            (["run", "preset:tiny", "-p", "x", "--head-dtype", "int4"], "auto or int8")]:
        done = pinion(*arguments)
        assert done.returncode == 2
        assert said in done.stderr
