"""scripts/bench-peers: turns, ratios, intervals and refusals, with engines that report scripted figures; and
the copy of a checkpoint as a GGUF file."""

import array
import base64
import json
import math
import os
import pathlib
import random
import re
import shutil
import subprocess
import sys

import pytest

from conftest import TOP

sys.path.insert(0, str(TOP / "scripts"))
from peers import engines, gguf, gguf_bert, loads, pairs, runs  # noqa: E402
from peers.usage import Usage  # noqa: E402

STAND_IN = pathlib.Path(__file__).with_name("stand_in_engine.py")


def run_of(tpot_ms, ttft_ms=512, output=100):
    """A JSON of `pinion load`: 4 prompts of 512 tokens."""
    return {"completed": 4, "total_input_tokens": 2048, "median_tpot_ms": tpot_ms, "median_ttft_ms": ttft_ms,
            "output_throughput": output}


class Bench:
    """scripts/bench-peers with the stand-ins `pinion` and `peer` on one CPU."""

    def __init__(self, folder):
        self.folder, self.preset = folder, "tiny"
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
        command = [TOP / "scripts" / script, "--scratch", self.folder / "scratch", "--cpus", "0",
                   "--json", self.folder / "out.json", *(["--preset", self.preset] if self.preset else []), *words]
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


# ---- Embeddings ----------------------------------------------------------------------------------


def embedder_of(*vectors, tokens=256):
    return {"vectors": vectors, "tokens": tokens}


FAR, NEAR = (0.6, 0.8, 0), (0.6, 0.8, 0.01)  # almost the same direction
SOUND, OTHER = embedder_of(FAR, NEAR), embedder_of(NEAR, FAR)


def test_rows_of_embeddings_compare_rates_and_directions(bench):
    slanted = embedder_of((6, 8, 0), (18.01, 24, 0.3))  # lengths of 10 and 30
    bench.report("pinion", [SOUND, OTHER])
    bench.report("peer", [slanted, SOUND])  # those of the first turns are compared
    done = bench("--peers", "peer", "--rows", "embed,embed-texts", "--pairs", "2")
    assert done.returncode == 0, done.stderr
    result = bench.result()
    assert 0.99 < result["mean_cosine"] < 0.99999
    assert f"; mean cosine of their embeddings less the mean of all {result['mean_cosine']:.4f}:" in done.stdout
    tokens, texts = result["rows"]["embed"], result["rows"]["embed-texts"]
    assert all(tokens[which] == pytest.approx([256 * rate for rate in texts[which]]) for which in ("ours", "peer"))
    assert tokens["load"] in done.stdout.splitlines()


@pytest.mark.parametrize("peer, cosine", [
    (OTHER, "-1.000"), (embedder_of(FAR), "0.000"), (embedder_of((0, 0, 0)), "0.000"),
    (embedder_of(FAR, (math.nan, 0, 1)), "nan")])
def test_embeddings_of_different_models_are_no_comparison(bench, peer, cosine):
    bench.report("pinion", [SOUND])
    bench.report("peer", [peer])
    done = bench("--peers", "peer", "--rows", "embed", "--pairs", "2")  # of which only the first one is measured
    assert done.stderr.splitlines()[-1] == ("bench-peers: Pinion and peer tell the same texts apart with a mean cosine "
                                            f"of {cosine}, below 0.99: they compute different models")


def test_engines_round_to_fewer_bits_in_ways_of_their_own(bench):
    bench.report("pinion", [SOUND])
    bench.report("peer", [OTHER])
    done = bench("--peers", "peer", "--rows", "embed", "--pairs", "1", "--weights", "w8a8")
    assert done.returncode == 0, done.stderr
    assert bench.result()["mean_cosine"] == pytest.approx(-1)


@pytest.mark.parametrize("figures, sentence", [
    (embedder_of(FAR, tokens=255), "Pinion reads 8160 tokens in 32 texts of 256"),
    ({}, 'Pinion does not embed: HTTP 400: {"error": "it embeds nothing"}')])
def test_an_embedder_that_fails_or_reads_other_tokens_is_named(bench, figures, sentence):
    bench.report("pinion", [figures])
    done = bench("--peers", "peer", "--rows", "embed")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == f"bench-peers: {sentence}"


