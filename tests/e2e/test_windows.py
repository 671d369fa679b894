"""Layers that see a window keep no more than it: a cache far too small for everything gives the same tokens."""

import json
import random

import pytest

BLOCK = 32
LONG = 400  # tokens of prompts; windows have 16
# A block's bytes in float32 (32 tokens x KV heads x head's elements x keys and values x 4 x its layers), and the blocks
# that a sequence of 512 tokens takes: 16 of a table that keeps everything, at most 2 of one with a window, which lies
# across a border of blocks.
MODELS = {
    "gemma3": (BLOCK * 1 * 64 * 2 * 4, 16 + 5 * 2),   # a table of one layer for each of six
    "gptoss": (BLOCK * 2 * 32 * 2 * 4, 16 + 2),       # two layers, one of which has a window
    "mistral": (None, 2),                             # all layers have it
    "gemma4-dense": (BLOCK * 32 * 2 * 4, 16 + 2 * 2), # three layers, one of one head of 32, the others of two of 16
}


def write_lines(path, prompts):
    path.write_text("".join(json.dumps({"input_ids": ids}) + "\n" for ids in prompts))
    return path


def block_bytes(pinion_json, folder, name):
    if MODELS[name][0]:
        return MODELS[name][0]
    return BLOCK * pinion_json("model", "info", folder, "--json")["kv_bytes_per_token"]["float32"]


def prompts(tmp_path, count=3):
    draw = random.Random(20261125)
    ids = [[draw.randrange(3, 400) for _ in range(LONG)] for _ in range(count)]
    return write_lines(tmp_path / "in.jsonl", ids)


def run(pinion, folder, path, *flags, output=100):
    return pinion("run", folder, "--input", path, "--max-tokens", output, "--ignore-eos", "--dtype", "float32",
                  "--max-model-len", 512, "--block-size", BLOCK, *flags)


def tokens(done):
    assert done.returncode == 0, done.stderr
    return [json.loads(line)["output_ids"] for line in done.stdout.splitlines()]


@pytest.mark.parametrize("name", MODELS)
def test_a_cache_of_the_windows_gives_the_same_tokens(pinion, pinion_json, data, tmp_path, name):
    folder, path = data / "models" / name, prompts(tmp_path)
    needed = block_bytes(pinion_json, folder, name) * MODELS[name][1]
    wanted = tokens(run(pinion, folder, path, "--kv-cache-space", "64MiB"))
    for flags in ([], ["--max-num-batched-tokens", 40], ["--no-enable-prefix-caching"]):
        assert tokens(run(pinion, folder, path, "--kv-cache-space", f"{needed}B", *flags)) == wanted, flags
    refused = run(pinion, folder, path, "--kv-cache-space", f"{needed - 1}B")
    assert refused.returncode == 1
    assert "fewer than --max-model-len 512" in refused.stderr


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("split", [["-tp", 2], ["-pp", 2]])
def test_ranks_and_stages_drop_the_same_blocks(pinion, data, tmp_path, name, split):
    folder, path = data / "models" / name, prompts(tmp_path, count=2)
    wanted = tokens(run(pinion, folder, path, "--isa", "scalar"))
    assert tokens(run(pinion, folder, path, "--isa", "scalar", "--threads-bind", "nobind", *split)) == wanted


@pytest.mark.parametrize("name", MODELS)
def test_a_prompt_begins_behind_a_cached_prefix_whose_window_is_there(pinion, data, tmp_path, name):
    draw = random.Random(7)
    first = [draw.randrange(3, 400) for _ in range(LONG)]
    longer = first + [draw.randrange(3, 400) for _ in range(50)]
    parting = first[:200] + [draw.randrange(3, 400) for _ in range(60)]
    path = write_lines(tmp_path / "in.jsonl", (first, longer, parting))
    folder, one = data / "models" / name, ["--max-num-seqs", 1, "--kv-cache-space", "64MiB"]
    warm = run(pinion, folder, path, *one, output=8)
    assert warm.returncode == 0, warm.stderr
    lines = [json.loads(line) for line in warm.stdout.splitlines()]
    assert [line["cached_tokens"] for line in lines] == [0, LONG // BLOCK * BLOCK, 200 // BLOCK * BLOCK]
    cold = run(pinion, folder, path, "--no-enable-prefix-caching", *one, output=8)
    assert tokens(warm) == tokens(cold)
