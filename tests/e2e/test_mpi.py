"""Processes that mpirun starts together compute one model, with the results of one process."""

import functools
import json
import os
import pathlib
import re
import signal
import subprocess
import time

import pytest
from conftest import wait_until
from own_server import Server
from process_tree import children_of, descendants_of, engine_of

# mpirun asks root twice, and wants a core for every process.
ENVIRONMENT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
               "PINION_LOG": "warning"}
MPIRUN = ["mpirun", "--oversubscribe", "--bind-to", "none", "-n"]
# One kernel, so that two runs round alike; each process computes on as few threads as possible.
EXACT = ["--isa", "scalar", "--dtype", "float32", "--threads-bind", "nobind", "--kv-cache-space",
         "64MiB"]
IDS = [{"input_ids": [(7 * i + start) % 90 + 3 for i in range(length)]}
       for start, length in [(0, 40), (5, 3), (11, 90), (2, 17)]]


def environment():
    return {**os.environ, **ENVIRONMENT, "OMP_NUM_THREADS": "1"}


@pytest.fixture
def mpirun(binary):
    """mpirun(2, "run", ...) -> CompletedProcess of so many processes of the binary."""

    def run(processes, *arguments, timeout=120):
        return subprocess.run([*MPIRUN, str(processes), str(binary), *map(str, arguments)],
                              capture_output=True, text=True, stdin=subprocess.DEVNULL,
                              timeout=timeout, env=environment())

    return run


@pytest.fixture
def prompts(tmp_path):
    path = tmp_path / "prompts.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in IDS))
    return path


def sentence(done):
    """The line on standard error that is Pinion's, among mpirun's own."""
    lines = [line for line in done.stderr.splitlines() if line.startswith("pinion: ")]
    assert len(lines) == 1, done.stderr
    return lines[0]


# One of the host's cores for each, and not all of them for both.
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one CPU is all that there is")
@pytest.mark.parametrize("bind", [[], ["--bind-to", "none"]])
def test_processes_of_a_host_divide_its_cpus(binary, bind):
    done = subprocess.run(["mpirun", *bind, "-n", "2", str(binary), "bench", "preset:tiny", "-tp", "2",
                           "--prompt-len", "16", "--output-len", "2", "--rounds", "1", "--json"],
                          capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=120,
                          env={**os.environ, **ENVIRONMENT, "PINION_LOG": "info"})
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["threads"] == len(os.sched_getaffinity(0)) // 2


# An architecture with each kind of mixer, of cache and of MLP.
@pytest.mark.parametrize("model", ["llama", "gemma3", "gptoss", "deepseekv3", "olmo2", "qwen3.5-moe",
                                   "lfm2", "gemma4-moe", "gemma4-e", "gemma3n"])
def test_two_processes_score_as_two_ranks(mpirun, pinion, data, prompts, tmp_path, model):
    command = ["score", data / "models" / model, "--input", prompts, "-tp", 2, *EXACT]
    one = pinion(*command, "--logits", tmp_path / "one.safetensors", env=environment())
    assert one.returncode == 0, one.stderr
    two = mpirun(2, *command, "--logits", tmp_path / "two.safetensors")
    assert two.returncode == 0, two.stderr
    assert two.stdout == one.stdout
    assert (tmp_path / "two.safetensors").read_bytes() == (tmp_path / "one.safetensors").read_bytes()


# Whole stages in a process, parts of one, or several: no sum changes, so that nothing does. Prompts of 600
# tokens are cut into parts that the stages compute at the same time.
@pytest.mark.parametrize("processes, split", [
    (1, ["-pp", 2]), (2, ["-pp", 2]), (2, ["-pp", 4]), (3, ["-pp", 3]), (2, ["-pp", 2, "-tp", 2]),
    (4, ["-pp", 2, "-tp", 2])])