def test_embedders_get_the_shape_of_bert_and_room_for_the_whole_batch(bench):
    models = bench.folder / "scratch/models"
    models.mkdir(parents=True)
    (models / "bert-base-BF16.gguf").touch()
    for name in ("pinion", "llama-server"):
        bench.report(name, [SOUND])
    bench.preset = None
    done = bench("--peers", "ik_llama.cpp", "--ik", bench.folder, "--rows", "embed", "--pairs", "1")
    assert done.returncode == 0, done.stderr
    ours, peer = (bench.result()[which]["command"] for which in ("ours", "peer"))
    assert f" serve {models}/bert-base-bfloat16 " in ours and " --max-num-seqs 32 " in ours
    assert f" -m {models}/bert-base-BF16.gguf " in peer and " -np 32 " in peer and " --embedding " in peer


def test_the_first_batch_is_not_measured_and_no_text_is_sent_twice(tmp_path, monkeypatch):
    batches, clock = [], iter([0, 1000, 2000, 2003, 3000, 3005])
    vector = base64.b64encode(array.array("f", [0.5, -2]).tobytes()).decode()

    def posted(server, url, texts):
        batches.append(texts)
        return {"usage": {"prompt_tokens": 14},
                "data": [{"index": 1, "embedding": ""}, {"index": 0, "embedding": vector}]}

    words = [f"Ġ{a} {b}" for a in "klmnopqr" for b in "aeiou"]
    tokenizer = {"model": {"merges": ["i n", "Ġ 7", *words], "vocab": {"Ġfilled": 1}}}
    monkeypatch.setattr(loads, "checkpoint", lambda job, scheme: tmp_path)
    monkeypatch.setattr(loads, "posted", posted)
    (tmp_path / "tokenizer.json").write_text(json.dumps(tokenizer))
    job = engines.Job(tmp_path, tmp_path, "bert-base", "bfloat16", "0", 1, 2, (), (), None)
    run = loads.Embedding(texts=2, tokens=7, batches=2).run(job, None, "", 1, clock=lambda: next(clock))
    assert run["texts_per_s"] == 0.5 and run["tokens_per_s"] == 3.5  # 4 texts in 8 s
    assert [list(values) for values in run["vectors"]] == [[0.5, -2], []]
    texts = sum(batches, [])
    assert len(set(texts)) == 6 and all(re.fullmatch("a( [k-r][aeiou]){6}", text) for text in texts)


BERT = {"architectures": ["BertModel"], "model_type": "bert", "hidden_size": 64, "intermediate_size": 128,
        "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 512, "max_position_embeddings": 512,
        "type_vocab_size": 2, "layer_norm_eps": 1e-12, "hidden_act": "gelu", "pad_token_id": 0,
        "torch_dtype": "bfloat16"}


@pytest.fixture
def bert(pinion, tmp_path):
    """A made-up checkpoint."""
    config, folder = tmp_path / "config.json", tmp_path / "bert"
    config.write_text(json.dumps(BERT))
    made = pinion("model", "make", "--config", config, folder)
    assert made.returncode == 0, made.stderr
    return folder


def test_texts_to_embed_have_the_tokens_that_they_should(bert, pinion):
    source, words = random.Random(3), loads.vocabulary_words(bert)
    assert len(words) > 50
    texts = bert.parent / "texts.jsonl"
    texts.write_text("".join(json.dumps({"text": loads.text_of(source, words, 256)}) + "\n" for _ in range(8)))
    done = pinion("tokenize", bert, "--input", texts)
    assert [len(json.loads(line)["ids"]) for line in done.stdout.splitlines()] == [256] * 8, done.stderr


def test_the_gguf_copy_of_an_embedder_has_the_checkpoints_embeddings(bert, pinion, tmp_path):
    copy, texts = tmp_path / "copy.gguf", tmp_path / "texts.jsonl"
    gguf_bert.write_gguf(bert, copy)
    texts.write_text("".join(json.dumps({"text": "The quick brown fox jumps over it. " * count}) + "\n"
                             for count in (1, 3, 20)))
    vectors = []
    for model in (bert, copy):
        done = pinion("embed", model, "--input", texts, "--dtype", "float32", "--kv-cache-space", "64MiB")
        assert done.returncode == 0, done.stderr
        vectors.append([json.loads(line)["embedding"] for line in done.stdout.splitlines()])
    assert vectors[0][0] != vectors[0][1]
    assert vectors[1] == vectors[0]


