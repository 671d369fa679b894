"""`pinion model make` and `pinion model info` as a person uses them."""

import json
import signal
import subprocess

import pytest

from conftest import wait_until

LLAMA_2_SHAPE = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 96,
    "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 3, "vocab_size": 400,
    "max_position_embeddings": 256, "bos_token_id": 1, "eos_token_id": 2, "torch_dtype": "float16"}


def test_a_made_checkpoint_generates_the_presets_tokens(pinion, tmp_path):
    folder = tmp_path / "tiny"
    made = pinion("model", "make", "--preset", "tiny", "--seed", 7, folder)
    assert made.returncode == 0, made.stderr
    run = ["-p", "the computer", "--max-tokens", 24, "--ignore-eos", "--dtype", "float32"]
    from_disk = pinion("run", folder, *run)
    in_memory = pinion("run", "preset:tiny", "--seed", 7, *run)
    other_seed = pinion("run", "preset:tiny", "--seed", 8, *run)
    assert from_disk.returncode == in_memory.returncode == 0, from_disk.stderr + in_memory.stderr
    assert from_disk.stdout == in_memory.stdout != other_seed.stdout


def test_makes_the_checkpoint_that_a_config_describes(pinion, pinion_json, tmp_path):
    config = tmp_path / "config.json"
    config.write_text(json.dumps(LLAMA_2_SHAPE))
    folder = tmp_path / "made"
    assert pinion("model", "make", "--config", config, folder).returncode == 0
    assert json.loads((folder / "config.json").read_text()) == LLAMA_2_SHAPE
    info = pinion_json("model", "info", folder, "--json")
    assert info["stored"]["bytes"] == {"float16": 2 * info["parameters"]}
    assert pinion("model", "make", "--config", config, "--dtype", "float32",
                  tmp_path / "wide").returncode == 0
    assert json.loads((tmp_path / "wide/config.json").read_text())["torch_dtype"] == "float32"


def test_info_knows_presets_and_folders(pinion, pinion_json, data):
    preset = pinion_json("model", "info", "llama-3.2-1b", "--json")
    assert preset["parameters"] == 1_235_814_400
    assert preset["kv_bytes_per_token"]["bfloat16"] == 32768
    folder = pinion_json("model", "info", data / "models/llama", "--json")
    assert folder["stored"]["tensors"] == 29 and len(folder["stored"]["files"]) == 4
    # One of six layers sees all of 512 tokens, the others see 16 of them.
    windows = pinion_json("model", "info", data / "models/gemma3", "--json")
    token = windows["kv_bytes_per_token"]["bfloat16"]
    assert windows["kv_bytes_of_longest_sequence"]["bfloat16"] * 6 == token * (512 + 5 * 16)
    table = pinion("model", "info", data / "models/opt")
    assert table.returncode == 0
    assert "model.decoder.layers.*.fc1.weight" in table.stdout


def test_a_killed_make_leaves_nothing_that_looks_like_a_model(spawn, pinion, tmp_path):
    folder = tmp_path / "killed"
    maker = spawn("model", "make", "--preset", "llama-3.2-1b", folder, stderr=subprocess.PIPE)
    assert wait_until(lambda: maker.poll() is not None or list(folder.glob("*.part")))
    assert maker.poll() is None, maker.stderr.read()
    maker.send_signal(signal.SIGKILL)
    maker.wait()
    left = [path.name for path in folder.iterdir()]
    assert left and all(name.endswith(".part") for name in left)
    refused = pinion("model", "info", folder)
    assert refused.returncode == 1 and "config.json" in refused.stderr
    assert pinion("model", "make", "--preset", "tiny", folder).returncode == 0


@pytest.mark.parametrize("arguments, code, words", [
    (["make", "DIR"], 2, ["--preset", "--config"]),
    (["make", "--preset", "tiny"], 2, ["DIR"]),
    (["make", "--preset", "gpt-5", "DIR"], 2, ["'gpt-5'", "llama-3.2-1b"]),
    (["make", "--preset", "tiny", "--dtype", "int8", "DIR"], 2, ["'int8'", "bfloat16"]),
    (["make", "--preset", "tiny", "FULL"], 2, ["already holds config.json"]),
    (["make", "--config", "missing.json", "DIR"], 1, ["missing.json"]),
    (["info"], 2, ["MODEL"]),
    (["info", "no/such"], 1, ["no/such", "hf download"]),
    (["info", "FULL/model.safetensors"], 2, ["is a file"]),
    ([], 2, []),
])
def test_errors_are_one_clear_sentence(pinion, data, tmp_path, arguments, code, words):
    places = {"DIR": tmp_path / "new", "FULL": data / "models/llama2",
              "FULL/model.safetensors": data / "models/llama2/model.safetensors"}
    done = pinion("model", *[places.get(each, each) for each in arguments])
    assert done.returncode == code, done.stderr
    assert done.stdout == ""
    for word in words:
        assert word in done.stderr
    assert not (tmp_path / "new").exists()


def test_the_list_names_every_architecture_that_a_fixture_has(pinion, data):
    listed = pinion("model", "list").stdout
    configs = [json.loads(path.read_text()) for path in (data / "models").glob("*/config.json")]
    # Of a model of text and more, the language model is listed, which its config does not name.
    named = {config["architectures"][0] for config in configs if "text_config" not in config}
    assert len(named) > 20 and all(f"`{name}`" in listed for name in named)
