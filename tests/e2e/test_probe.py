"""The promises of `pinion probe` to scripts."""

import json


def test_json_is_alone_on_standard_output_and_in_the_file(pinion, tmp_path):
    out = tmp_path / "probe.json"
    done = pinion("probe", "--json", "--seconds", "1", "--out", str(out))
    assert done.returncode == 0, done.stderr
    probed = json.loads(done.stdout)
    assert probed == json.loads(out.read_text())
    assert [rate["threads"] for rate in probed["memory_read"]][0] == 1
    assert all(rate["bytes_per_s"] > 0 for rate in probed["memory_read"])


def test_an_impossible_duration_is_bad_usage(pinion):
    done = pinion("probe", "--seconds", "0")
    assert done.returncode == 2
    assert done.stdout == ""
    assert "want 1 to 60" in done.stderr
