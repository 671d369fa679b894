"""`pinion run` and `pinion score` as a person uses them: contracts of input, output and exit codes."""

import json
import math
import shutil
import struct

import pytest

MODEL = "models/tiny-trained"


def write_lines(path, lines):
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def read_lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.fixture(scope="module")
def golden(data):
    return json.loads((data / MODEL / "golden.json").read_text())


def read_safetensors(path):
    raw = path.read_bytes()
    (length,) = struct.unpack("<Q", raw[:8])
    return json.loads(raw[8:8 + length]), raw[8 + length:]


def test_prints_the_completion_of_a_prompt(pinion, data, golden):
    prompt = golden["prompts"][0]
    done = pinion("run", data / MODEL, "-p", prompt["text"], "--max-tokens", 32, "--dtype", "float32",
                  "--ignore-eos")
    assert done.returncode == 0, done.stderr
    assert done.stdout == prompt["greedy_text"] + "\n"


def test_answers_every_line_in_input_order(pinion, data, golden, tmp_path):
    prompts = golden["prompts"]
    chat = golden["chats"][1]
    lines = [{"text": prompts[0]["text"]}, {"input_ids": prompts[4]["input_ids"]},
             {"messages": chat["messages"]}, {"text": prompts[1]["text"], "max_tokens": 3}]
    output = tmp_path / "out.jsonl"
    done = pinion("run", data / MODEL, "--input", write_lines(tmp_path / "in.jsonl", lines),
                  "--output", output, "--max-tokens", 32, "--ignore-eos", "--dtype", "float32")
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""
    out = read_lines(output)
    assert [line["prompt_ids"] for line in out] == [
        prompts[0]["input_ids"], prompts[4]["input_ids"], chat["input_ids"], prompts[1]["input_ids"]]
    assert out[0]["output_ids"] == prompts[0]["greedy_ids"]
    assert out[0]["text"] == prompts[0]["greedy_text"]
    assert out[1]["output_ids"] == prompts[4]["greedy_ids"]
    assert out[3]["output_ids"] == prompts[1]["greedy_ids"][:3]
    assert {line["finish_reason"] for line in out} == {"length"}


@pytest.mark.parametrize("flags", [["-tp", 2, "--threads-bind", "nobind"],
                                   ["--max-num-batched-tokens", 7],
                                   ["--no-enable-prefix-caching"], ["--isa", "scalar"],
                                   ["--max-num-seqs", 1, "--kv-cache-space", "1MiB",
                                    "--max-model-len", 256]])
def test_gives_the_same_tokens_however_it_runs(pinion, data, golden, tmp_path, flags):
    lines = [{"input_ids": prompt["input_ids"]} for prompt in golden["prompts"]]
    done = pinion("run", data / MODEL, "--input", write_lines(tmp_path / "in.jsonl", lines),
                  "--max-tokens", 32, "--ignore-eos", "--dtype", "float32", *flags)
    assert done.returncode == 0, done.stderr
    out = [json.loads(line) for line in done.stdout.splitlines()]
    assert [line["output_ids"] for line in out] == [p["greedy_ids"] for p in golden["prompts"]]


def test_serves_a_repeated_prompt_from_the_prefix_cache(pinion, data, golden, tmp_path):
    line = {"input_ids": golden["prompts"][4]["input_ids"]}
    path = write_lines(tmp_path / "in.jsonl", [line, line])
    for flag, expected in (("--enable-prefix-caching", 64), ("--no-enable-prefix-caching", 0)):
        done = pinion("run", data / MODEL, "--input", path, "--max-num-seqs", 1, flag)
        first, second = [json.loads(each) for each in done.stdout.splitlines()]
        assert (first["cached_tokens"], second["cached_tokens"]) == (0, expected)
        assert first["output_ids"] == second["output_ids"]


def test_a_bad_line_is_an_error_of_that_line_alone(pinion, data, tmp_path):
    lines = [{"input_ids": [1, 2]}, {"input_ids": [99999]}, {}, {"text": "x", "top_p": 7}]
    done = pinion("run", data / MODEL, "--input", write_lines(tmp_path / "in.jsonl", lines),
                  "--max-tokens", 2)
    assert done.returncode == 1
    out = [json.loads(line) for line in done.stdout.splitlines()]
    assert "output_ids" in out[0]
    assert "99999" in out[1]["error"]
    assert "input_ids" in out[2]["error"]
    assert "top_p" in out[3]["error"]


def test_names_weights_that_are_not_numbers(pinion, data, tmp_path):
    model = shutil.copytree(data / MODEL, tmp_path / "model")
    path = model / "model.safetensors"
    header, weights = read_safetensors(path)
    begin, end = header["model.norm.weight"]["data_offsets"]
    path.write_bytes(path.read_bytes()[:-len(weights)] + weights[:begin] + b"\xff" * (end - begin) +
                     weights[end:])
    for folder, said in ((model, True), (data / MODEL, False)):
        done = pinion("run", folder, "-p", "x", "--max-tokens", 1)
        assert done.returncode == (1 if said else 0), done.stderr
        assert ("every logit is NaN" in done.stderr) == said, done.stderr


def test_sampling_depends_on_the_seed_alone(pinion, data, tmp_path):
    lines = [{"text": "def f(", "seed": 5}, {"text": "def f(", "seed": 6}, {"text": "def f(", "seed": 5}]
    path = write_lines(tmp_path / "in.jsonl", lines)
    outputs = []
    for seqs in (1, 3):
        done = pinion("run", data / MODEL, "--input", path, "--temperature", 1, "--max-tokens", 20,
                      "--ignore-eos", "--max-num-seqs", seqs, "--dtype", "float32")
        outputs.append([json.loads(line)["output_ids"] for line in done.stdout.splitlines()])
    assert outputs[0] == outputs[1]
    assert outputs[0][0] == outputs[0][2] != outputs[0][1]


