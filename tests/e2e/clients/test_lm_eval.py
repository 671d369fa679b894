"""lm-eval: loglikelihoods and generation by local-completions, a task of generation by local-chat-completions."""

import json
import re

import pytest

from environment import HEAVY, run_program
from test_tools import STOP, echoing  # noqa: F401: a fixture

pytestmark = HEAVY
FLAGS = ("--dtype", "float32", "--kv-cache-space", "64MiB")
PAIRS = [["The quick brown fox", " jumps over the lazy dog"], ["Once upon", " a time"], ["A", " b c"]]
SAYINGS = ["Hello", "One two"]  # which the server's stand-in says after those who ask
TASK = f"""
task: sayings
dataset_path: json
dataset_kwargs:
  data_files:
    test: DATA
test_split: test
output_type: generate_until
doc_to_text: "{{{{said}}}}{STOP}"
doc_to_target: "{{{{wanted}}}}"
generation_kwargs:
  until: ["{STOP}"]
  max_gen_toks: 100
metric_list:
  - metric: exact_match
    aggregation: mean
    higher_is_better: true
"""


@pytest.fixture(scope="module")
def found(start_server, data, echoing, tmp_path_factory):  # noqa: F811
    folder = tmp_path_factory.mktemp("tasks")
    # One of three answers is another than the wanted one.
    lines = [{"said": said, "wanted": said} for said in SAYINGS] + [{"said": "Three", "wanted": "Four"}]
    (folder / "sayings.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (folder / "sayings.yaml").write_text(TASK.replace("DATA", str(folder / "sayings.jsonl")))
    real = start_server(data / "models" / "tiny-trained", *FLAGS, "--served-model-name", "tiny")
    told = start_server(echoing, "--stand-in", "400", "--served-model-name", "echo")
    return run_program("lm_eval", "lm_eval_client.py", real.url, json.dumps(PAIRS), told.url, folder)


def test_loglikelihoods_are_those_of_score(found, pinion, data, tmp_path):
    assert len(found["written"]) == 1
    texts = tmp_path / "texts.jsonl"
    texts.write_text("".join(json.dumps({"input_ids": whole}) + "\n" for _, whole in found["tokens"]))
    scored = pinion("score", data / "models" / "tiny-trained", *FLAGS[:2], "--input", texts)
    assert scored.returncode == 0, scored.stderr
    for (logprob, _), (context, _), line in zip(found["rated"], found["tokens"], scored.stdout.splitlines(), strict=True):
        assert logprob == pytest.approx(sum(json.loads(line)["token_logprobs"][len(context):]), abs=1e-4)


def test_a_task_of_generation_is_answered_by_chats(found):
    assert found["chat"]["answers"] == [*SAYINGS, "Three"]
    assert found["chat"]["score"] == pytest.approx(2 / 3)


@pytest.mark.parametrize("kind", ["generate_until", "loglikelihood"])
def test_a_prompt_that_is_too_long_is_refused_in_a_sentence(found, kind):
    refused = found["refused"][kind]
    assert refused["status"] == 400
    (warning,) = [text for text in refused["warnings"] if "error message" in text]
    assert re.search(r"the prompt has \d+ tokens and \d more were requested, which together exceed the model's 2048", warning)
