"""Hosts whose files of a model are not the same compute nothing together."""

import json
import subprocess

import pytest

from test_mpi import EXACT, MPIRUN, environment, prompts, sentence  # noqa: F401 -- a fixture


# Weights are the same, so that nothing but a wrong answer would show that they are used differently.
@pytest.mark.parametrize("change, told", [
    ({"rms_norm_eps": 1e-05}, "rms_norm_eps of config.json is 1e-06 in process 0 and 1e-05 in process 1"),
    ({"rope_parameters": {"rope_theta": 10000.0}},
     "rope_parameters.rope_theta of config.json is 500000.0 in process 0 and 10000.0 in process 1")])
def test_hosts_whose_config_differs_are_refused_with_both_values(binary, data, tmp_path, prompts, change, told):  # noqa: F811
    source = data / "models/llama"
    for place in ("a", "b"):
        (tmp_path / place / "model").mkdir(parents=True)
        for path in source.iterdir():
            (tmp_path / place / "model" / path.name).symlink_to(path)
    config = json.loads((source / "config.json").read_text())
    for key, value in change.items():
        config[key] = {**config[key], **value} if isinstance(value, dict) else value
    other = tmp_path / "b/model/config.json"
    other.unlink()
    other.write_text(json.dumps(config))
    command = [str(binary), "run", "model", "--input", str(prompts), "-tp", "2", *EXACT]
    done = subprocess.run(
        [*MPIRUN, "1", "-wdir", str(tmp_path / "a"), *command, ":", "-n", "1", "-wdir", str(tmp_path / "b"), *command],
        capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=60, env=environment())
    assert done.returncode == 2, done.stderr
    assert sentence(done) == f"pinion: the processes differ: {told}; have the same files of the model on all hosts"
