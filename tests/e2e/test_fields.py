"""Fields of requests that change answers: what they change, through the official client on both of OpenAI's endpoints."""

import json
import threading
import urllib.error

import openai
import pytest

from conftest import wait_until
from test_vllm_cases import client, create, server  # noqa: F401 (fixtures)

COUNT = 24  # tokens of an answer
MARK = 3  # a special token, <|start_header_id|>
WISHES = {"ignore_eos": True, "return_token_ids": True, "max_tokens": COUNT, "max_completion_tokens": None}


def ask(create, extra=None, **fields):  # noqa: F811
    """The token ids of each choice of an answer that nothing but its length ends."""
    return [choice.token_ids for choice in create(extra_body={**WISHES, **(extra or {})}, **fields).choices]


@pytest.fixture
def greedy(create):  # noqa: F811
    (ids,) = ask(create)
    return ids


def test_only_allowed_tokens_come(create):  # noqa: F811
    allowed = [40, 41, 42]
    drawn = ask(create, {"allowed_token_ids": allowed}, temperature=2, n=3, seed=1)
    assert {token for ids in drawn for token in ids} <= set(allowed)
    assert len({tuple(ids) for ids in drawn}) > 1, "they are drawn"


def test_bad_words_do_not_come(server, create):  # noqa: F811
    """A text of the answers that is one token, behind a space or not."""
    def text_of(token):
        return server.post("/detokenize", {"tokens": [token]})["prompt"].strip()

    def is_one(token):
        spelled = [server.post("/tokenize", {"prompt": space + text_of(token), "add_special_tokens": False})["tokens"]
                   for space in ("", " ")]
        return text_of(token) and [token] in spelled

    drawing = {"temperature": 1.5, "seed": 3, "n": 3}
    token = next(token for ids in ask(create, **drawing) for token in ids if is_one(token))
    without = ask(create, {"bad_words": [text_of(token)]}, **drawing)
    assert all(token not in ids and len(ids) == COUNT for ids in without)


@pytest.mark.parametrize("fields", [{"extra": {"top_k": 1}}, {"extra": {"min_p": 1.0}}, {"top_p": 1e-6}])
def test_samplers_that_leave_the_best_token_alone_are_greedy(create, greedy, fields):  # noqa: F811
    assert ask(create, temperature=2, **fields) == [greedy]
    assert ask(create, temperature=2, seed=5) != [greedy], "without them it is another answer"


def test_biases_force_and_forbid(create, greedy):  # noqa: F811
    assert ask(create, logit_bias={"50": 100}) == [[50] * COUNT]
    (without,) = ask(create, logit_bias={str(greedy[0]): -100})
    assert greedy[0] not in without


@pytest.mark.parametrize("stream", [False, True])
def test_stops_of_any_kind_end_an_answer(create, stream):  # noqa: F811
    """A text, several, the same within the answer, and a token."""
    def said(extra=None, **fields):
        answer = create(stream=stream, extra_body={**WISHES, **(extra or {})}, **fields)
        choices = [event.choices[0] for event in (answer if stream else [answer]) if event.choices]
        texts = [choice.text if hasattr(choice, "text") else (choice.delta if stream else choice.message).content or ""
                 for choice in choices]
        ids = [token for choice in choices for token in choice.model_dump().get("token_ids") or []]
        return "".join(texts), choices[-1].finish_reason, choices[-1].stop_reason, ids

    whole, reason, stopped, ids = said()
    assert (reason, stopped) == ("length", None) and len(ids) == COUNT
    word = whole[7:10]
    before = whole[:whole.index(word)]
    assert said(stop=word)[:3] == (before, "stop", word)
    assert said(stop=["\x01", word])[:3] == (before, "stop", word)
    assert said({"include_stop_str_in_output": True}, stop=[word])[:3] == (before + word, "stop", word)
    token = ids[5]
    _, reason, stopped, cut = said({"stop_token_ids": [token]})
    assert (reason, stopped, cut) == ("stop", token, ids[:ids.index(token) + 1])


def test_a_request_has_as_many_choices_as_it_asks_for(create):  # noqa: F811
    drawn = ask(create, {"best_of": 3}, n=3, temperature=1.5, seed=7)
    assert len(drawn) == 3 and len({tuple(ids) for ids in drawn}) > 1
    with pytest.raises(openai.BadRequestError, match="'best_of' is 4 and 'n' is 3; picking the best is not supported"):
        ask(create, {"best_of": 4}, n=3)


def test_offsets_are_the_places_of_tokens_in_the_text(client):  # noqa: F811
    asked = {"model": "tiny", "prompt": "An apple a day, keeps", "max_tokens": 8, "temperature": 0, "logprobs": 1,
             "extra_body": {"ignore_eos": True}}
    for echo in (False, True):
        (choice,) = client.completions.create(**asked, echo=echo).choices
        told = choice.logprobs
        begin = 1 if echo else 0  # behind the token before the text, which counts, as in vLLM, but is not shown
        for token, offset in list(zip(told.tokens, told.text_offset, strict=True))[begin:]:
            assert choice.text.startswith(token, offset - told.text_offset[begin]), (token, offset)
    whole = client.completions.create(**asked).choices[0].logprobs.text_offset
    streamed = [offset for event in client.completions.create(**asked, stream=True)
                for offset in event.choices[0].logprobs.text_offset]
    assert streamed == whole


def test_a_salt_keeps_cached_prompts_apart(client):  # noqa: F811
    def cached(salt=None):
        answer = client.completions.create(model="tiny", prompt=list(range(100, 200)), max_tokens=1,
                                           extra_body={"cache_salt": salt})
        return answer.usage.prompt_tokens_details.cached_tokens

    assert cached() == 0 and cached() >= 64
    assert cached("mine") == 0 and cached("mine") >= 64
    assert cached("yours") == 0 and cached() >= 64


