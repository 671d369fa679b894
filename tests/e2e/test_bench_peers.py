"""scripts/bench-peers: turns, ratios, intervals and refusals, with engines that report scripted figures; and
the copy of a checkpoint as a GGUF file."""

import json
import os
import pathlib
import shutil
import subprocess
import sys

import pytest

from conftest import TOP

sys.path.insert(0, str(TOP / "scripts"))
from peers import gguf, pairs  # noqa: E402
from peers.usage import Usage  # noqa: E402

STAND_IN = pathlib.Path(__file__).with_name("stand_in_engine.py")


def run_of(tpot_ms, ttft_ms=512, output=100):
    """A JSON of `pinion load`: 4 prompts of 512 tokens."""
    return {"completed": 4, "total_input_tokens": 2048, "median_tpot_ms": tpot_ms, "median_ttft_ms": ttft_ms,
            "output_throughput": output}


class Bench:
    """scripts/bench-peers with the stand-ins `pinion` and `peer` on one CPU."""

    def __init__(self, folder):
        self.folder = folder
        for name in ("pinion", "peer", "llama-server"):
            shutil.copy(STAND_IN, folder / name)
            (folder / name).chmod(0o755)
            self.report(name, [])

    def report(self, name, runs):
        (self.folder / f"{name}.json").write_text(json.dumps(runs))

    def __call__(self, *words, path=None):
        return self.run("bench-peers", "--command", f"peer={self.folder / 'peer'} {{model}} --port {{port}}", *words,
                        path=path)

    def run(self, script, *words, path=None):
        command = [TOP / "scripts" / script, "--scratch", self.folder / "scratch", "--preset", "tiny", "--cpus", "0",
                   "--json", self.folder / "out.json", *words]
        environment = {"PATH": path or "/usr/bin:/bin", "STAND_IN": str(self.folder),
                       "PINION_BINARY": str(self.folder / "pinion")}
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True, stdin=subprocess.DEVNULL,
                              timeout=120, check=False, env=environment)
        assert self.processes() == [], "a server outlives the run"
        return done

    def processes(self):
        """Commands that run from this test's folder."""
        found = []
        for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
            try:
                found.append(path.read_bytes().replace(b"\0", b" ").decode())
            except OSError:
                pass  # it ended while we looked
        return [command for command in found if str(self.folder) in command]

    def result(self):
        return json.loads((self.folder / "out.json").read_text())["comparisons"][0]


@pytest.fixture
def bench(tmp_path):
    return Bench(tmp_path)


def test_the_first_turn_of_a_pair_alternates_and_ratios_are_taken_within_pairs(bench):
    ours, peer = [10, 20, 40, 10, 20, 40], [20, 20, 20, 30, 100, 80]
    bench.report("pinion", [run_of(value) for value in ours])
    bench.report("peer", [run_of(value) for value in peer])
    done = bench("--peers", "peer", "--rows", "decode1")
    assert done.returncode == 0, done.stderr
    order = (bench.folder / "starts").read_text().split()
    assert order == ["pinion", "peer", "peer", "pinion"] * 3
    row = bench.result()["rows"]["decode1"]
    ratios = [2, 1, 0.5, 3, 5, 2]  # a token of ours takes 10 ms, one of the peer's 20 ms: twice as fast
    assert row["ratios"] == pytest.approx(ratios)
    assert row["ratio_median"] == pytest.approx(2)  # the medians' own ratio is 50 / 41.7
    assert row["interval_95"] == pytest.approx([0.5, 5])
    assert "| decode, 1 sequence | 50 | 41.7 | tokens/s | 2.00 | 0.50 to 5.00 |" in done.stdout


def test_rows_are_computed_from_one_load_each(bench):
    for name, figures in {"pinion": run_of(100, 256, 90), "peer": run_of(200, 1024, 30)}.items():
        bench.report(name, [figures])
    done = bench("--peers", "peer", "--rows", "all", "--pairs", "1")
    assert done.returncode == 0, done.stderr
    rows = bench.result()["rows"]
    assert {name: (row["ours"], row["peer"]) for name, row in rows.items()} == {
        "prefill512": ([pytest.approx(2000)], [pytest.approx(500)]), "decode1": ([10], [5]),
        "decode16": ([160], [80]), "served16": ([90], [30]), "ttft16": ([256], [1024])}
    assert rows["ttft16"]["ratio_median"] == 0.25


