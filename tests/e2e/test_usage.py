"""Bad usage and bad surroundings, as a newcomer meets them: said at once, once, and with the way out."""

import json
import shutil
import subprocess

import pytest

MODEL = "models/tiny-trained"


@pytest.mark.parametrize("command", [("run", "-p", "x"), ("bench",), ("serve",), ("sweep",),
                                     ("score", "--input", "x"), ("embed", "--input", "x"),
                                     ("rank", "--input", "x")])
@pytest.mark.parametrize("flag", [("--gpu-memory-utilization", "0.9"), ("--device", "cuda")])
def test_gpu_settings_are_refused_with_the_reason(pinion, command, flag):
    done = pinion(command[0], "preset:tiny", *command[1:], *flag)
    assert done.returncode == 2
    assert flag[0] in done.stderr and "CPUs" in done.stderr and "leave it out" in done.stderr


def test_a_bad_variable_is_blamed_by_its_name(pinion):
    done = pinion("run", "preset:tiny", "-p", "x", env={"VLLM_CPU_NUM_OF_RESERVED_CPU": "two"})
    assert done.returncode == 2
    assert "VLLM_CPU_NUM_OF_RESERVED_CPU 'two'" in done.stderr


@pytest.mark.parametrize("command", ["run", "serve", "bench", "score", "embed", "rank"])
def test_help_names_the_environment(pinion, command):
    text = pinion(command, "--help").stdout
    for name in ("VLLM_CPU_KVCACHE_SPACE", "VLLM_CPU_OMP_THREADS_BIND",
                 "VLLM_CPU_NUM_OF_RESERVED_CPU", "VLLM_CPU_MOE_PREPACK"):
        assert name in text


def test_experts_are_prepacked_or_not(pinion, data):
    model = data / "models/qwen3moe"
    texts = [pinion("run", model, "-p", "x", "--max-tokens", 4, "--ignore-eos",
                    "--moe-prepack", prepack).stdout for prepack in (0, 1)]
    assert texts[0] == texts[1] != ""
    done = pinion("run", model, "-p", "x", "--moe-prepack", 2)
    assert done.returncode == 2 and "--moe-prepack is '2', want 0 or 1" in done.stderr


def test_topo_reads_variables_and_flags_beat_them(pinion_json):
    machine = ("topo", "--json", "--machine", "pack:2 numa:1 core:32 pu:2", "-tp", 2)
    env = {"VLLM_CPU_OMP_THREADS_BIND": "0-3|4-7"}
    ranks = pinion_json(*machine, env=env)["plan"]["ranks"]
    assert [rank["cpus"] for rank in ranks] == [[0, 1, 2, 3], [4, 5, 6, 7]]
    ranks = pinion_json(*machine, "--threads-bind", "8|9", env=env)["plan"]["ranks"]
    assert [rank["cpus"] for rank in ranks] == [[8], [9]]


def test_topo_shows_the_memory_of_a_models_sequences(pinion, pinion_json, data):
    machine = ("--machine", "pack:2 numa:1(memory=4GiB) core:4 pu:1", "-tp", 2)
    model = data / "models/gemma3"
    flags = ("--max-model-len", 320, "--kv-cache-dtype", "bf16", "--max-num-seqs", 7)
    fit = pinion_json("topo", model, "--json", *machine, *flags)["model"]
    info = pinion_json("model", "info", model, "--json")
    assert fit["kv_bytes_per_token"] == info["kv_bytes_per_token"]["bfloat16"]
    assert (fit["sequence_tokens"], fit["sequences"], fit["refusal"]) == (320, 7, None)
    assert {kind["name"] for kind in fit["kinds"]} == {"full", "windowed"}
    picture = pinion("topo", model, *machine, *flags).stdout
    assert "room       7 sequences of 320 tokens" in picture
    # The variable holds for MODEL; without one it is none of topo's business.
    env = {"VLLM_CPU_KVCACHE_SPACE": "1"}
    cache = pinion_json("topo", model, "--json", *machine, "--max-num-seqs", 1024, env=env)["model"]["cache_bytes"]
    assert 0.9 * 2**31 < cache <= 2**31, "1 GiB for each of two ranks"
    assert pinion_json("topo", "--json", *machine, env=env)["model"] is None


@pytest.mark.parametrize("flags, sentence", [
    (("--dtype", "float32"), "--dtype requires MODEL"),
    (("preset:tiny", "--dtype", "float33"), "--dtype 'float33' is unknown; use auto, bfloat16"),
    (("preset:tiny", "--block-size", 17), "--block-size is 17, want"),
    (("--smt", "maybe"), "--smt 'maybe' is unknown; use off or on"),
    (("preset:tinny",), "no preset 'tinny'"),
])
def test_topo_refuses_settings_that_it_cannot_show(pinion, flags, sentence):
    done = pinion("topo", *flags)
    assert done.returncode == 2 and sentence in done.stderr and done.stdout == ""


def test_an_unknown_log_level_is_said_and_hides_nothing(pinion):
    done = pinion("run", "preset:tiny", "-p", "x", "--max-tokens", 1, env={"PINION_LOG": "loud"})
    assert done.returncode == 0
    assert "PINION_LOG 'loud' is not a level" in done.stderr
    assert "ready after" in done.stderr


