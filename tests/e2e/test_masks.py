"""scripts/serving/masks.py, which measures how long steps wait for the masks of grammars."""

import json
import pathlib
import subprocess
import sys

import pytest

from conftest import TOP

sys.path.insert(0, str(TOP / "scripts/serving"))
import masks  # noqa: E402


def span(name, begin, end, **counts):
    return {"name": name, "ph": "X", "ts": begin, "dur": end - begin, "pid": 1, "tid": 1, "args": counts}


def test_waits_belong_to_their_step_and_are_counted_once_for_all_threads(tmp_path):
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"traceEvents": [
        {"name": "process_name", "ph": "M", "pid": 1},
        span("step", 0, 100), span("forward", 1, 90, rows=16),  # before the phase
        span("step", 200, 300), span("forward", 201, 290, rows=16), span("wait for mask", 240, 260), span("attention", 210, 220),
        span("wait for mask", 250, 270), span("wait for mask", 255, 265), span("wait for mask", 280, 281),
        span("step", 300, 400), span("forward", 301, 390, rows=17),
        span("step", 400, 500), span("forward", 401, 490, rows=15), span("wait for mask", 450, 480)]}))  # not all of them
    spans = masks.spans_of(path, ("step", "forward", "wait for mask"))
    assert masks.steps_within(spans, (150, 600), 16) == [(100, 31), (100, 0)]
    figures = masks.figures_of([(100, 31), (100, 0)])
    assert (figures["steps"], figures["wait_us_max"], figures["wait_share"]) == (2, 31, 0.155)


def measure(binary, *flags):
    return subprocess.run([sys.executable, TOP / "scripts/serving/masks.py", "--binary", binary, *flags],
                          capture_output=True, text=True, timeout=1500, check=False)


@pytest.mark.timeout(1800)
def test_every_step_of_constrained_sequences_is_looked_at(binary, tmp_path):
    """Answers begin once their grammars are checked, one after the other; steps of two layers and 32,000 tokens are slow
    enough that all of them still run then."""
    if not (pathlib.Path(binary).parent / "grammar-env").exists():
        pytest.skip("llguidance is not installed by scripts/build")
    out = tmp_path / "masks.json"
    done = measure(binary, "--sequences", "4", "--tokens", "200", "--flags=--kv-cache-space 64MiB", "--json", out,
                   "preset:tinyllama-1.1b@2")
    assert done.returncode == 0, done.stderr
    figures = json.loads(out.read_text())
    assert figures["without_grammars"]["wait_us_max"] == 0 and figures["without_grammars"]["steps"] > 0
    assert figures["first_steps"]["steps"] == masks.WARM_STEPS and figures["with_grammars"]["steps"] > 0
    assert figures["first_steps"]["wait_us_max"] > 0, "to read the answer takes a time"
    assert "4 sequences of" in done.stdout and "first steps with grammars" in done.stdout


def test_grammars_are_asked_for_until_they_are_checked(monkeypatch):
    """A busy machine may not check one within the server's 2 s. Any other refusal is final."""
    refusals = [masks.Failed("status 400: no"), masks.Failed(f"the regex is too costly: {masks.OUT_OF_TIME}")]

    def refuse_twice(*load):
        if refusals:
            raise refusals.pop()
        return load

    monkeypatch.setattr(masks, "all_at_once", refuse_twice)
    with pytest.raises(masks.Failed, match="status 400: no"):
        masks.once_checked(1, 2)
    refusals.append(masks.Failed(masks.OUT_OF_TIME))
    assert masks.once_checked(1, 2) == (1, 2) and not refusals


def test_the_reason_why_the_grammar_helper_does_not_start_is_reported(own_llguidance):
    program, spoil = own_llguidance
    spoil()
    done = measure(program, "--sequences", "2", "--tokens", "8", "--flags=--kv-cache-space 64MiB", "preset:tinyllama-1.1b@2")
    assert done.returncode == 1 and done.stdout == ""
    assert done.stderr.startswith("masks.py: status 503: ")
    assert "the grammar helper does not start: ModuleNotFoundError: No module named 'llguidance._lib'" in done.stderr


def test_a_server_that_does_not_start_is_reported(binary, tmp_path):
    done = measure(binary, tmp_path / "no-model")
    assert done.returncode == 1 and "the server is not ready" in done.stderr and "no-model" in done.stderr