def test_fewer_than_six_pairs_have_no_interval(bench):
    bench.report("pinion", [run_of(10)] * 5)
    bench.report("peer", [run_of(20)] * 5)
    done = bench("--peers", "peer", "--rows", "decode1", "--pairs", "5")
    assert bench.result()["rows"]["decode1"]["interval_95"] is None
    assert "| 2.00 | none: fewer than 6 pairs |" in done.stdout


def test_the_interval_is_that_of_a_median():
    # Ranks of the bounds from tables of the sign test at 5 %.
    ranks = {1: None, 5: None, 6: (1, 6), 8: (1, 8), 9: (2, 8), 12: (3, 10), 20: (6, 15), 25: (8, 18)}
    assert {count: pairs.interval([*range(count, 0, -1)]) for count in ranks} == ranks


def test_work_of_others_excludes_the_script_and_its_children(tmp_path):
    (tmp_path / "stat").write_text("cpu  100 200 300 9999 9999 10 20 370 5 5\n")
    assert Usage.now(tmp_path / "stat").busy_s * os.sysconf("SC_CLK_TCK") == 1000
    before = Usage.now()
    subprocess.run([sys.executable, "-c", "pass"], check=True)
    assert Usage.now().own_s > before.own_s
    # 100 s on 2 CPUs: 150 s of work, 90 s of it our own.
    assert Usage(1100, 650, 130).others_share(Usage(1000, 500, 40), 2) == pytest.approx(0.3)


def test_engines_get_the_same_cpus_threads_and_weights(bench):
    scratch = bench.folder / "scratch"
    (scratch / "models").mkdir(parents=True)
    (scratch / "models/tiny-BF16.gguf").touch()
    for name in ("pinion", "llama-server"):
        bench.report(name, [run_of(10)])
    done = bench("--peers", "ik_llama.cpp-rtr", "--ik", bench.folder, "--pairs", "1", "--flags=--isa avx2",
                 "--peer-flags=--mlock")
    assert done.returncode == 0, done.stderr
    ours, peer = (bench.result()[which]["command"] for which in ("ours", "peer"))
    assert ours.startswith(f"taskset -c 0 {bench.folder}/pinion serve {scratch}/models/tiny-bfloat16 ")
    assert "--threads-bind 0 " in ours and ours.endswith("--isa avx2")
    assert peer.startswith(f"taskset -c 0 {bench.folder}/llama-server -m {scratch}/models/tiny-BF16.gguf ")
    assert " -t 1 -tb 1 " in peer and peer.endswith("-rtr --mlock")


def test_a_mixture_is_made_up_by_pinion_itself_and_in_its_final_types_for_the_peer(bench):
    models = bench.folder / "scratch/models"
    models.mkdir(parents=True)
    (models / "gpt-oss-20b-MXFP4.gguf").touch()
    for name in ("pinion", "llama-server"):
        bench.report(name, [run_of(10)])
    done = bench("--peers", "ik_llama.cpp", "--ik", bench.folder, "--pairs", "1", "--preset", "gpt-oss-20b",
                 "--weights", "mxfp4")
    assert done.returncode == 0, done.stderr
    ours, peer = (bench.result()[which]["command"] for which in ("ours", "peer"))
    assert " serve preset:gpt-oss-20b:mxfp4 " in ours and " --kv-cache-space 2 " in ours
    assert f"/llama-server -m {models}/gpt-oss-20b-MXFP4.gguf " in peer
    assert [path.name for path in models.iterdir()] == ["gpt-oss-20b-MXFP4.gguf"]


