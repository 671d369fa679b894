"""Budgets of reasoning, obeyed by a real engine: the tokens that end the reasoning are forced once it has so many, and
all before them are those of an answer without a budget."""

import json
import shutil
import urllib.error

import anthropic
import openai
import pytest

THINKS = "Once upon a time <think>"  # what a prompt ends with that has begun the reasoning


@pytest.fixture(scope="module")
def plain_model(data, tmp_path_factory):
    """A model whose prompts are the last message alone, and whose template has the marks of reasoning."""
    folder = tmp_path_factory.mktemp("thinking") / "plain"
    shutil.copytree(data / "models" / "tiny-trained", folder)
    (folder / "chat_template.jinja").write_text("{#- </think> -#}{{- messages[-1].content -}}")
    return folder


@pytest.fixture(scope="module")
def model(plain_model):
    """The same with tokens for the marks, in place of the last two that its tokenizer makes of others."""
    folder = plain_model.parent / "marked"
    shutil.copytree(plain_model, folder)
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    words = tokenizer["model"]["vocab"]
    for text in ("<think>", "</think>"):
        word, number = max(words.items(), key=lambda item: item[1])
        del words[word]
        tokenizer["model"]["merges"] = [pair for pair in tokenizer["model"]["merges"]
                                        if "".join(pair if isinstance(pair, list) else pair.split(" ")) != word]
        tokenizer["added_tokens"].append({
            "id": number, "content": text, "special": False, "normalized": False, "single_word": False, "lstrip": False,
            "rstrip": False})
    tokenizer["added_tokens"].sort(key=lambda token: token["id"])
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    return folder


@pytest.fixture(scope="module")
def server(start_server, model):
    return start_server(model, "--served-model-name", "tiny", "--max-model-len", "512")


@pytest.fixture(scope="module")
def mark(server):
    """The tokens of </think>."""
    ids = server.post("/tokenize", {"prompt": "</think>", "add_special_tokens": False})["tokens"]
    assert len(ids) == 1
    return ids


def ask(server, budget=None, content=THINKS, **more):
    body = {"messages": [{"role": "user", "content": content}], "max_tokens": 40, "temperature": 0, "ignore_eos": True,
            "return_token_ids": True, **more}
    if budget is not None:
        body["thinking_token_budget"] = budget
    return server.post("/v1/chat/completions", body)


def test_reasoning_ends_after_its_budget_and_is_the_same_until_then(server, mark):
    free = ask(server, logprobs=True, top_logprobs=3)["choices"][0]
    assert free["message"]["content"] in (None, "") and len(free["token_ids"]) == 40, "the model never ends it"
    for budget in (0, 1, 7):
        done = ask(server, budget, logprobs=True, top_logprobs=3)["choices"][0]
        ids = done["token_ids"]
        assert ids[:budget] == free["token_ids"][:budget]
        assert ids[budget:budget + len(mark)] == mark
        assert len(ids) == 40 and done["message"]["content"]
        assert done["logprobs"]["content"][:budget] == free["logprobs"]["content"][:budget]
        if budget == 7:
            thought = free["token_ids"][:budget]
            text = server.post("/detokenize", {"tokens": thought})["prompt"]
            assert done["message"]["reasoning_content"] == text.strip()


def test_a_budget_that_is_not_spent_changes_nothing(server):
    free, bounded, unbounded = ask(server), ask(server, 40), ask(server, -1)
    assert free["choices"][0]["token_ids"] == bounded["choices"][0]["token_ids"]
    assert free["choices"][0]["token_ids"] == unbounded["choices"][0]["token_ids"]


def test_marks_of_several_tokens_are_forced_as_well(start_server, plain_model):
    server = start_server(plain_model, "--max-model-len", "512")
    mark = server.post("/tokenize", {"prompt": "</think>", "add_special_tokens": False})["tokens"]
    assert len(mark) > 1
    ids = ask(server, 5)["choices"][0]["token_ids"]
    assert ids[:5] == ask(server)["choices"][0]["token_ids"][:5] and ids[5:5 + len(mark)] == mark


