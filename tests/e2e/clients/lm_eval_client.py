"""lm-eval: prints as JSON what its local-completions got from the server at argv[1] for the pairs in argv[2], and what
a task in the folder argv[4] scores with its local-chat-completions on the server at argv[3]. See test_lm_eval.py."""

import json
import logging
import sys

import lm_eval
import requests
from lm_eval.api.instance import Instance
from lm_eval.models.openai_completions import LocalCompletionsAPI
from lm_eval.tasks import TaskManager

rating, pairs, told, tasks = sys.argv[1], json.loads(sys.argv[2]), sys.argv[3], sys.argv[4]
model = LocalCompletionsAPI(base_url=rating + "/v1/completions", model="tiny", max_length=512, batch_size=2,
                            tokenizer_backend="remote")
rated = model.loglikelihood([Instance("loglikelihood", {}, tuple(pair), i) for i, pair in enumerate(pairs)])
written = model.generate_until([Instance("generate_until", {}, (pairs[0][0], {"until": ["."], "max_gen_toks": 8}), 0)])
evaluated = lm_eval.simple_evaluate(
    model="local-chat-completions",
    model_args={"base_url": told + "/v1/chat/completions", "model": "echo", "num_concurrent": 2, "max_retries": 1},
    tasks=["sayings"], task_manager=TaskManager(include_path=tasks, include_defaults=False), apply_chat_template=True,
    log_samples=True, bootstrap_iters=0)

# A prompt that the model has no room for, from a user who says that it has: lm-eval warns of what the server answers,
# and gives up.
warnings = []
handler = logging.Handler()
handler.emit = lambda record: warnings.append(record.getMessage())
logging.getLogger("lm_eval.models.api_models").addHandler(handler)
trusting = LocalCompletionsAPI(base_url=rating + "/v1/completions", model="tiny", max_length=10**6, batch_size=1,
                               tokenizer_backend="remote", max_retries=1)
refused = {}
for name, ask, arguments in (("generate_until", trusting.generate_until, {"until": ["."], "max_gen_toks": 8}),
                             ("loglikelihood", trusting.loglikelihood, " more")):
    warnings.clear()
    try:
        ask([Instance(name, {}, ("word " * 5000, arguments), 0)])
    except requests.HTTPError as error:
        refused[name] = {"status": error.response.status_code, "warnings": list(warnings)}
print(json.dumps({
    "rated": rated, "written": written, "refused": refused,
    "tokens": [[model.tok_encode(context), model.tok_encode(context + more)] for context, more in pairs],
    "chat": {"score": evaluated["results"]["sayings"]["exact_match,none"],
             "answers": [sample["resps"][0][0] for sample in evaluated["samples"]["sayings"]]}}))
