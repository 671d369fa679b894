"""Memory of a process beside the weights."""

import json

from conftest import WITH_CEILINGS


def test_a_short_run_takes_the_weights_its_keys_and_values_and_300_mb(pinion):
    """12 heads in 12 layers: one huge page for the keys and one for the values of each are 576 MiB."""
    done = pinion("bench", "preset:opt-125m", "--rounds", 1, "--prompt-len", 16, "--output-len", 2,
                  "--batch", 1, "--kv-cache-space", "2GiB", "--json", env=WITH_CEILINGS)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    step = result["limits"]["decode"]
    used = step["weight_bytes"] + step["kv_bytes"]
    assert used < result["peak_rss_bytes"] < used + 300e6