@pytest.mark.parametrize("model", ["gemma3", "lfm2"])
def test_a_pipeline_scores_as_one_rank(one_stage, mpirun, pinion, tmp_path, model, processes, split):
    check_stages(one_stage, mpirun, pinion, tmp_path, model, processes, split)


# States that prompts advance in chunks: sequences are cut only where a chunk ends.
@pytest.mark.parametrize("processes, split", [(1, ["-pp", 2]), (2, ["-pp", 2]), (4, ["-pp", 2, "-tp", 2])])
@pytest.mark.parametrize("model", ["granite4-dense", "qwen3.5-text"])
def test_a_pipeline_with_chunks_of_states_scores_as_one_rank(one_stage, mpirun, pinion, tmp_path, model, processes, split):
    check_stages(one_stage, mpirun, pinion, tmp_path, model, processes, split)


@pytest.fixture(scope="module")
def one_stage(pinion, data, tmp_path_factory):
    """one_stage(model, flags...) -> a command that scores, and what it prints and which logits it finds in one stage:
    one process for each model and set of flags."""
    folder = tmp_path_factory.mktemp("one-stage")
    prompts, logits = folder / "prompts.jsonl", folder / "logits.safetensors"
    ids = [*IDS, {"input_ids": [(11 * i) % 90 + 3 for i in range(400)]}]
    prompts.write_text("".join(json.dumps(line) + "\n" for line in ids))

    @functools.cache
    def score(model, *flags):
        command = ["score", data / "models" / model, "--input", prompts, *EXACT]
        done = pinion(*command, *flags, "--logits", logits, env=environment())
        assert done.returncode == 0, done.stderr
        return command, done.stdout, logits.read_bytes()

    return score


def check_stages(one_stage, mpirun, pinion, tmp_path, model, processes, split):
    """Several stages print the scores of one, and find its logits."""
    tensor = split[split.index("-tp"):] if "-tp" in split else []
    command, scores, logits = one_stage(model, *tensor)
    run = pinion if processes == 1 else lambda *arguments, env: mpirun(processes, *arguments)
    cut = run(*command, *split, "--logits", tmp_path / "cut.safetensors", env=environment())
    assert cut.returncode == 0, cut.stderr
    assert cut.stdout == scores
    assert (tmp_path / "cut.safetensors").read_bytes() == logits


def test_stages_that_do_not_fit_are_refused(mpirun, pinion, data, prompts):
    command = ["run", data / "models/llama", "--input", prompts]
    done = pinion(*command, "-pp", 9, "--threads-bind", "nobind")
    assert done.returncode == 2
    assert sentence(done).startswith("pinion: -pp 9 asks for more stages than the model's ")
    done = mpirun(2, *command, "-pp", 3)
    assert done.returncode == 2
    assert sentence(done) == (
        "pinion: -tp 1 -pp 3 cannot be divided by the 2 processes that were started together; use -tp 1 -pp 4 or "
        "-tp 2 -pp 1, or start one process alone")
    assert pinion(*command, "-pp", 0).returncode == 2


def test_several_ranks_in_each_of_several_processes(mpirun, pinion, data, prompts):
    command = ["run", data / "models/mixtral", "--input", prompts, "--max-tokens", 20, "--ignore-eos",
               *EXACT]
    one = pinion(*command, "-tp", 4, env=environment())
    assert one.returncode == 0, one.stderr
    two = mpirun(2, *command, "-tp", 4)
    assert two.returncode == 0, two.stderr
    assert two.stdout == one.stdout  # once: the leader alone writes
    assert len(two.stdout.splitlines()) == len(IDS)


# The reference runs in the same processes before the model itself.
def test_followers_load_one_model_after_the_other(mpirun, data, prompts):
    done = mpirun(3, "score", data / "models/llama", "--input", prompts, "--compare",
                  data / "models/llama", "--json", "-tp", 3, *EXACT)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["kl_max_nats"] == 0


