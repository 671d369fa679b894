"""Sweeps replayed on recorded numbers, without an engine."""

import json
import random
import subprocess


def test_a_replay_of_planted_effects_holds_its_contract(binary, tmp_path):
    noise = tmp_path / "noise.csv"
    random_speeds = random.Random(5)
    noise.write_text("t_s,speed\n" + "".join(f"{i},{random_speeds.gauss(100, 1)}\n" for i in range(500)))
    planted = tmp_path / "effects.json"
    planted.write_text(json.dumps({"configurations": {"default": 1, "fast": 1.1, "slow": 0.8}}))
    command = [str(binary), "sweep", "--replay", str(noise), "--planted", str(planted)]
    done = subprocess.run([*command, "--metric", "speed", "--seeds", "50", "--json"],
                          capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert {"seeds", "winners", "interval_coverage", "regret_p95", "cost_fraction_p50",
            "budget_overrun_p95", "floor_p50"} <= set(report)
    assert report["seeds"] == 50 and report["winners"] == {"fast": 50, "slow": 0, "none": 0}
    assert report["regret_p95"] == 0 and report["interval_coverage"] >= 0.9
    refused = subprocess.run([*command, "--metric", "pace"], capture_output=True, text=True, timeout=60)
    assert refused.returncode == 2
    assert "no column 'pace'; it has t_s, speed" in refused.stderr


def test_a_replay_takes_no_flag_of_an_engine_a_load_or_a_prediction(pinion, tmp_path):
    noise = tmp_path / "noise.csv"
    noise.write_text("t_s,speed\n0,1\n")
    for flags in (["--isa", "avx2"], ["--max-num-seqs", "4"], ["--model", "preset:tiny"], ["--batch"],
                  ["--prompt-len", "64"], ["--node-bandwidth", "300GB/s"], ["--max-cores", "2"],
                  ["--launcher", "slurm", "--nodes", "2"]):
        done = pinion("sweep", "--replay", noise, *flags)
        assert done.returncode == 2, flags
        assert "--replay" in done.stderr and flags[0] in done.stderr and done.stderr.count("\n") <= 2, done.stderr
    done = pinion("sweep", "preset:tiny", "--replay", noise)
    assert done.returncode == 2 and "MODEL excludes --replay" in done.stderr, done.stderr
    assert "--seed" not in pinion("sweep", "--replay", noise, "--seed", "5").stderr, "the replays' own"
