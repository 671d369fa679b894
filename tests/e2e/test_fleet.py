"""One sweep on several nodes: gathered stores, Kubernetes' Jobs, a real Slurm with two nodes."""

import json
import os
import pathlib
import sqlite3
import subprocess
import time

import jsonschema
import pytest

import slurm
from test_launch_files import KUBERNETES, objects_of  # noqa: F401 -- a fixture

DEFINITION = {"candidates": [{"max_num_seqs": 8}], "rounds": 6,
              "workload": {"prompt_len": 16, "output_len": 4, "num_prompts": 2, "concurrency": [1]}}
SCHEMA = pathlib.Path(__file__).parents[2] / "profiles/results.schema.json"
NODE_FLAGS = ["--launcher", "k8s", "--nodes", 3, "--manifest", "--node-cpus", 8, "--node-memory", "16Gi"]


@pytest.fixture(scope="module")
def definition(tmp_path_factory):
    file = tmp_path_factory.mktemp("fleet") / "definition.json"
    file.write_text(json.dumps(DEFINITION))
    return file


def count(folder, table):
    with sqlite3.connect(f"file:{folder}/results.db?mode=ro", uri=True) as store:
        return store.execute(f"SELECT count(*) FROM {table}").fetchone()[0]


# ---- Gathered stores


