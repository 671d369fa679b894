"""Every published quantised format against the reference outputs: logits, greedy tokens, tokenizers.

The bounds are those of a correct engine: float32 arithmetic differs from the reference only by the
order of summation; bfloat16 may err twice as much as the reference's own bfloat16.
"""

import functools
import json

import pytest

from conftest import ISA_PATHS
from reference_outputs import Fixture, read_safetensors

FOLDERS = ["llama-w4a16", "llama-w4a16-asym", "llama-gptq-sym", "llama-gptq-v2", "llama-gptq-8bit",
           "llama-gptq-g-1", "llama-gptq-actorder", "qwen2-awq", "qwen2-awq-g128"]
W8A8 = ["llama-w8a8", "llama-w8a8-static", "llama-w8a8-static-asym", "qwen3moe-w8a8"]
FP8 = ["deepseekv3-fp8", "llama-fp8-channel", "llama-fp8-static", "llama-fp8-tensor", "qwen3-fp8",
       "qwen3-fp8-uneven", "qwen3moe-fp8"]
MXFP4 = ["gptoss-mxfp4"]
GGUF = [f"llama-{kind}.gguf" for kind in
        ["f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "q5_0", "q5_1", "q4_k", "q5_k", "q6_k"]]
GGUF += ["qwen2-q8_0.gguf", "qwen3-q4_0.gguf"]
QUANTISED_GGUF = [name for name in GGUF if "16" not in name and "f32" not in name]
# Every ISA path that the machine has, tensor parallelism, a pipeline, steps of a few tokens.
WAYS_OF_RUNNING = [["--isa", isa] for isa in ISA_PATHS]
WAYS_OF_RUNNING += [["-tp", "2"], ["-pp", "2"], ["--max-num-batched-tokens", "7"]]
# Two float32 engines may differ if the reference preferred its token by less (the fixtures' README:
# logits err by 1e-3 at most, so this is seven standard deviations of a difference).
NEAR_TIE_NATS = 0.01
# Of each fixture's 72 generated tokens, at least as many come before a near tie.
LEAST_CLEAR = 40
# Allowed loss of weight-only formats by int8 activations, the RMS error of logits and the KL divergence (the fixtures'
# README, by llama.cpp's 0.03 to 0.09 and 0.004 nats on such checkpoints).
INT8_ACTIVATIONS_RMS, INT8_ACTIVATIONS_NATS = 0.12, 0.01
SMALL = ["--kv-cache-space", "64MiB", "--threads-bind", "nobind"]


@pytest.fixture(scope="module")
def fixture_of(data):
    """fixture_of(name) -> Fixture, read once."""
    return functools.lru_cache(lambda name: Fixture(data / "quantised" / name))


class Scored:
    def __init__(self, fixture, logits, stderr):
        self.fixture, self.stderr = fixture, stderr
        self.error, self.divergence = fixture.errors(logits, "float32")
        self.errors = fixture.errors_by_prompt(logits, "float32")
        # Against the reference that rounds weights alone, if there is one.
        if "prompt0.logits.weights_only" in fixture.names:
            self.weights_error, _ = fixture.errors(logits, "weights_only")


@pytest.fixture(scope="module")
def scored(pinion, fixture_of, need_isa, tmp_path_factory):
    """scored(name, flags...) -> Scored against the float32 reference; one process for each name and
    set of flags, whichever tests ask."""

    @functools.lru_cache
    def run(name, *flags):
        if "--isa" in flags:
            need_isa(flags[flags.index("--isa") + 1])
        fixture = fixture_of(name)
        folder = tmp_path_factory.mktemp("scored")
        logits = folder / "logits.safetensors"
        done = pinion("score", fixture.path, "--input", fixture.inputs(folder), "--logits", logits,
                      "--output", folder / "scores.jsonl", *SMALL, *flags)
        assert done.returncode == 0, done.stderr
        return Scored(fixture, read_safetensors(logits), done.stderr)

    return run


def clear_tokens(prompt):
    """How many tokens the reference generated before the first near tie of its two best."""
    for i, (best, second, *_) in enumerate(prompt["top5_logprobs"]):
        if best[1] - second[1] < NEAR_TIE_NATS:
            return i
    return len(prompt["greedy_ids"])


def check_greedy(fixture, lines):
    compared = 0
    for prompt, line in zip(fixture.prompts, lines, strict=True):
        clear = clear_tokens(prompt)
        assert len(line["output_ids"]) == len(prompt["greedy_ids"])
        assert line["output_ids"][:clear] == prompt["greedy_ids"][:clear], prompt["text"]
        compared += clear
    assert compared >= LEAST_CLEAR


def weights_only_tokens(fixture, lines):
    """As check_greedy, of tokens that the reference generated with its activations left alone; where its
    choices came close is not known token by token, but for the closest of each prompt."""
    compared = 0
    for prompt, line in zip(fixture.prompts, lines, strict=True):
        if prompt["weights_only_min_gap_nats"] < NEAR_TIE_NATS:
            continue
        assert line["output_ids"] == prompt["weights_only_greedy_ids"], prompt["text"]
        compared += 1
    return compared


def test_the_fixtures_are_all_here(data):
    there = {path.name for path in (data / "quantised").iterdir()}
    assert there >= set(FOLDERS + W8A8 + FP8 + MXFP4 + GGUF)


@pytest.fixture
def run_greedy(pinion, fixture_of, tmp_path):
    """run_greedy(name, flags...) checks the generated tokens."""

    def run(name, *flags, check=check_greedy):
        fixture = fixture_of(name)
        output = tmp_path / "out.jsonl"
        done = pinion("run", fixture.path, "--input", fixture.inputs(tmp_path), "--output", output,
                      "--ignore-eos", "--max-tokens", len(fixture.prompts[0]["greedy_ids"]), *SMALL,
                      *flags)
        assert done.returncode == 0, done.stderr
        return check(fixture, [json.loads(line) for line in output.read_text().splitlines()])

    return run


FLOAT32 = ("--dtype", "float32")
UNROUNDED = ("--activations", "float")
BFLOAT16 = ("--dtype", "bfloat16", "--activations", "bf16")
INT8 = ("--dtype", "bfloat16", "--activations", "int8")


@pytest.mark.parametrize("name", FOLDERS + GGUF)
def test_float32_arithmetic_gives_the_references_logits_and_tokens(scored, run_greedy, name):
    assert scored(name, *FLOAT32).error <= 1e-3
    run_greedy(name, *FLOAT32)


@pytest.mark.parametrize("name", FOLDERS + GGUF)
def test_bfloat16_errs_at_most_twice_as_much_as_the_references(scored, name):
    found = scored(name, *BFLOAT16)
    assert found.error <= 2 * found.fixture.bf16_error()


@pytest.mark.parametrize("name", FOLDERS + QUANTISED_GGUF)
def test_int8_activations_stay_within_their_divergence(scored, name):
    found = scored(name, *INT8)
    assert found.error <= INT8_ACTIVATIONS_RMS
    assert found.divergence <= INT8_ACTIVATIONS_NATS


@pytest.mark.parametrize("flags", WAYS_OF_RUNNING, ids=" ".join)
@pytest.mark.parametrize("name", W8A8)
def test_w8a8_in_float32_is_the_references_integer_arithmetic(scored, run_greedy, name, flags):
    found = scored(name, *FLOAT32, *flags)
    if "-tp" in flags and "static" not in name:
        # A rank's dynamic scale is that of its own columns, so it rounds otherwise, no worse.
        assert found.error <= 2 * found.fixture.bf16_error()
        return
    assert found.error <= 1e-3
    run_greedy(name, *FLOAT32, *flags)


@pytest.mark.parametrize("name", W8A8)
def test_float_activations_leave_the_weights_to_decide(scored, name):
    """--activations float rounds no activation, whatever the scheme says."""
    assert scored(name, *FLOAT32, "--activations", "float").weights_error <= 1e-3


def test_integer_experts_are_the_same_packed_at_every_step(scored, run_greedy):
    for prepack in ("0", "1"):
        flags = [*FLOAT32, "--moe-prepack", prepack]
        assert scored("qwen3moe-w8a8", *flags).error <= 1e-3
        run_greedy("qwen3moe-w8a8", *flags)


@pytest.mark.parametrize("name", W8A8)
def test_w8a8_in_bfloat16_errs_at_most_twice_as_much_as_the_references(scored, name):
    found = scored(name, "--dtype", "bfloat16")
    assert found.error <= 2 * found.fixture.bf16_error()


@pytest.mark.parametrize("flags", [[], *WAYS_OF_RUNNING], ids=" ".join)
@pytest.mark.parametrize("name", FP8)
def test_fp8_weights_are_the_references(scored, name, flags):
    """--activations float rounds none: the engine is where the reference without their rounding is."""
    assert scored(name, *FLOAT32, *UNROUNDED, *flags).weights_error <= 1e-3


def test_fp8_weights_generate_the_references_tokens(run_greedy):
    assert sum(run_greedy(name, *FLOAT32, *UNROUNDED, check=weights_only_tokens) for name in FP8) >= 10


# A sum in another order may move an activation across the middle between two values of e4m3, and with it all that
# follows: such a prompt differs by up to as much as all roundings together make (the fixtures' README). That happens
# to one prompt in ten, so that a third of them leaves room; a wrong scale happens to every prompt of a fixture.
@pytest.mark.parametrize("flags", [[], *WAYS_OF_RUNNING], ids=" ".join)
def test_fp8_activations_are_rounded_as_the_scheme_says(scored, flags):
    equal = []
    for name in FP8:
        found = scored(name, *FLOAT32, *flags)
        if "-tp" in flags and "static" not in name:
            # A rank's dynamic scales are those of its own columns, so it rounds otherwise, no worse.
            assert 1e-3 < found.weights_error and found.error <= 2 * found.fixture.bf16_error(), name
            continue
        of_rounding = [prompt["weights_only_rms_logit_error"] for prompt in found.fixture.prompts]
        assert all(error <= most for error, most in zip(found.errors, of_rounding, strict=True)), name
        of_fixture = [error <= 1e-3 for error in found.errors]
        assert any(of_fixture), name
        equal += of_fixture
    assert 3 * sum(equal) >= 2 * len(equal)


def test_fp8_with_rounded_activations_generates_the_references_tokens(run_greedy):
    def compare(fixture, lines):
        clear = [clear_tokens(prompt) for prompt in fixture.prompts]
        assert all(clear)
        return [line["output_ids"][:count] == prompt["greedy_ids"][:count]
                for count, prompt, line in zip(clear, fixture.prompts, lines, strict=True)]

    equal = [run_greedy(name, *FLOAT32, check=compare) for name in FP8]
    assert all(any(of_fixture) for of_fixture in equal)
    assert 3 * sum(map(sum, equal)) >= 2 * sum(map(len, equal))


@pytest.mark.parametrize("flags", [[], *WAYS_OF_RUNNING], ids=" ".join)
@pytest.mark.parametrize("name", FP8)
def test_fp8_in_bfloat16_errs_at_most_twice_as_much_as_the_references(scored, name, flags):
    found = scored(name, "--dtype", "bfloat16", *flags)
    assert found.error <= 2 * found.fixture.bf16_error()
    found = scored(name, "--dtype", "bfloat16", *UNROUNDED, *flags)
    assert found.weights_error <= 2 * found.fixture.bf16_error()


def test_the_log_tells_whether_fp8_activations_are_rounded(scored):
    for flags, said in ((), True), (UNROUNDED, False):
        for name in FP8:
            lines = scored(name, *FLOAT32, *flags).stderr.splitlines()
            (line,) = [line for line in lines if "quantised matrices: " in line]
            assert ("with activations rounded to 8-bit floats" in line) == said


@pytest.mark.parametrize("flags", [[], *WAYS_OF_RUNNING], ids=" ".join)
def test_mxfp4_experts_are_the_references(scored, run_greedy, flags):
    for name in MXFP4:
        assert scored(name, *FLOAT32, *flags).error <= 1e-3
        run_greedy(name, *FLOAT32, *flags)
        found = scored(name, *BFLOAT16, *flags)
        assert found.error <= 2 * found.fixture.bf16_error()
        found = scored(name, *INT8, *flags)
        assert found.error <= INT8_ACTIVATIONS_RMS and found.divergence <= INT8_ACTIVATIONS_NATS


# Groups with and without offsets, whole rows, act-order, groups of 16 in 8 bits.
LAYOUTS = ["qwen2-awq", "llama-gptq-g-1", "llama-gptq-actorder", "llama-q4_k.gguf", "llama-q6_k.gguf"]
# The last one has a single layer, which makes no stages.
LAYOUTS_IN_EVERY_WAY = [pytest.param(name, flags, id=f"{name}-{' '.join(flags)}")
                        for name in LAYOUTS for flags in WAYS_OF_RUNNING if "-pp" not in flags or "q6_k" not in name]


@pytest.mark.parametrize("name, flags", LAYOUTS_IN_EVERY_WAY)
def test_integer_weights_run_in_every_way(scored, name, flags):
    found = scored(name, "--activations", "int8", *flags)
    assert found.error <= INT8_ACTIVATIONS_RMS and found.divergence <= INT8_ACTIVATIONS_NATS


@pytest.mark.parametrize("name, flags", LAYOUTS_IN_EVERY_WAY)
def test_integer_weights_take_float_activations_in_every_way(scored, name, flags):
    found = scored(name, *BFLOAT16, *flags)
    assert found.error <= 2 * found.fixture.bf16_error()
    found = scored(name, "--dtype", "float16", "--activations", "bf16", *flags)
    # Float16's steps are an eighth of bfloat16's.
    assert found.error <= 2 * found.fixture.bf16_error() / 8


@pytest.mark.parametrize("name", [*FOLDERS, *QUANTISED_GGUF])
def test_the_log_names_kept_integers_and_only_float32_dequantises(scored, pinion_json, data, name):
    said = {}
    for flags in (INT8, BFLOAT16, FLOAT32):
        lines = scored(name, *flags).stderr.splitlines()
        (said[flags],) = [line for line in lines if "quantised matrices: " in line]
    assert "multiplied with int8 activations" in said[INT8] and "dequantised" not in said[INT8]
    assert "block by block" in said[BFLOAT16] and "dequantised" not in said[BFLOAT16]
    assert "dequantised to float32 at loading" in said[FLOAT32] and "stay" not in said[FLOAT32]
    info = pinion_json("model", "info", data / "quantised" / name, "--json")
    packed = info["packed"]
    assert packed["int4_matrices"] + packed["int8_matrices"] >= 4 * info["layers"]
    assert packed["dequantised_matrices"] == 0
    assert packed["bytes"] < info["weight_bytes"]["float16"]


@pytest.mark.parametrize("name", GGUF)
def test_the_tokenizer_inside_a_gguf_file_is_the_references(pinion, fixture_of, tmp_path, name):
    fixture = fixture_of(name)
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
def test_a_gguf_file_is_served_from_end_to_end(start_server, fixture_of, name):
    fixture = fixture_of(name)
    server = start_server(fixture.path, "--dtype", "float32", *SMALL)
    (model,) = json.loads(server.get("/v1/models"))["data"]
    compared = 0
    for prompt in fixture.prompts:
        clear = clear_tokens(prompt)
        answer = server.post("/v1/completions", {
            "model": model["id"], "prompt": prompt["text"], "temperature": 0, "ignore_eos": True,
            "max_tokens": clear, "skip_special_tokens": True})
        text = answer["choices"][0]["text"]
        if clear == len(prompt["greedy_ids"]):
            assert text == prompt["greedy_text"]
        else:  # the last character may be cut
            assert prompt["greedy_text"].startswith(text.rstrip("\ufffd"))
        assert answer["usage"]["prompt_tokens"] == len(prompt["input_ids"])
        assert answer["usage"]["completion_tokens"] == clear
        compared += clear
    assert compared >= LEAST_CLEAR
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
def test_made_up_checkpoints_hold_the_presets_weights(pinion, fixture_of, tmp_path, scheme):
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
    # Weight-only formats run with int8 activations here. W8A8 rounds those in float32 too: bfloat16 is what differs.
    nats = INT8_ACTIVATIONS_NATS if scheme != "w8a8" else (2 * fixture_of("llama-w8a8").bf16_error())**2 / 2
    assert 0 < compared["kl_nats"] <= nats
    assert abs(compared["perplexity"] - compared["reference_perplexity"]
               - compared["perplexity_difference"]) < 1e-6


def test_unknown_schemes_and_settings_are_usage_errors(pinion, tmp_path):
    for arguments, said in [
            (["model", "make", "--preset", "tiny", "--scheme", "fp8", tmp_path / "m"], "w8a8, awq or gptq"),
            (["run", "preset:tiny:q4", "-p", "x"], "w8a8, awq, gptq, fp8, nvfp4 or mxfp4"),
            (["run", "preset:tiny:mxfp4", "-p", "x"], "'tiny' has none"),
            (["run", "preset:tiny", "-p", "x", "--activations", "int4"], "auto, int8, bf16 or float"),
            (["run", "preset:tiny", "-p", "x", "--head-dtype", "int4"], "auto or int8")]:
        done = pinion(*arguments)
        assert done.returncode == 2
        assert said in done.stderr