def test_unwritable_output_is_refused_before_the_engine_starts(pinion, tmp_path):
    missing = tmp_path / "missing" / "out.jsonl"
    done = pinion("run", "preset:tiny", "-p", "x", "--output", missing)
    assert done.returncode == 1
    assert f"cannot create '{missing}'" in done.stderr
    assert "load and pack" not in done.stderr


def test_a_prompt_without_a_tokenizer_fails_before_the_engine_starts(pinion, data, tmp_path):
    folder = tmp_path / "model"
    shutil.copytree(data / MODEL, folder, ignore=shutil.ignore_patterns("tokenizer*", "golden*"))
    done = pinion("run", folder, "-p", "x")
    assert done.returncode == 1
    assert "no tokenizer" in done.stderr and "load and pack" not in done.stderr


def test_an_empty_prompt_is_a_prompt(pinion, data):
    done = pinion("run", data / MODEL, "-p", "", "--json", "--max-tokens", 2)  # BOS alone
    assert done.returncode == 0, done.stderr
    assert len(json.loads(done.stdout)["prompt_ids"]) == 1


def test_nested_commands_point_to_their_own_help(pinion):
    done = pinion("model", "make", "--preset", "tiny")
    assert done.returncode == 2
    assert done.stderr.strip() == "pinion: DIR is required; see pinion model make --help"
    assert pinion("model").stderr == "pinion: no command given; the commands are make, info, list, quantize\n"


def test_tokenize_takes_a_preset_and_names_the_missing_part(pinion, tmp_path):
    lines = tmp_path / "lines.jsonl"
    lines.write_text('{"text":"hello"}\n')
    done = pinion("tokenize", "preset:tiny", "--input", lines)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["decoded"] == "hello"
    missing = pinion("tokenize", tmp_path / "missing", "--input", lines)
    assert missing.returncode == 1
    assert "is neither a folder nor org/name" in missing.stderr


def test_a_full_disk_is_told_once(binary, data):
    with open("/dev/full", "wb") as full:
        done = subprocess.run([binary, "run", data / MODEL, "-p", "x", "--json", "--max-tokens", "1"],
                              stdout=full, stderr=subprocess.PIPE, text=True, timeout=120)
    assert done.returncode == 1
    assert done.stderr.count("cannot write to standard output") == 1


def test_help_on_a_full_disk_fails(binary):
    for arguments in (["--help"], ["--version"], ["run", "--help"]):
        with open("/dev/full", "wb") as full:
            done = subprocess.run([binary, *arguments], stdout=full, stderr=subprocess.PIPE,
                                  text=True, timeout=60)
        assert done.returncode == 1, arguments
        assert done.stderr.count("cannot write to standard output") == 1


@pytest.mark.parametrize("arguments, sentence", [
    (("swep", "preset:tiny"), "unknown command 'swep'; did you mean sweep? the commands are topo"),
    (("--hlp",), "unknown option '--hlp'; did you mean --help? see pinion --help"),
    (("model", "mak"), "unknown command 'mak'; did you mean make? the commands are make, info"),
    (("run", "preset:tiny", "-p", "x", "--max-token", 3),
     "unknown option '--max-token'; did you mean --max-tokens? see pinion run --help"),
    (("run", "preset:tiny", "-p", "x", "--max-tokns=3"),
     "unknown option '--max-tokns'; did you mean --max-tokens? see pinion run --help"),
    (("run", "preset:tiny", "-p", "x", "--trust-remote-code"),
     "unknown option '--trust-remote-code'; see pinion run --help"),
    (("run", "preset:tiny", "-p", "x", "more"),
     "unexpected argument 'more'; see pinion run --help"),
    (("run", "preset:tiny", "--prompt"), "--prompt needs a value; see pinion run --help"),
    (("run", "preset:tiny", "-p", "x", "--temperature", "hot"),
     "--temperature 'hot' is not a number; see"),
    (("compare", "a"), "give two sweeps' folders, two profiles (A.json B.json), or two builds"),
])
def test_a_slip_is_named_with_the_option_that_was_meant(pinion, arguments, sentence):
    done = pinion(*arguments)
    assert done.returncode == 2
    assert done.stderr.startswith("pinion: " + sentence)


@pytest.mark.parametrize("seed", ["-3", "99999999999999999999999", "1e3"])
@pytest.mark.parametrize("command", [("run", "preset:tiny", "-p", "x"),
                                     ("model", "make", "/dev/null/x", "--preset", "tiny")])
def test_a_seed_is_used_as_written_or_refused(pinion, command, seed):
    done = pinion(*command, "--seed", seed)
    assert done.returncode == 2
    assert f"'{seed}' is not a whole number from 0" in done.stderr


@pytest.mark.parametrize("command", [("probe", "--seconds", 60, "--out"),
                                     ("score", "preset:tiny", "--input", "/dev/null", "--logits"),
                                     ("embed", "preset:tiny", "--input", "/dev/null", "--output")])
def test_a_file_that_cannot_be_written_is_said_before_the_work(pinion, command, tmp_path):
    done = pinion(*command, tmp_path / "none" / "file", timeout=50)
    assert done.returncode == 1
    assert "cannot create" in done.stderr and "ready after" not in done.stderr


def test_a_missing_model_is_answered_with_the_forms_of_a_model(pinion):
    done = pinion("model", "info", "/none")
    assert done.returncode == 1
    assert "'/none' is neither a folder nor org/name; MODEL is a folder in" in done.stderr
