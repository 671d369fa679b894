"""llama-server's own endpoints, over plain HTTP as its clients use them. The engine's stand-in answers with the
prompt's tokens, so that an answer shows what the prompt was."""

import itertools
import json
import pathlib
import re
import shutil
import urllib.error
import urllib.request

import jsonschema
import openai
import pytest

from conftest import wait_until
from test_serve import metric

NAMES = {"<|start_header_id|>": "<|fim_prefix|>", "<|end_header_id|>": "<|fim_suffix|>",
         "<|eot_id|>": "<|fim_middle|>"}


def make_filling(data, folder):
    """A model whose tokenizer has tokens for gaps."""
    shutil.copytree(data / "models" / "tiny-trained", folder)
    for file in ("tokenizer.json", "tokenizer_config.json"):
        text = (folder / file).read_text()
        for old, new in NAMES.items():
            text = text.replace(old, new)
        (folder / file).write_text(text)
    return folder


@pytest.fixture(scope="module")
def filling(data, tmp_path_factory):
    return make_filling(data, tmp_path_factory.mktemp("filling") / "model")


@pytest.fixture(scope="module")
def server(start_server, filling):
    return start_server(filling, "--stand-in", "400", "--served-model-name", "echo")


@pytest.fixture(scope="module")
def plain(start_server, data):
    return start_server(data / "models" / "tiny-trained", "--dtype", "float32", "--kv-cache-space", "64MiB",
                        "--served-model-name", "tiny")


def open_post(server, path, **body):
    request = urllib.request.Request(server.url + path, json.dumps(body).encode(),
                                     {"Content-Type": "application/json"})
    return urllib.request.urlopen(request, timeout=60)


def post(server, path, **body):
    with open_post(server, path, **body) as answer:
        return json.load(answer)


def refusal(server, path, **body):
    with pytest.raises(urllib.error.HTTPError) as refused:
        open_post(server, path, **body)
    return refused.value.code, json.load(refused.value)["error"]["message"]


def stream(server, path, **body):
    with open_post(server, path, stream=True, **body) as answer:
        assert answer.headers["Content-Type"].startswith("text/event-stream")
        lines = [line for line in answer.read().decode().splitlines() if line]
    assert all(line.startswith("data: ") for line in lines)
    return [json.loads(line[6:]) for line in lines]


def test_completions_tell_why_they_stopped_and_how_long_they_took(server):
    for path in ("/completion", "/completions"):
        done = post(server, path, prompt="One two", n_predict=5)
        assert done["stop"] is True and done["stop_type"] == "limit" and done["tokens_predicted"] == 5
        assert done["model"] == "echo" and done["generation_settings"]["n_predict"] == 5
        timings = done["timings"]
        assert timings["predicted_n"] == 5 and timings["predicted_ms"] > 0 and timings["predicted_per_second"] > 0
        assert timings["prompt_n"] + timings["cache_n"] == done["tokens_evaluated"]
    stopped = post(server, "/completion", prompt="One two three", n_predict=50, stop=["two"])
    assert (stopped["stop_type"], stopped["stopping_word"]) == ("word", "two")
    assert "two" not in stopped["content"]


def test_streams_have_an_object_for_each_text_and_a_last_one(server):
    body = {"prompt": "One two three\n", "n_predict": 12}
    whole = post(server, "/completion", **body)
    *parts, last = stream(server, "/completion", **body)
    assert all(part["stop"] is False for part in parts) and last["stop"] is True and last["content"] == ""
    assert "".join(part["content"] for part in parts) == whole["content"]
    for key in ("stop_type", "tokens_predicted", "tokens_evaluated", "has_new_line", "generation_settings"):
        if key != "generation_settings":
            assert last[key] == whole[key], key
    assert last["timings"]["predicted_n"] == 12


def test_without_a_limit_the_model_decides(server):
    """The stand-in never ends, so that this one ends with a stop string far behind the default of completions."""
    done = post(server, "/completion", prompt="a b c d e f g h i j k l m n o p q r s t u v w x y z END", stop=["END"],
                n_predict=-1, cache_prompt=True)
    assert done["stop_type"] == "word" and done["tokens_predicted"] > 16