def test_ranks_must_divide_evenly(mpirun, data, prompts):
    done = mpirun(2, "run", data / "models/llama", "--input", prompts, "-tp", 3)
    assert done.returncode == 2
    assert sentence(done) == (
        "pinion: -tp 3 cannot be divided by the 2 processes that were started together; use -tp 2 or "
        "a multiple of it, or start one process alone")


def test_an_error_of_a_follower_is_told_by_the_leader(binary, data, tmp_path, prompts):
    for place, source in (("a", "llama"), ("b", "llama2")):
        (tmp_path / place).mkdir()
        (tmp_path / place / "model").symlink_to(data / "models" / source)
    (tmp_path / "c").mkdir()
    command = [str(binary), "run", "model", "--input", str(prompts), "-tp", "2"]

    def run(other):
        return subprocess.run(
            [*MPIRUN, "1", "-wdir", str(tmp_path / "a"), *command,
             ":", "-n", "1", "-wdir", str(tmp_path / other), *command],
            capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=60, env=environment())

    different, missing = run("b"), run("c")
    assert different.returncode == 2
    assert "the processes differ: model is LlamaForCausalLM with weights " in sentence(different)
    assert missing.returncode != 0
    assert sentence(missing).startswith("pinion: process 1: ")
    assert "model" in sentence(missing)


# cgroup v1's controller of CPU time, and v2's.
QUOTAS = [("/sys/fs/cgroup/cpu", "cpu.cfs_quota_us", "50000"), ("/sys/fs/cgroup", "cpu.max", "50000 100000")]


@pytest.fixture
def half_a_cpu():
    """The file that takes a process into a control group with half a CPU's time."""
    for root, file, quota in QUOTAS:
        group = pathlib.Path(root) / f"pinion-test-{os.getpid()}"
        try:
            group.mkdir()
        except OSError:
            continue
        try:
            (group / file).write_text(quota)
        except OSError:
            group.rmdir()
            continue
        yield group / "cgroup.procs"
        assert wait_until(lambda group=group: not (group / "cgroup.procs").read_text())
        group.rmdir()
        return
    pytest.skip("no control group with a quota can be made here")


def limited_to(procs, command):
    """The command in that control group."""
    return ["sh", "-c", f'echo $$ > {procs} && exec "$@"', "sh", *command]


def run_two(first, second):
    return subprocess.run([*MPIRUN, "1", *first, ":", "-n", "1", *second], capture_output=True, text=True,
                          stdin=subprocess.DEVNULL, timeout=120, env=environment())


def test_processes_of_unequal_cpu_quotas_are_refused(binary, data, prompts, half_a_cpu):
    command = [str(binary), "run", str(data / "models/llama"), "--input", str(prompts), "--max-tokens", "2", "-tp", "2",
               *EXACT]
    limited = limited_to(half_a_cpu, command)

    unequal = run_two(command, limited)
    assert unequal.returncode == 2
    assert re.search(r"the processes differ: the CPU time of a process is \d+ CPUs? in process 0 and 0\.25 CPUs in "
                     r"process 1; ", sentence(unequal)), "both are on this host, which they share"
    equal = run_two(limited, limited)
    assert equal.returncode == 0, equal.stderr


# One CPU beside a quarter of one (the group's half is divided by the host's two processes): the first has four fifths.
def test_processes_of_unequal_cpu_quotas_share_by_them_if_accepted(binary, pinion, data, prompts, half_a_cpu):
    arguments = ["run", str(data / "models/llama"), "--input", str(prompts), "--max-tokens", "5", "--ignore-eos", *EXACT]
    alone = pinion(*arguments, env=environment())
    command = ["env", "PINION_LOG=info", str(binary), *arguments, "-tp", "2", "--unequal-hosts", "accept"]
    shared = run_two(command, limited_to(half_a_cpu, command))
    assert shared.returncode == 0, shared.stderr
    assert "0.25 CPUs in process 1; every process computes a part of its layers in proportion to it" in shared.stderr
    assert "parts of a layer, by rank: 80 %, 20 %" in shared.stderr
    assert shared.stdout == alone.stdout