def test_scores_like_the_reference(pinion, data, golden, tmp_path):
    prompt = golden["prompts"][4]
    ids = prompt["input_ids"] + prompt["greedy_ids"]
    output, logits = tmp_path / "out.jsonl", tmp_path / "logits.safetensors"
    done = pinion("score", data / MODEL, "--input", write_lines(tmp_path / "in.jsonl", [{"input_ids": ids}]),
                  "--output", output, "--top-logprobs", 5, "--logits", logits, "--dtype", "float32",
                  "--max-num-batched-tokens", 7)
    assert done.returncode == 0, done.stderr
    (line,) = read_lines(output)
    assert line["input_ids"] == ids
    assert len(line["token_logprobs"]) == len(line["top_logprobs"]) == len(ids)
    assert line["token_logprobs"][0] is None and line["top_logprobs"][0] is None
    start = len(prompt["input_ids"])
    for got, want in zip(line["top_logprobs"][start:], prompt["top5_logprobs"]):
        assert [pair[0] for pair in got] == [pair[0] for pair in want]
        assert all(abs(a[1] - b[1]) < 1e-3 for a, b in zip(got, want))
    mean = sum(line["token_logprobs"][1:]) / (len(ids) - 1)
    assert math.isclose(line["perplexity"], math.exp(-mean), rel_tol=1e-9)
    header, body = read_safetensors(logits)
    entry = header["prompt0.logits"]
    assert entry["dtype"] == "F32" and entry["shape"] == [len(ids), 1024]
    assert entry["data_offsets"] == [0, len(body)]


def test_heldout_perplexity_is_the_references(pinion, data, golden, tmp_path):
    heldout = golden["heldout"]
    text = (data / MODEL / heldout["file"]).read_text()
    ids = json.loads(pinion("tokenize", data / MODEL, "--input",
                            write_lines(tmp_path / "text.jsonl", [{"text": text}]),
                            "--output", "-").stdout)["ids"]
    windows = [ids[i * heldout["stride"]:i * heldout["stride"] + heldout["window_tokens"]]
               for i in range(heldout["windows"])]
    path = write_lines(tmp_path / "in.jsonl", [{"input_ids": window} for window in windows])
    done = pinion("score", data / MODEL, "--input", path, "--dtype", "float32")
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    logprobs = [value for line in lines for value in line["token_logprobs"][1:]]
    nll = -sum(logprobs) / len(logprobs)
    assert math.isclose(nll, heldout["nll_per_token"], rel_tol=1e-4)


@pytest.mark.parametrize("arguments, code, words", [
    (["run", "MODEL"], 2, ["-p", "--input"]),
    (["run", "MODEL", "-p", "x", "--isa", "sse9"], 2, ["'sse9'", "scalar"]),
    (["run", "MODEL", "-p", "x", "--gemm-kernel", "magic@2"], 2, ["'magic@2'", "auto", "NAME[@ROWS]"]),
    (["run", "MODEL", "-p", "x", "--dtype", "int3"], 2, ["'int3'", "bfloat16"]),
    (["run", "MODEL", "-p", "x", "-tp", 99], 2, ["99"]),
    (["run", "MODEL", "-p", "x", "--threads-bind", "4096"], 2, ["4096"]),
    (["run", "MODEL", "-p", "x", "--max-num-batched-tokens", 0], 2, ["0"]),
    (["run", "MODEL", "-p", "x", "--max-model-len", 99999], 2, ["99999", "2048"]),
    (["run", "MODEL", "-p", "x", "--kv-cache-space", "900000"], 1, ["KV", "GiB"]),
    (["run", "MODEL", "-p", "x", "--kv-cache-space", "huge"], 2, ["'huge'"]),
    (["run", "MODEL", "-p", "x", "--no-such-flag"], 2, ["--no-such-flag"]),
    (["run", "no/such/model", "-p", "x"], 1, ["no/such/model"]),
    (["run", "preset:none", "-p", "x"], 2, ["none", "tiny"]),
    (["score", "MODEL", "--input", "missing.jsonl"], 1, ["missing.jsonl"]),
    (["frobnicate"], 2, ["frobnicate"]),
])
def test_bad_usage_gets_one_clear_sentence(pinion, data, arguments, code, words):
    done = pinion(*[data / MODEL if each == "MODEL" else each for each in arguments],
                  env={"PINION_LOG": "off"})
    assert done.returncode == code, done.stderr
    assert done.stdout == ""
    for word in words:
        assert word in done.stderr
    assert "check failed" not in done.stderr


def test_refuses_a_bias_for_a_token_that_does_not_exist(pinion, data, tmp_path):
    lines = [{"text": "x", "logit_bias": {"999999": 1}}, {"text": "x"}]
    output = tmp_path / "out.jsonl"
    done = pinion("run", data / MODEL, "--input", write_lines(tmp_path / "in.jsonl", lines),
                  "--output", output)
    assert done.returncode == 1
    refused, answered = read_lines(output)
    assert refused["error"].startswith("'logit_bias' names token 999999, want ids below ")
    assert answered["output_ids"]
    done = pinion("run", data / MODEL, "-p", "x", "--stop-token-ids", 999999)
    assert done.returncode == 2
    assert "'stop_token_ids' names token 999999" in done.stderr
    assert "load and pack" not in done.stderr
