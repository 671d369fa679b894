"""Sweep definitions that no one should write: each ends at once, with exit code 2 and one sentence that names what is
wrong, and leaves nothing behind. tests/harness/space/hostile_definition_test.cc has many more, without the program."""

import json

import pytest

SERVER = {"engine": "command", "name": "mine", "command": ["./server", "--port", "{port}"]}
# Texts that are not JSON, or not JSON that is read.
TEXTS = {
    "not a number": (b'{"epsilon": NaN}', "not valid JSON"),
    "infinity": (b'{"budget": Infinity}', "not valid JSON"),
    "beyond doubles": (b'{"budget": 1e400}', "not valid JSON"),
    "deep": (b'{"axes":' + b"[" * 100_000 + b"]" * 100_000 + b"}", "nested deeper than 200 levels"),
    "no utf-8": (b'{"strategy": "\xff"}', "not valid JSON"),
    "a comment": (b'{"seed": 1} // one', "not valid JSON"),
    "two values": (b"{} {}", "not valid JSON"),
    "megabytes": (b'{"' + b"x" * 3_000_000 + b'": 1}', "is a text of 3000000 bytes"),
}
# JSON that makes no definition, or a definition that makes no configurations.
DEFINITIONS = [
    ({"axes": {"isa": []}}, "at least one value, not []"),
    ({"axes": {"max_num_seqs": [-2**63]}}, str(-2**63)),
    ({"axes": {"kv_cache_space": [1e300]}}, "'1e+300' is too large"),
    ({"axes": {"-a": [1]}, "when": {"-a": {"isa": {}}}}, "compares 'isa' with {}"),
    ({"axes": {"-a": [1], "-b": [1]}, "when": {"-a": {"-b": 1}, "-b": {"-a": 1}}}, "depends on itself"),
    ({"axes": {"env.A": ["a\0b"]}}, "has a NUL"),
    ({"axes": {"max_num_seqs": list(range(1, 1002))}}, "more than 1000 combinations"),
    ({"candidates": [{"isaa": "avx2"}]}, "unknown setting 'isaa'"),
    ({"candidates": [{"max_num_seqs": "many"}]}, 'not "many"'),
    ({"candidates": [{"-a": {}}]}, "not {}"),
    ({"engines": [SERVER, SERVER]}, "two of 'engines' are named 'mine'"),
    ({"engines": [{**SERVER, "arguments": ["{cores}"]}]}, "no placeholder '{cores}'"),
    ({"engines": [SERVER], "axes": {"--x": ["{threads}", "{cores}"]}}, "no placeholder '{cores}'"),
    ({"engines": [SERVER], "candidates": [{"env.X": "{"}]}, "no placeholder '{}'"),
    ({"workload": {"num_prompts": 2**20, "prompt_len": 2**20}}, "1048576 prompts of 1048576 tokens"),
    ({"workload": {"slo": {"ttft": 1, "start": 1e300}}}, "'start' in 'slo' is 1e+300"),
    ({"objectives": ["latency", "latency"]}, "lists latency twice"),
    ({"strategy": "tpe", "random_points": 10**12}, "1000000000000 is out of range"),
]


def check(pinion, tmp_path, text, says):
    given = tmp_path / "given.json"
    given.write_bytes(text)
    done = pinion("sweep", "preset:tiny", "--def", given, "--out", tmp_path / "out", timeout=60)
    assert done.returncode == 2, done.stderr
    assert done.stderr.startswith("pinion: ") and done.stderr.count("\n") == 1, done.stderr
    assert says in done.stderr and len(done.stderr) < 1000, done.stderr
    assert done.stdout == "" and list(tmp_path.iterdir()) == [given]


@pytest.mark.parametrize("name", TEXTS)
def test_a_text_that_is_not_a_definition_is_bad_usage(pinion, tmp_path, name):
    check(pinion, tmp_path, *TEXTS[name])


@pytest.mark.parametrize("definition, says", DEFINITIONS, ids=lambda one: one if isinstance(one, str) else "")
def test_a_hostile_definition_is_bad_usage(pinion, tmp_path, definition, says):
    check(pinion, tmp_path, json.dumps(definition).encode(), says)