def test_a_limit_of_time_leaves_whole_lines(server):
    body = {"prompt": "One two\nthree\n", "n_predict": 200}
    assert post(server, "/completion", **body, t_max_predict_ms=600_000)["tokens_predicted"] == 200
    before = metric(server, "vllm:generation_tokens_total")
    for path, ask in (("/completion", body), ("/infill", {"input_prefix": "a\n", "input_suffix": "b\n", "n_predict": 200})):
        done = post(server, path, **ask, t_max_predict_ms=1)
        assert done["content"].endswith("\n") and done["tokens_predicted"] < 200, "the stand-in's take half a second"
        assert done["stop_type"] == "limit" and done["has_new_line"] is True
    assert wait_until(lambda: metric(server, "vllm:num_requests_running") == 0)
    assert metric(server, "vllm:generation_tokens_total") - before < 400, "the engine has stopped as well"


def test_nothing_is_predicted_to_warm_the_cache(plain):
    done = post(plain, "/completion", prompt="Once upon a time", n_predict=0)
    assert done["content"] == "" and done["tokens_predicted"] == 0


def test_several_prompts_get_a_list(server):
    answers = post(server, "/completion", prompt=["One", "Two"], n_predict=3)
    assert [answer["index"] for answer in answers] == [0, 1]


def test_tokens_and_probabilities_are_told(plain):
    done = post(plain, "/completion", prompt="Once", n_predict=3, n_probs=2, return_tokens=True, temperature=0)
    assert len(done["tokens"]) == len(done["completion_probabilities"]) == 3
    assert [token["id"] for token in done["completion_probabilities"]] == done["tokens"]
    first = done["completion_probabilities"][0]
    assert first["logprob"] <= 0 and len(first["top_logprobs"]) == 2
    assert max(top["logprob"] for top in first["top_logprobs"]) == first["logprob"]


def test_penalties_see_as_many_of_the_last_tokens_as_asked(plain):
    def tokens(**body):
        done = post(plain, "/completion", prompt="Say it again and again", n_predict=100, temperature=0, ignore_eos=True,
                    return_tokens=True, **body)
        return done["tokens"], done["generation_settings"]["repeat_last_n"]

    free, _ = tokens()
    assert len(set(free)) < len(free), "the model repeats itself unless it is penalised"
    assert tokens(presence_penalty=2, repeat_penalty=1e6, repeat_last_n=0) == (free, 0)
    for asked, window, shown in (({"repeat_last_n": 3}, 3, 3), ({}, 64, 64), ({"repeat_last_n": -1}, 100, -1)):
        said, told = tokens(repeat_penalty=1e6, presence_penalty=2, **asked)
        assert told == shown
        for at, token in enumerate(said):
            assert token not in said[max(0, at - window):at], (asked, at)
        assert window == 100 or len(set(said)) < len(said), "what is past the window may come again"


def test_too_many_n_probs_are_refused_by_that_name(plain):
    code, message = refusal(plain, "/completion", prompt="Once", n_predict=3, n_probs=1000)
    assert code == 400 and "'n_probs' is 1000" in message


def test_schemas_and_grammars_constrain_the_answer(plain, binary):
    if not (pathlib.Path(binary).parent / "grammar-env").exists():
        pytest.skip("llguidance is not installed by scripts/build")
    schema = {"type": "object", "properties": {"a": {"enum": [1, 2]}}, "required": ["a"], "additionalProperties": False}
    done = post(plain, "/completion", prompt="x", n_predict=200, json_schema=schema, temperature=2)
    jsonschema.validate(json.loads(done["content"]), schema)
    done = post(plain, "/completion", prompt="x", n_predict=20, grammar='root ::= "yes" | "no"')
    assert done["content"] in ("yes", "no") and done["stop_type"] == "eos"
    code, why = refusal(plain, "/completion", prompt="x", grammar="root ::= (")
    assert code == 400 and why.startswith("'grammar'")
    code, why = refusal(plain, "/completion", prompt="x", json_schema={"type": "nothing"})
    assert code == 400 and why.startswith("'json_schema'")


