"""Configurations that a sweep would try, on this machine and on imagined ones."""

import json
import subprocess

import pytest


def plan_of(binary, *flags, folder=None):
    done = subprocess.run([str(binary), "sweep", "preset:llama-3.2-1b", *flags, "--json"], cwd=folder,
                          capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_plan_for_another_machine_scales_the_probed_rates(binary, tmp_path):
    probe = tmp_path / "probe.json"
    done = subprocess.run([str(binary), "probe", "--seconds", "1", "--out", str(probe)],
                          capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    plans = [plan_of(binary, "--machine", f"pack:2 numa:1(memory=32GB) core:{cores} pu:2", "--probe", str(probe))
             for cores in (8, 16)]
    for plan in plans:
        rates = [one["prediction"]["output_tokens_per_s"] for one in plan["candidates"] if "prediction" in one]
        assert len(rates) > 2 and rates == sorted(rates, reverse=True) and rates[-1] > 0
    small, large = ({one["name"]: one["prediction"]["tpot_s"] for one in plan["candidates"] if "prediction" in one}
                    for plan in plans)
    assert small["default"] > 1.8 * large["default"], "twice the cores on each node"


def test_a_plan_by_stated_limits_needs_no_probe_and_leaves_no_folder(binary, tmp_path):
    machine = ("--machine", "pack:2 numa:3 core:19 pu:2")
    unknown = plan_of(binary, *machine)
    assert unknown["ceilings"] is None and not any("prediction" in one for one in unknown["candidates"])
    for key in ("threads_bind", "reserved_cpus", "smt", "kv_cache_space", "tensor_parallel", "replicas", "isa",
                "max_num_batched_tokens", "dtype", "kv_cache_dtype"):
        assert len(unknown["axes"][key]) > 1, key
    assert {"auto", "all", "nobind"} < set(unknown["axes"]["threads_bind"])
    longer = plan_of(binary, *machine, "--prompt-len", "2048")
    assert max(longer["axes"]["kv_cache_space"][1:]) > 4 * max(unknown["axes"]["kv_cache_space"][1:])
    # Four documents of 1,500 tokens that 16 contexts share, or one for each of them.
    shared, apart = (max(plan_of(binary, *machine, "--workload", "rag", flag)["axes"]["kv_cache_space"][1:])
                     for flag in ("--enable-prefix-caching", "--no-enable-prefix-caching"))
    assert 2.5 < apart / shared < 4, "a cache of which half is free binds nothing"
    slow, fast = (plan_of(binary, *machine, "--node-bandwidth", rate) for rate in ("100GB/s", "200GB/s"))
    tpot = [plan["candidates"][0]["prediction"]["tpot_s"] for plan in (slow, fast)]
    assert 1.5 < tpot[0] / tpot[1] <= 2.01
    channels = plan_of(binary, *machine, "--memory-channels", "12x6400", "--core-peak", "1TFLOP/s")
    assert abs(channels["ceilings"]["read_bytes_per_s"] / (2 * 12 * 6400e6 * 8) - 1) < 1e-9
    here = plan_of(binary, "--plan", folder=tmp_path)
    assert here["candidates"][0]["name"] == "default" and here["candidates"][0]["settings"] == {}
    assert all(len(values) > 0 for values in here["axes"].values())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("flags, named", [
    (["--node-bandwidth", "100GB/s"], "need --plan or --machine"),
    (["--plan", "--node-bandwidth", "fast"], "300GB/s"),
    (["--plan", "--memory-channels", "12"], "12x6400"),
    (["--plan", "--core-peak", "1T"], "--node-bandwidth"),
    (["--plan", "--resume"], "--plan"),
])
def test_a_plan_that_cannot_be_made_is_one_clear_sentence(binary, flags, named):
    done = subprocess.run([str(binary), "sweep", "preset:tiny", *flags], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and named in done.stderr and done.stdout == ""
