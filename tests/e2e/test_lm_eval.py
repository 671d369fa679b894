"""lm-eval's local-completions on our server. Its environment has some 800 MB, so that it is not installed
here: PINION_LM_EVAL names a Python that has lm-eval[api], such as `python3 -m venv build/lm-eval &&
build/lm-eval/bin/pip install 'lm-eval[api]==0.4.13'` makes one."""

import json
import os
import subprocess

import pytest

FLAGS = ("--dtype", "float32", "--kv-cache-space", "64MiB")
PAIRS = [["The quick brown fox", " jumps over the lazy dog"], ["Once upon", " a time"], ["A", " b c"]]
PROGRAM = """
import json, sys
from lm_eval.api.instance import Instance
from lm_eval.models.openai_completions import LocalCompletionsAPI

url, pairs = sys.argv[1], json.loads(sys.argv[2])
model = LocalCompletionsAPI(base_url=url + "/v1/completions", model="tiny", max_length=512, batch_size=2,
                            tokenizer_backend="remote")
rated = model.loglikelihood([Instance("loglikelihood", {}, tuple(pair), i) for i, pair in enumerate(pairs)])
written = model.generate_until([Instance("generate_until", {}, (pairs[0][0], {"until": ["."], "max_gen_toks": 8}), 0)])
print(json.dumps({"rated": rated, "written": written,
                  "tokens": [[model.tok_encode(context), model.tok_encode(context + more)] for context, more in pairs]}))
"""


@pytest.mark.skipif("PINION_LM_EVAL" not in os.environ, reason="PINION_LM_EVAL names no Python")
def test_loglikelihoods_are_those_of_score(start_server, pinion, data, tmp_path):
    model = data / "models" / "tiny-trained"
    server = start_server(model, *FLAGS, "--served-model-name", "tiny")
    done = subprocess.run([os.environ["PINION_LM_EVAL"], "-c", PROGRAM, server.url, json.dumps(PAIRS)],
                          capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert len(found["written"]) == 1
    texts = tmp_path / "texts.jsonl"
    texts.write_text("".join(json.dumps({"input_ids": whole}) + "\n" for _, whole in found["tokens"]))
    scored = pinion("score", model, *FLAGS[:2], "--input", texts)
    assert scored.returncode == 0, scored.stderr
    for (logprob, _), (context, _), line in zip(found["rated"], found["tokens"], scored.stdout.splitlines(), strict=True):
        assert logprob == pytest.approx(sum(json.loads(line)["token_logprobs"][len(context):]), abs=1e-4)