GRAMMAR = 'root ::= "a"'
CONSTRAINTS = {"json_schema": {"type": "object"}, "grammar": GRAMMAR, "guided_json": {"type": "array"},
               "guided_grammar": GRAMMAR, "guided_regex": "a", "guided_choice": ["a"],
               "structured_outputs": {"json": {}}, "response_format": {"type": "json_object"}}


@pytest.mark.parametrize("first, second", list(itertools.combinations(CONSTRAINTS, 2)))
def test_two_constraints_are_refused_by_the_names_that_were_sent(server, first, second):
    for path, gap in (("/completion", {"prompt": "x"}), ("/infill", {"input_prefix": "a", "input_suffix": "b"})):
        code, why = refusal(server, path, **gap, **{name: CONSTRAINTS[name] for name in (second, first)})
        assert code == 400 and "both constrain the answer; send one of them" in why
        assert {first, second} == set(re.findall(r"'(\w+)'", why)), why


def test_unsupported_fields_are_refused_by_name(server):
    for body, why in (({"mirostat": 2}, "'mirostat' is 2"), ({"lora": [{"id": 0}]}, "'lora' is not supported"),
                      ({"repetition_penalty": 2}, "'repetition_penalty'"), ({"colour": 1}, "'colour' is not a field"),
                      ({"min_keep": 2}, "'min_keep' is not supported"), ({"n_indent": 4}, "'n_indent' is not supported"),
                      ({"repeat_last_n": -2}, "'repeat_last_n' is -2"),
                      ({"n_predict": -3}, "'n_predict' is -3"), ({"t_max_predict_ms": "1 s"}, "'t_max_predict_ms'"), ({"input_prefix": "x"}, "field of /infill")):
        code, message = refusal(server, "/completion", prompt="x", **body)
        assert code == 400 and why in message, body
    # Fields that its own clients send though they are off.
    done = post(server, "/completion", prompt="x", n_predict=1, mirostat=0, typical_p=1.0, xtc_probability=0.0,
                samplers=["top_k", "top_p", "infill"], seed=-1, id_slot=0, t_max_predict_ms=1000, lora=[])
    assert done["generation_settings"]["temperature"] == 1, "its sampler is not among them"


def whole_prompt(server, path, **body):
    """The prompt that the model got, marks included."""
    got = post(server, path, skip_special_tokens=False, **body)
    return got["content"] if "content" in got else got["choices"][0]["text"]


def test_gaps_are_filled_between_their_marks(server):
    text = whole_prompt(server, "/infill", input_prefix="def f():\n", input_suffix="\nprint(f())", prompt="  return",
                        n_predict=40)
    expected = "<|fim_prefix|>def f():\n<|fim_suffix|>\nprint(f())<|fim_middle|>  return"
    assert expected in text + text
    text = whole_prompt(server, "/infill", input_prefix="a", input_suffix="b", n_predict=60,
                        input_extra=[{"filename": "other.py", "text": "x = 1"}])
    assert "x = 1\n<|fim_prefix|>a<|fim_suffix|>b<|fim_middle|>" in text + text
    parts = stream(server, "/infill", input_prefix="a", input_suffix="b", n_predict=4)
    assert parts[-1]["stop_type"] == "limit"
    assert refusal(server, "/infill", input_prefix="a")[1] == "'input_suffix' is missing, want a string"


def test_suffixes_of_completions_are_gaps_too(server, plain):
    client = openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0, timeout=60)
    done = client.completions.create(model="echo", prompt="def f():", suffix="print(f())", max_tokens=30,
                                     extra_body={"skip_special_tokens": False})
    assert "<|fim_prefix|>def f():<|fim_suffix|>print(f())<|fim_middle|>" in done.choices[0].text * 2
    for path, body in (("/v1/completions", {"prompt": "a", "suffix": "b"}),
                       ("/infill", {"input_prefix": "a", "input_suffix": "b"})):
        code, why = refusal(plain, path, **body)
        assert code == 400 and "needs a model that fills gaps" in why


def test_a_client_that_leaves_ends_its_answer(server):
    before = metric(server, "vllm:generation_tokens_total")
    answer = open_post(server, "/completion", prompt="word", n_predict=400, stream=True)
    answer.readline()
    answer.close()
    assert wait_until(lambda: metric(server, "vllm:num_requests_running") == 0)
    assert metric(server, "vllm:generation_tokens_total") - before < 400