@pytest.fixture(scope="module")
def two_sweeps(binary, definition):
    """Folders of two sweeps that ran at the same time, as on two nodes."""
    folders = [definition.parent / name for name in ("a", "b")]
    sweeps = [subprocess.Popen([binary, "sweep", "preset:tiny", "--def", definition, "--out", folder,
                                "--budget", "12s"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
              for folder in folders]
    for sweep in sweeps:
        output = sweep.communicate(timeout=120)[0]
        assert sweep.returncode == 0, output
    return folders


def test_a_gathered_sweep_has_every_trial_and_request_of_both(pinion, two_sweeps):
    done = pinion("report", "--gather", *two_sweeps)
    assert done.returncode == 0, done.stderr
    gathered = two_sweeps[0].parent / "gathered"
    assert done.stdout == f"{gathered}/report.html\n"
    for table in ("trial", "samples", "requests"):
        assert count(gathered, table) == sum(count(folder, table) for folder in two_sweeps) > 0
    results = json.loads(pinion("report", gathered, "--json").stdout)
    jsonschema.validate(results, json.loads(SCHEMA.read_text()))
    alone = [json.loads(pinion("report", folder, "--json").stdout) for folder in two_sweeps]
    assert results["confirmation_rounds"] == sum(one["confirmation_rounds"] for one in alone)
    assert [node["folder"] for node in results["nodes"]] == [str(folder) for folder in two_sweeps]
    assert [node["trials"] for node in results["nodes"]] == [count(folder, "trial") for folder in two_sweeps]
    page = (gathered / "report.html").read_text()
    assert all(str(folder) in page for folder in two_sweeps)
    assert "they hold for these, not for every machine of the kind" in page
    again = pinion("report", "--gather", *two_sweeps, "--out", gathered, "--format", "md")
    assert again.returncode == 0 and "2 nodes, each " in again.stdout


@pytest.mark.parametrize("arguments, says", [
    (["--gather", "{a}"], "takes the folders of two sweeps at least, not 1"),
    (["--gather", "{a}", "{a}/."], "names {a}/. twice"),
    (["--gather", "{a}", "{b}", "--out", "{a}"], "holds a sweep of its own"),
    (["{a}", "--gather", "{b}", "{a}"], "DIR or --gather, not both"),
    ([], "the folder of a sweep, or --gather"),
])
def test_sweeps_that_cannot_be_gathered_are_refused(pinion, two_sweeps, arguments, says):
    names = {"a": two_sweeps[0], "b": two_sweeps[1]}
    done = pinion("report", *[word.format(**names) for word in arguments])
    assert done.returncode == 2
    assert says.format(**names) in done.stderr and done.stderr.count("\n") == 1


# ---- Kubernetes


def test_jobs_fit_the_published_schemas(pinion, objects_of, definition):  # noqa: F811
    done = pinion("sweep", "/models/tiny", "--def", definition, "--budget", "5m", "--out", "out/mine", *NODE_FLAGS,
                  "--image", "registry/pinion:1")
    assert done.returncode == 0, done.stderr
    mapped, *jobs = objects_of(done.stdout)
    assert mapped["kind"] == "ConfigMap" and json.loads(mapped["data"]["definition.json"]) == DEFINITION
    assert [job["metadata"]["name"] for job in jobs] == [f"pinion-sweep-mine-{i}" for i in range(3)]
    assert mapped["metadata"]["name"] == "pinion-sweep-mine", "another --out has other names"
    for number, job in enumerate(jobs):
        pod = job["spec"]["template"]["spec"]
        container, = pod["containers"]
        assert container["args"] == ["sweep", "/models/tiny", "--budget", "5m", "--out", f"/sweeps/mine/node-{number}",
                                     "--continue", "--def", "/etc/pinion/definition.json"]
        assert container["resources"]["requests"] == container["resources"]["limits"] == {"cpu": "8", "memory": "16Gi"}
        assert container["env"] == [
            {"name": "NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}]
        volumes = {volume["name"]: volume for volume in pod["volumes"]}
        assert volumes["definition"]["configMap"]["name"] == mapped["metadata"]["name"]
        assert volumes["shm"]["emptyDir"]["medium"] == "Memory"
        mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
        assert mounts == {"sweeps": "/sweeps", "shm": "/dev/shm", "definition": "/etc/pinion", "models": "/models/tiny"}
        assert set(mounts) == set(volumes)
        assert container["startupProbe"]["exec"]["command"][-1] == f"/sweeps/mine/node-{number}/results.db"


# The Job runs the command that a shell runs, too.
def test_a_pod_that_starts_again_continues(pinion, objects_of, definition, tmp_path):  # noqa: F811
    job = objects_of(pinion("sweep", "preset:tiny", "--out", "x", "--budget", "8s", *NODE_FLAGS).stdout)[0]
    words = job["spec"]["template"]["spec"]["containers"][0]["args"]
    words[words.index("--out") + 1] = tmp_path / "node"
    words += ["--def", definition]
    assert pinion(*words).returncode == 0
    before = count(tmp_path / "node", "trial")
    again = pinion(*words)
    assert again.returncode == 0, again.stderr
    assert count(tmp_path / "node", "trial") == before
    # On another machine of the kind, it is another block.
    moved = pinion(*words, env={**os.environ, "NODE_NAME": "elsewhere"})
    assert moved.returncode == 0, moved.stderr
    assert "is left as it is: it was measured on " in moved.stderr and "and this is elsewhere" in moved.stderr
    assert count(tmp_path / "node", "trial") == before and count(tmp_path / "node-2", "trial") > 0
    # A sweep that could not be joined with it is refused.
    for change, says in ((["--prompt-len", 24], "another definition (workload)"), ([], "another number of CPUs: 2")):
        one_cpu = {} if change else {"preexec_fn": lambda: os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})}
        refused = pinion(*words, *change, **one_cpu)
        assert refused.returncode == 2 and says in refused.stderr, refused.stderr
        assert "choose another --out" in refused.stderr
    assert not (tmp_path / "node-3").exists()


@pytest.mark.parametrize("flags, says", [
    (["--launcher", "k8s", "--nodes", 2], "add --manifest"),
    ([*NODE_FLAGS[:5]], "--node-cpus"),
    ([*NODE_FLAGS[:7]], "--node-memory, such as 64Gi"),
    ([*NODE_FLAGS[:7], "--node-memory", "16"], "not '16'"),
    (["--nodes", 2], "--launcher"),
    (["--launcher", "slurm"], "--nodes"),
    (["--launcher", "slurm", "--nodes", 0], "--nodes"),
    (["--launcher", "ssh", "--nodes", 2], "--launcher"),
    (["--launcher", "slurm", "--nodes", 2, "--manifest"], "are for --launcher k8s"),
    (["--launcher", "slurm", "--nodes", 2, "--node-cpus", 4], "are for --launcher k8s"),
    (["--launcher", "slurm", "--nodes", 2, "--image", "pinion"], "are for --launcher k8s"),
    ([*NODE_FLAGS, "--resume"], "leave out --resume"),
])
def test_flags_that_say_too_little_are_refused(pinion, flags, says):
    done = pinion("sweep", "preset:tiny", *flags)
    assert done.returncode == 2
    assert says in done.stderr and done.stderr.count("\n") == 1


def test_without_slurm_the_error_names_the_way_out(pinion):
    done = pinion("sweep", "preset:tiny", "--launcher", "slurm", "--nodes", 2, env={"PATH": "/nowhere"})
    assert done.returncode == 2
    assert "salloc is not installed" in done.stderr and "--gather" in done.stderr


# ---- Slurm


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    slurm.needs_slurm()
    cluster = slurm.Cluster(tmp_path_factory.mktemp("slurm"), 2)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()


def finished_trials(out):
    files = [out / f"n{i}" / "results.db" for i in range(2)]
    return [count(file.parent, "trial") if file.exists() and file.stat().st_size else 0 for file in files]


def wait_for_trials(cluster, out, least):
    def enough():
        try:
            return min(finished_trials(out)) >= least
        except sqlite3.OperationalError:  # the tables are being made
            return False
    cluster.wait_for(enough, f"{least} trials on each node", 180)


# The sweep is cancelled, then continued; then one of its nodes fails.
def test_a_sweep_on_slurm_survives_scancel_and_a_failing_node(cluster, binary, definition, tmp_path):
    out = tmp_path / "out"
    command = [binary, "sweep", "preset:tiny", "--def", definition, "--budget", "60s", "--out", out,
               "--launcher", "slurm", "--nodes", 2]
    first = subprocess.Popen([str(word) for word in command], env=cluster.environment, stdout=subprocess.PIPE,
                             stderr=subprocess.STDOUT, text=True)
    wait_for_trials(cluster, out, 4)
    cluster.run("scancel", "--name=pinion-sweep")
    first.communicate(timeout=60)
    assert first.returncode != 0
    cluster.wait_for(lambda: cluster.states().count("idle") == 2, "idle nodes")
    kept = finished_trials(out)

    second = subprocess.Popen([str(word) for word in command], env=cluster.environment, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True)
    wait_for_trials(cluster, out, max(kept) + 1)
    step = cluster.run("squeue", "--steps", "--noheader", "--format=%i %j").stdout.split("\n")
    failing = next(line.split()[0] for line in step if "pinion-sweep-n1" in line)
    cluster.run("scancel", failing)
    output = second.communicate(timeout=240)[0]
    assert second.returncode == 1, output
    assert "n0 has ended" in output and "node n1 did not end the sweep" in output
    assert count(out, "trial") == sum(finished_trials(out)), "what it measured is kept, and reported"

    third = cluster.run(*command, timeout=240)
    assert third.returncode == 0, third.stderr
    assert count(out, "trial") == sum(finished_trials(out))
    results = json.loads((out / "results.json").read_text())
    assert len(results["nodes"]) == 2 and results["finished"]


# Its trials are kept, the other node goes on, and the same command continues both.
def test_a_sweep_on_slurm_outlives_a_node_that_is_down(cluster, binary, definition, tmp_path):
    out = tmp_path / "out"
    command = [str(word) for word in (binary, "sweep", "preset:tiny", "--def", definition, "--budget", "60s", "--out", out,
                                      "--launcher", "slurm", "--nodes", 2)]
    first = subprocess.Popen(command, env=cluster.environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    wait_for_trials(cluster, out, 4)
    down = cluster.run("scontrol", "update", "NodeName=n1", "State=DOWN", "Reason=test")
    assert down.returncode == 0, down.stderr
    output = first.communicate(timeout=240)[0]
    assert first.returncode != 0, output
    assert "n0 has ended" in output and "node n1 did not end the sweep" in output
    cluster.run("scontrol", "update", "NodeName=n1", "State=RESUME")  # refused if it came back by itself
    cluster.wait_for(lambda: cluster.states().count("idle") == 2, "idle nodes")
    kept = finished_trials(out)
    assert count(out, "trial") == sum(kept) and kept[1] >= 4

    # A store that was killed before it was planned costs nothing but a sentence.
    (out / "n9").mkdir()
    (out / "n9" / "results.db").write_bytes(b"")
    again = cluster.run(*command, timeout=240)
    assert again.returncode == 0, again.stderr
    assert finished_trials(out)[0] == kept[0], "the node that had finished measures nothing twice"
    assert finished_trials(out)[1] > kept[1]
    results = json.loads((out / "results.json").read_text())
    assert sorted(pathlib.Path(node["folder"]).name for node in results["nodes"]) == ["n0", "n1"]