def test_only_an_embedder_is_copied_as_one(tmp_path):
    (tmp_path / "config.json").write_text('{"architectures": ["LlamaForCausalLM"]}')
    with pytest.raises(gguf.Unsupported, match="it is a LlamaForCausalLM, and embeddings are compared with a BertMod"):
        gguf_bert.write_gguf(tmp_path, tmp_path / "copy.gguf")


SENTENCE_TRANSFORMERS = """
class Vector(list):
    tolist = list.copy


class Tokenizer:
    pad_token = None

    def convert_ids_to_tokens(self, number):
        return f"token{number}"


class Mask(list):
    sum = lambda self: sum(self)


class Transformer:
    modality_config = {"text": {}, "message": {}}


class SentenceTransformer(list):
    def __init__(self, folder, device, model_kwargs):
        super().__init__([Transformer()])
        self.said = [folder, device, model_kwargs["dtype"]]
        self.tokenizer = Tokenizer()

    def preprocess(self, texts):
        around = 6 if "message" in self[0].modality_config else 0
        return {"attention_mask": Mask(around + len(text.split()) for text in texts)}

    def encode(self, texts, batch_size, show_progress_bar):
        print(*self.said, batch_size, self.tokenizer.pad_token, flush=True)
        return [Vector([len(text.split()), -0.5]) for text in texts]
"""
TORCH = """
bfloat16, float32 = "16 bits", "32 bits"


def set_num_threads(count):
    print(count, "threads")
"""


def test_the_server_of_sentence_transformers_answers_with_its_vectors(tmp_path):
    # A stand-in for the library, which takes gigabytes.
    (tmp_path / "sentence_transformers.py").write_text(SENTENCE_TRANSFORMERS)
    (tmp_path / "torch.py").write_text(TORCH)
    server = engines.Server("library", "", "", (
        sys.executable, str(engines.SERVER_OF_SENTENCE_TRANSFORMERS), "a folder", "--dtype", "float32", "--threads",
        "3", "--batch-size", "32", "--port", "{port}"), {"PYTHONPATH": str(tmp_path)})
    with runs.running(server, tmp_path / "log") as url:
        answer = loads.posted(server, url, ["one", "one and two"])
    assert answer["usage"]["prompt_tokens"] == 4
    vectors = [(item["index"], *loads.decoded(item["embedding"])) for item in answer["data"]]
    assert vectors == [(0, 1, -0.5), (1, 3, -0.5)]
    assert (tmp_path / "log").read_text().splitlines() == ["3 threads", "a folder cpu 32 bits 32 token0"]


# ---- Refusals ------------------------------------------------------------------------------------


@pytest.mark.parametrize("words, sentence", [
    (["--peers", "peer,tgi"], "no peer is named 'tgi'; there are llama.cpp, ik_llama.cpp, ik_llama.cpp-rtr, vllm, "
     "sentence-transformers, sentence-transformers-float32, peer"),
    (["--rows", "decode7"], "no row is named 'decode7'; there are prefill512"),
    (["--pairs", "0"], "--pairs 0 is not a number of pairs; give 1 or more (an interval needs 6)"),
    (["--cpus", "0-x"], "--cpus 0-x is not a list of CPUs that may be used here"),
    (["--cpus", "4000"], "--cpus 4000 is not a list of CPUs that may be used here"),
    (["--command", "mine=./server"], "--command 'mine=./server' is not NAME=COMMAND with {port} in the command"),
    (["--command", "mine=./nowhere {port}", "--peers", "mine"], "the command of mine is not there: './nowhere {port}'"),
    (["--json", "/nowhere/out.json"], "cannot write /nowhere/out.json: its folder does not exist"),
    (["--peers", "ik_llama.cpp"], "build it and give its folder as --ik FOLDER"),
    (["--peers", "ik_llama.cpp", "--ik", "/usr/share"], "there is no llama-server in /usr/share"),
    (["--rows", "embed,decode1"], "rows that generate and rows that embed need different models; measure them in two"),
    (["--peers", "vllm", "--rows", "embed"], "vllm cannot embed here; give it rows of prefill512, decode1, decode16"),
    (["--peers", "sentence-transformers"], "sentence-transformers cannot generate here; give it rows of embed, embed-"),
    (["--peers", "sentence-transformers", "--rows", "embed", "--weights", "w8a8"],
     "sentence-transformers computes in bfloat16 and float32, not w8a8"),
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