def test_commands_without_a_model_end_as_ever(mpirun):
    done = mpirun(2, "topo", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)  # one document, not two


@pytest.mark.parametrize("victim", [0, 1])
def test_a_killed_process_ends_the_others(binary, data, tmp_path, victim):
    output = tmp_path / "out.jsonl"
    prompt = tmp_path / "prompt.jsonl"
    prompt.write_text("".join(json.dumps({"input_ids": [5, 6, i % 90]}) + "\n" for i in range(20000)))
    launcher = subprocess.Popen(
        [*MPIRUN, "2", str(binary), "run", str(data / "models/llama"), "--input", str(prompt), "-tp",
         "2", "--max-tokens", "200", "--ignore-eos", "--output", str(output)],
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        env={**environment(), "PINION_LOG": "info"}, start_new_session=True)
    try:
        for line in launcher.stderr:
            if "ready after" in line:
                break
        ranks = {rank_of(child): child for child in children_of(launcher.pid)}
        os.kill(ranks[victim], signal.SIGKILL)
        killed = time.monotonic()
        launcher.stderr.read()
        assert launcher.wait(timeout=20) != 0
        assert time.monotonic() - killed < 10
        assert not any(pathlib.Path(f"/proc/{pid}/exe").exists() for pid in ranks.values())
    finally:
        if launcher.poll() is None:
            os.killpg(launcher.pid, signal.SIGKILL)


def rank_of(pid):
    for entry in pathlib.Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
        if entry.startswith(b"OMPI_COMM_WORLD_RANK="):
            return int(entry.split(b"=")[1])
    return None


@pytest.fixture
def two_processes(binary, tmp_path):
    """A program that starts `pinion` in two processes."""
    program = tmp_path / "two-pinions"
    program.write_text(f'#!/bin/sh\nexec {" ".join(MPIRUN)} 2 {binary} "$@"\n')
    program.chmod(0o755)
    return program


def test_a_server_of_two_processes_answers_as_one(two_processes, binary, data, tmp_path):
    model, answers = data / "models/tiny-trained", []
    for program, name in ((two_processes, "two"), (binary, "one")):
        server = Server(program, tmp_path / f"{name}.log", model, "-tp", 2, *EXACT, env=environment())
        try:
            info = json.loads(server.get("/server_info"))
            assert info["processes"] == (2 if program == two_processes else 1)
            assert ("link" in info) == (program == two_processes)
            answers.append([server.post("/v1/completions", {
                "model": str(model), "prompt": prompt, "max_tokens": 24, "temperature": 0,
                "logprobs": 3})["choices"] for prompt in ("Once upon", "The cat sat on the", "A")])
            if program == two_processes:
                assert wait_until(lambda: link_of(server)["decode_step"])  # /server_info may be some seconds old
                step = link_of(server)["decode_step"]
                assert step["steps"] == 3 * 23 and 0 < step["predicted_s"]
        finally:
            status = server.stop()
        assert status == (1 if program == two_processes else 0), "mpirun's own code for a signal, whatever its processes return"
    assert answers[0] == answers[1]


def link_of(server):
    return json.loads(server.get("/server_info"))["link"]


# The engine cannot join the other processes a second time, so it is not started again.
def test_a_server_whose_engine_dies_ends_with_all_its_processes(two_processes, data, tmp_path):
    server = Server(two_processes, tmp_path / "log", data / "models/llama", "-tp", 2, *EXACT,
                    env=environment())
    try:
        everyone = descendants_of(server.process.pid)
        os.kill(engine_of(server), signal.SIGKILL)
        killed = time.monotonic()
        assert server.process.wait(20) != 0
        assert time.monotonic() - killed < 10
        assert "ended more than 0 times" in server.log.read_text()  # none was started in its place
        assert not [pid for pid in everyone if pathlib.Path(f"/proc/{pid}/exe").exists()]
    finally:
        server.stop()