def test_texts_become_tokens_and_tokens_texts(plain):
    tokens = post(plain, "/tokenize", content="Once upon a time")["tokens"]
    assert tokens == post(plain, "/tokenize", prompt="Once upon a time", add_special_tokens=False)["tokens"]
    marked = post(plain, "/tokenize", content="Once upon a time", add_special=True, parse_special=True)["tokens"]
    assert marked == post(plain, "/tokenize", prompt="Once upon a time")["tokens"] != tokens
    assert post(plain, "/detokenize", tokens=tokens)["content"] == "Once upon a time"
    for body, why in (({"content": "x", "prompt": "x"}, "'content' and 'prompt'"), ({"content": 7}, "'content' must"),
                      ({"content": "x", "parse_special": False}, "'parse_special' is false"),
                      ({"content": "x", "with_pieces": 7}, "'with_pieces' is 7, want a boolean")):
        code, message = refusal(plain, "/tokenize", **body)
        assert code == 400 and why in message, body


@pytest.mark.parametrize("text", ["Once upon a time", " two  spaces\n", "größe 😀 ok", "日本", 'a "quoted" one', ""])
def test_pieces_make_up_the_text(plain, text):
    ids = post(plain, "/tokenize", content=text)["tokens"]
    pieces = post(plain, "/tokenize", content=text, with_pieces=True)["tokens"]
    assert [one["id"] for one in pieces] == ids
    joined = b"".join(one["piece"].encode() if isinstance(one["piece"], str) else bytes(one["piece"]) for one in pieces)
    assert joined.decode() == text
    if "😀" in text:
        assert any(isinstance(one["piece"], list) for one in pieces), "parts of a character are bytes"


def test_health_has_two_paths_that_need_no_key(start_server):
    server = start_server("preset:tiny", "--stand-in", "1000", "--api-key", "secret")
    for path in ("/health", "/v1/health"):
        assert urllib.request.urlopen(server.url + path, timeout=60).status == 200
    with pytest.raises(urllib.error.HTTPError, match="401"):
        urllib.request.urlopen(server.url + "/models", timeout=60)


def test_models_has_two_paths(plain):
    assert plain.get("/models") == plain.get("/v1/models")


def test_slots_and_properties_are_those_of_the_server(start_server, data):
    busy = start_server(data / "models" / "tiny-trained", "--stand-in", "20", "--max-num-seqs", "2", "--max-model-len", "512")
    props = json.loads(busy.get("/props"))
    assert props["total_slots"] == 2 and props["default_generation_settings"]["n_ctx"] == 512
    assert props["chat_template"] == (data / "models" / "tiny-trained" / "chat_template.jinja").read_text()
    assert [slot["is_processing"] for slot in json.loads(busy.get("/slots"))] == [False, False]
    held = [open_post(busy, "/completion", prompt="word", n_predict=400, stream=True) for _ in range(2)]
    assert wait_until(lambda: all(slot["is_processing"] for slot in json.loads(busy.get("/slots"))))
    with pytest.raises(urllib.error.HTTPError, match="503"):
        busy.get("/slots?fail_on_no_slot=1")
    for answer in held:
        answer.close()
    assert wait_until(lambda: not any(slot["is_processing"] for slot in json.loads(busy.get("/slots"))))


def test_one_model_and_its_tokenizer_are_told(plain):
    client = openai.OpenAI(base_url=f"{plain.url}/v1", api_key="none", max_retries=0)
    model = client.models.retrieve("tiny")
    assert (model.id, model.object, model.max_model_len) == ("tiny", "model", 2048)
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("other")
    told = json.loads(plain.get("/tokenizer_info"))
    assert told["model_max_length"] == 2048 and told["vocab_size"] == 1024 and told["eos_token"]
    assert "messages" in told["chat_template"]


def test_chats_answer_with_text_alone(plain):
    asked = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1}
    assert post(plain, "/v1/chat/completions", modalities=["text"], **asked)["choices"]
    for other in (["text", "audio"], ["image"], "text"):
        code, message = refusal(plain, "/v1/chat/completions", modalities=other, **asked)
        assert code == 400 and "'modalities' is " in message, other
