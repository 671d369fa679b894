"""fixed_server.py as an engine of sweeps."""

import json
import pathlib
import sys

FIXED = pathlib.Path(__file__).with_name("fixed_server.py")
TTFT_MS, ITL_MS, OUTPUT = 30, 5, 8
PROMPTS = 9  # odd, so that each median is the time of one request


def engine(*flags):
    return {"engine": "command", "name": "fixed",
            "command": [sys.executable, str(FIXED), "--port", "{port}", "--ttft-ms", str(TTFT_MS),
                        "--itl-ms", str(ITL_MS), *flags]}


def define(tmp_path, engine_choice, **changes):
    definition = {
        "engines": [engine_choice],
        "candidates": [{"max_num_seqs": 1}],
        "workload": {"prompt_len": 20, "output_len": OUTPUT, "concurrency": [1, 4],
                     "num_prompts": PROMPTS},
        "objectives": ["throughput", "latency"],
        # A budget that a slow machine's sweep does not use up either.
        "rounds": 1, "budget": "10m", "seed": 3, "trial_limit": 20,
        **changes,
    }
    path = tmp_path / "definition.json"
    path.write_text(json.dumps(definition))
    return path


# For tests to which the load does not matter.
LIGHT = {"prompt_len": 8, "output_len": 2, "concurrency": [1], "num_prompts": 2}