@pytest.mark.parametrize("words, sentence", [
    (["--peers", "peer,tgi"], "no peer is named 'tgi'; there are llama.cpp, ik_llama.cpp, ik_llama.cpp-rtr, vllm, peer"),
    (["--rows", "decode7"], "no row is named 'decode7'; there are prefill512"),
    (["--pairs", "0"], "--pairs 0 is not a number of pairs; give 1 or more (an interval needs 6)"),
    (["--cpus", "0-x"], "--cpus 0-x is not a list of CPUs that may be used here"),
    (["--cpus", "4000"], "--cpus 4000 is not a list of CPUs that may be used here"),
    (["--command", "mine=./server"], "--command 'mine=./server' is not NAME=COMMAND with {port} in the command"),
    (["--command", "mine=./nowhere {port}", "--peers", "mine"], "the command of mine is not there: './nowhere {port}'"),
    (["--json", "/nowhere/out.json"], "cannot write /nowhere/out.json: its folder does not exist"),
    (["--peers", "ik_llama.cpp"], "build it and give its folder as --ik FOLDER"),
    (["--peers", "ik_llama.cpp", "--ik", "/usr/share"], "there is no llama-server in /usr/share"),
    (["--peers", "peer"], "Pinion ended with status 1: `taskset -c 0 "),
])
def test_refusals_are_one_sentence(bench, words, sentence):
    done = bench(*words)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("bench-peers: ")
    assert sentence in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr


def test_a_mixture_in_other_types_is_refused(bench):
    done = bench("--peers", "ik_llama.cpp", "--ik", bench.folder, "--preset", "gpt-oss-20b", "--weights", "w8a8")
    assert done.stderr == ("bench-peers: cannot write gpt-oss-20b for llama.cpp: mixtures are made up as Q4_0 and "
                           "MXFP4, not as Q8_0\n")


def test_a_failed_load_names_the_engine(bench):
    bench.report("pinion", [run_of(10)])
    bench.report("peer", [{"pinion": {"requests": [{"error": ""}, {"error": "HTTP 400: too long"}]}}])
    done = bench("--peers", "peer")
    assert done.stderr.splitlines()[-1].endswith(" failed on peer: HTTP 400: too long")


def test_a_failed_build_names_its_log(bench):
    llama = bench.folder / "scratch/llama.cpp/sources/llama_cpp_python-0.3.36/vendor/llama.cpp"
    llama.mkdir(parents=True)
    tools = bench.folder / "tools"
    tools.mkdir()
    (tools / "python3").symlink_to("/usr/bin/python3")
    done = bench("--peers", "llama.cpp", path=str(tools))
    assert done.stderr == "bench-peers: cannot build llama.cpp: cmake is not installed\n"
    (tools / "cmake").write_text("#!/bin/sh\necho no compiler; exit 3\n")
    (tools / "cmake").chmod(0o755)
    done = bench("--peers", "llama.cpp", path=f"{tools}:/usr/bin:/bin")
    log = bench.folder / "scratch/llama.cpp-build.log"
    assert done.stderr.startswith(f"bench-peers: cannot build llama.cpp: `cmake -S {llama} ")
    assert done.stderr.endswith(f"exited with status 3; its output is in {log}\n")
    assert log.read_text() == "no compiler\n"


# ---- The copy as a GGUF file ---------------------------------------------------------------------

SMALL = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4,
         "num_key_value_heads": 2, "head_dim": 16, "vocab_size": 512, "max_position_embeddings": 8192,
         "rms_norm_eps": 1e-5, "bos_token_id": 1, "eos_token_id": 2, "torch_dtype": "bfloat16"}
LLAMA3 = {"rope_type": "llama3", "factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 64}
SHAPES = {
    "llama": {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "rope_theta": 10000.0,
              "rope_scaling": LLAMA3, "tie_word_embeddings": True},
    "qwen2": {"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "rope_theta": 1e6,
              "tie_word_embeddings": False},
    "qwen3": {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "rope_theta": 1e6,
              "tie_word_embeddings": True},
}


@pytest.mark.parametrize("shape", SHAPES)
def test_the_gguf_copy_computes_the_checkpoints_results(shape, pinion, pinion_json, tmp_path):
    config, folder, copy = tmp_path / "config.json", tmp_path / "folder", tmp_path / "copy.gguf"
    config.write_text(json.dumps(SMALL | SHAPES[shape]))
    made = pinion("model", "make", "--config", config, folder)
    assert made.returncode == 0, made.stderr
    gguf.write_gguf(folder, copy)
    text = tmp_path / "text.txt"
    text.write_text("The quick brown fox jumps over the lazy dog, and then it does so again. " * 20)
    figures = pinion_json("score", copy, "--compare", folder, "--input", text, "--json", "--dtype", "float32",
                          "--window", "256", "--kv-cache-space", "64MiB")
    # Equal but for a copy's float32 scaling of frequencies (5e-8); rows or frequencies in a wrong order give 0.1.
    assert figures["kl_nats"] < 1e-5