def sequences(server):  # noqa: F811
    """How many the engine was given so far."""
    names = ("vllm:num_requests_running{", "vllm:num_requests_waiting{", "vllm:request_success_total{")
    return sum(float(line.rsplit(" ", 1)[1]) for line in server.get("/metrics").splitlines() if line.startswith(names))


def test_a_better_priority_is_answered_first(start_server, data):
    """Of two requests that wait: the one that came later."""
    server = start_server(data / "models" / "tiny-trained", "--served-model-name", "tiny", "--max-num-seqs", 1)
    client = openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0)
    busy, ended = 50, []  # sequences of 2000 tokens, before all others

    def answered(name, priority, tokens):
        client.completions.create(model="tiny", prompt="Once", max_tokens=tokens,
                                  extra_body={"priority": priority, "ignore_eos": True})
        ended.append(name)

    running = client.completions.create(model="tiny", prompt="Once", max_tokens=2000, n=busy, stream=True,
                                        extra_body={"ignore_eos": True, "priority": -100})
    next(running)
    threads = []
    for name, priority, tokens in (("worse", 5, 1500), ("better", -5, 1)):
        threads.append(threading.Thread(target=answered, args=(name, priority, tokens)))
        threads[-1].start()
        assert wait_until(lambda: sequences(server) == busy + len(threads))
    running.close()
    for thread in threads:
        thread.join()
    assert ended == ["better", "worse"]


def test_documents_are_rendered_by_the_template(start_server, data):
    server = start_server(data / "models" / "tiny-trained", "--stand-in", 5000, "--served-model-name", "echo",
                          "--chat-template", "{% for one in documents or [] %}[{{ one.title }}: {{ one.text }}]{% endfor %}")
    asked = {"messages": [{"role": "user", "content": "x"}], "documents": [{"title": "A", "text": "one"},
                                                                         {"title": "B", "text": "two"}]}
    prompt = server.post("/apply-template", asked)["prompt"]
    assert prompt == "[A: one][B: two]"
    answer = server.post("/v1/chat/completions", {**asked, "max_tokens": 500, "stop": "two]"})
    assert answer["choices"][0]["message"]["content"] == "[A: one][B: "
    with pytest.raises(urllib.error.HTTPError) as refused:
        server.post("/v1/chat/completions", {**asked, "documents": "one"})
    assert json.load(refused.value)["error"]["param"] == "documents"


WRITES_PARTS = """{%- for message in messages %}{% if message.content is string %}{{ message.content }}{% else %}
{%- for part in message.content %}[{{ part.text }}{% if part.lang %} in {{ part.lang }}{% endif %}]{% endfor %}{% endif %}
{%- endfor %}"""


@pytest.mark.parametrize("template, prompt", [(WRITES_PARTS, "So: [one][two in de]"),
                                              ("{% for message in messages %}{{ message.content }}{% endfor %}",
                                               "So: one\ntwo")])
def test_contents_reach_a_template_in_the_form_that_it_writes(start_server, data, template, prompt):
    server = start_server(data / "models" / "tiny-trained", "--stand-in", 5000, "--served-model-name", "echo",
                          "--chat-template", template)
    messages = [{"role": "system", "content": "So: "},
                {"role": "user", "content": [{"type": "text", "text": "one"}, {"type": "text", "text": "two", "lang": "de"}]}]
    assert server.post("/apply-template", {"messages": messages})["prompt"] == prompt
    client = openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0)
    tokens = client.chat.completions.create(model="echo", messages=messages, max_tokens=1).usage.prompt_tokens
    assert tokens == server.post("/tokenize", {"prompt": prompt, "add_special_tokens": False})["count"]


def test_spaces_between_special_tokens_are_dropped_either_way(server, create):  # noqa: F811
    mark = server.post("/detokenize", {"tokens": [MARK]})["prompt"]
    assert mark == "<|start_header_id|>"
    for spaces in (True, False):
        (choice,) = create(extra_body={**WISHES, "spaces_between_special_tokens": spaces, "skip_special_tokens": False},
                           logit_bias={str(MARK): 100}).choices
        assert (choice.text if hasattr(choice, "text") else choice.message.content) == mark * COUNT


def counted(server, outcome):  # noqa: F811
    lines = [line for line in server.get("/metrics").splitlines()
             if line.startswith("pinion:unknown_fields_total{") and f'outcome="{outcome}"' in line]
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines)


def test_unknown_fields_are_named_and_counted(start_server, data, server, client):  # noqa: F811
    before = counted(server, "refused")
    with pytest.raises(openai.BadRequestError, match="'temprature' is not a field .* --ignore-unknown-fields") as refused:
        client.completions.create(model="tiny", prompt="x", extra_body={"temprature": 0})
    assert (refused.value.param, refused.value.code) == ("temprature", "unknown_parameter")
    assert counted(server, "refused") == before + 1
    for harmless in ({"user": "me"}, {"metadata": {"a": "b"}, "store": True}, {"session_id": "s", "request_id": "r"}):
        client.completions.create(model="tiny", prompt="x", max_tokens=1, extra_body=harmless)
    assert counted(server, "refused") == before + 1
    lenient = start_server(data / "models" / "tiny-trained", "--stand-in", 5000, "--ignore-unknown-fields")
    lenient.post("/v1/completions", {"prompt": "x", "max_tokens": 1, "temprature": 0, "x": {}})
    assert counted(lenient, "ignored") == 2