def test_every_choice_has_its_own_budget(server, mark):
    done = ask(server, 6, n=4, temperature=1.5, seed=3)
    answers = [choice["token_ids"] for choice in done["choices"]]
    assert len({tuple(ids[:6]) for ids in answers}) > 1, "they are drawn"
    for ids in answers:
        assert ids[6:6 + len(mark)] == mark


def test_a_stream_has_the_same_reasoning_and_content(server):
    client = openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0)
    options = {"model": "tiny", "messages": [{"role": "user", "content": THINKS}], "max_tokens": 30, "temperature": 0,
               "extra_body": {"thinking_token_budget": 9, "ignore_eos": True}}
    whole = client.chat.completions.create(**options).choices[0].message
    deltas = [chunk.choices[0].delta for chunk in client.chat.completions.create(**options, stream=True)]
    assert "".join(delta.content or "" for delta in deltas) == whole.content
    assert "".join(getattr(delta, "reasoning_content", None) or "" for delta in deltas) == whole.reasoning_content


def test_a_cached_prompt_counts_its_reasoning(server, mark):
    begun = THINKS + " there was a little girl who liked to play in the park with her dog and her friends." * 3
    first = ask(server, 60, content=begun)
    again = ask(server, 60, content=begun)
    assert first["choices"] == again["choices"]
    spent = len(server.post("/tokenize", {"prompt": begun})["tokens"]) - len(
        server.post("/tokenize", {"prompt": THINKS})["tokens"])
    for budget, left in ((spent + 4, 4), (spent, 0), (3, 0)):
        ids = ask(server, budget, content=begun)["choices"][0]["token_ids"]
        assert ids[left:left + len(mark)] == mark


def test_completions_have_budgets_too(server, mark):
    done = server.post("/v1/completions", {
        "prompt": [THINKS, "Once upon a time"], "max_tokens": 20, "temperature": 0, "ignore_eos": True,
        "thinking_token_budget": 2, "return_token_ids": True})
    thinking, other = [choice["token_ids"] for choice in done["choices"]]
    assert thinking[2:2 + len(mark)] == mark
    free = server.post("/v1/completions", {"prompt": "Once upon a time", "max_tokens": 20, "temperature": 0,
                                           "ignore_eos": True, "return_token_ids": True})
    assert other == free["choices"][0]["token_ids"], "a prompt without reasoning has no use for a budget"


def test_messages_obey_budget_tokens(server):
    client = anthropic.Anthropic(base_url=server.url, api_key="none", max_retries=0)
    message = client.messages.create(
        model="tiny", max_tokens=40, messages=[{"role": "user", "content": THINKS}],
        thinking={"type": "enabled", "budget_tokens": 12}, extra_body={"ignore_eos": True, "temperature": 0})
    thought, text = message.content
    assert (thought.type, text.type) == ("thinking", "text") and thought.thinking and text.text


def refusal(server, body, path="/v1/chat/completions"):
    with pytest.raises(urllib.error.HTTPError) as refused:
        server.post(path, {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 5, **body})
    assert refused.value.code == 400
    return json.loads(refused.value.read())["error"]["message"]


def test_a_value_that_is_not_a_budget_is_refused_by_name(server):
    for value in (-2, 2**40, "7", 1.5, [], True):
        why = refusal(server, {"thinking_token_budget": value})
        assert why.startswith("'thinking_token_budget'") and why.count(". ") == 0
        why = refusal(server, {"thinking": {"type": "enabled", "budget_tokens": value}}, "/v1/messages")
        assert why.startswith("'thinking.budget_tokens'")


def test_a_model_that_is_not_known_to_reason_refuses_a_budget(start_server, model):
    plain = start_server(model, "--reasoning-parser", "none")
    assert "--reasoning-parser" in refusal(plain, {"thinking_token_budget": 5})
    wish = plain.post("/v1/messages", {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 5,
                                       "thinking": {"type": "enabled", "budget_tokens": 1024}})
    assert wish["stop_reason"] in ("max_tokens", "end_turn")