@pytest.mark.parametrize("flag", [["--data-parallel-size", "2"], ["--enable-sleep-mode"]])
def test_a_server_of_several_processes_refuses_replicas_and_sleep(mpirun, data, flag):
    done = mpirun(2, "serve", data / "models/llama", "-tp", 4, "--port", 0, *flag)
    assert done.returncode == 2
    assert sentence(done).startswith(f"pinion: {flag[0]} needs engines of one process each, and 2 were ")


def test_bench_shows_the_exchange_beside_the_links_cost(mpirun):
    done = mpirun(2, "bench", "preset:tiny", "-tp", 2, "--prompt-len", 8, "--output-len", 5,
                  "--rounds", 2, "--json", *EXACT)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)["exchange"]
    # preset:tiny has 2 layers. In a step: the order, two terms of each layer, the logits.
    steps = 5
    assert found["calls"] == steps * (1 + 1 + 2 * 2 + 1), found
    assert found["delays"] == steps * (1 + 2 * 2 + 1), "the order's two parts are under way together"
    assert found["bytes"] > steps * 2 * 2 * 4 * 64  # terms of one row at least
    assert found["seconds"] > 0 and found["link"]["call_s"] > 0 and found["link_seconds"] > 0
    for kind, steps in (("prefill_step", 2), ("decode_step", 2 * 4)):
        step = found[kind]
        assert (step["steps"], step["calls"], step["delays"]) == (steps, 1 + 1 + 2 * 2 + 1, 1 + 2 * 2 + 1), step
        link = found["link"]
        expected = step["compute_s"] + step["delays"] * link["call_s"]
        expected += step["bytes"] / link["bytes_per_s"] if link["bytes_per_s"] else 0
        assert step["predicted_s"] == pytest.approx(expected, rel=1e-6)
        assert 0 < step["compute_s"] < step["measured_s"] and step["link_s"] > 0
    assert found["prefill_step"]["bytes"] > found["decode_step"]["bytes"]
    assert found["bytes"] == found["prefill_step"]["bytes"] + 4 * found["decode_step"]["bytes"]


def test_bench_prints_the_predicted_step_beside_the_measured_one(mpirun):
    def lines(*flags):
        done = mpirun(2, "bench", "preset:tiny", "--prompt-len", 8, "--output-len", 3, "--rounds", 1, *EXACT, *flags)
        assert done.returncode == 0, done.stderr
        return re.findall(r"a (prefill|decode) step is predicted to take [\d.]+ ms \([\d.]+ ms of computing, as "
                          r"measured, and [\d.]+ ms for 7 calls, 6 of them one after the other, and [^()]+\) and took "
                          r"[\d.]+ ms", done.stdout)

    assert lines("-tp", 2) == ["prefill", "decode"]
    assert lines("-pp", 2) == [], "stages wait for each other's work"


# Sixteen rows of two terms in each of two layers, and of one each in three steps that decode; logits stay.
def test_bench_shows_that_rounded_terms_take_half_of_the_bytes(mpirun):
    def exchanged(*flags):
        done = mpirun(2, "bench", "preset:tiny", "-tp", 2, "--prompt-len", 16, "--output-len", 4, "--rounds", 1,
                      "--json", *EXACT, *flags)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)["exchange"]

    whole, half = exchanged(), exchanged("--wire-dtype", "bfloat16")
    assert half["calls"] == whole["calls"]
    hidden = 64 + 16  # rows are sent with the padding that keeps them apart in caches
    assert whole["bytes"] - half["bytes"] == (16 + 3) * 2 * 2 * hidden * 2


def test_bench_of_one_process_exchanges_nothing(pinion):
    done = pinion("bench", "preset:tiny", "--prompt-len", 8, "--output-len", 4, "--rounds", 1, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["exchange"] is None
