"""The rules of vLLM's own tests of its entry points for completions, chats and tokens, through the clients that they use:
behaviour, not wording. If Pinion refuses on purpose a request that vLLM answers, the case says so."""

import json
import pathlib

import openai
import pytest

from test_embed import ask

IDS = list(range(10, 18))
SAYING = "An apple a day, keeps"
MESSAGES = [{"role": "system", "content": "you are a helpful assistant"}, {"role": "user", "content": "what is 1+1?"}]
TOOLS = [{"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object", "properties": {}}}}]
VOCABULARY = 1024


@pytest.fixture(scope="module")
def server(start_server, data):
    return start_server(data / "models" / "tiny-trained", "--dtype", "float32", "--kv-cache-space", "64MiB",
                        "--served-model-name", "tiny")


@pytest.fixture(scope="module")
def client(server):
    return openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0, timeout=60)


@pytest.fixture(scope="module", params=["completions", "chat"])
def create(request, client):
    """Either endpoint: create(fields that both have)."""
    if request.param == "completions":
        return lambda **fields: client.completions.create(**{"model": "tiny", "prompt": "Hello, my name is",
                                                             "max_tokens": 5, "temperature": 0, **fields})
    return lambda **fields: client.chat.completions.create(**{"model": "tiny", "messages": MESSAGES,
                                                              "max_completion_tokens": 5, "temperature": 0, **fields})


def prompt_ids(answer):
    return answer.prompt_token_ids if hasattr(answer, "prompt_token_ids") else answer.choices[0].prompt_token_ids


def test_prompts_are_cut_on_the_side_that_is_asked_for(create):
    cut = {"return_token_ids": True, "truncate_prompt_tokens": 4}
    whole = prompt_ids(create(extra_body={"return_token_ids": True, "add_special_tokens": False}))
    for side, kept in (("left", whole[-4:]), ("right", whole[:4])):
        body = {**cut, "truncation_side": side, "add_special_tokens": False}
        assert prompt_ids(create(extra_body=body)) == kept


def test_unrequested_fields_are_none(client):
    text = client.completions.create(model="tiny", prompt=IDS, max_tokens=2)
    assert text.choices[0].logprobs is text.choices[0].prompt_logprobs is text.choices[0].token_ids is None
    chat = client.chat.completions.create(model="tiny", messages=MESSAGES, max_completion_tokens=2)
    assert chat.prompt_logprobs is chat.prompt_token_ids is chat.choices[0].token_ids is None
    message = chat.choices[0].message
    assert message.reasoning is message.reasoning_content is message.refusal is None


@pytest.mark.parametrize("options", [{"include_usage": None}, {"include_usage": True}, {"continuous_usage_stats": None},
                                     {"continuous_usage_stats": True}])
def test_options_of_streams_belong_to_streams(create, options):
    with pytest.raises(openai.BadRequestError):
        create(stream=False, stream_options=options)


def test_usage_comes_last_or_with_every_event(create):
    for options in ({}, {"include_usage": False}, {"include_usage": False, "continuous_usage_stats": True}):
        assert all(event.usage is None for event in create(stream=True, stream_options=options))
    *events, last = create(stream=True, stream_options={"include_usage": True})
    assert all(event.usage is None for event in events) and last.choices == []
    assert last.usage.total_tokens == last.usage.prompt_tokens + last.usage.completion_tokens
    *events, last = create(stream=True, stream_options={"include_usage": True, "continuous_usage_stats": True},
                           extra_body={"min_tokens": 5})
    counts = [event.usage.completion_tokens for event in events]
    assert counts == sorted(set(counts)) and counts[-1] == last.usage.completion_tokens == 5
    assert sum(event.choices[0].finish_reason is not None for event in events) == 1
    assert events[-1].choices[0].finish_reason == "length"


@pytest.mark.parametrize("fields, param", [
    ({"seed": -2 ** 63 - 1}, "seed"), ({"seed": 2 ** 63}, "seed"),
    ({"logit_bias": {str(VOCABULARY + 1): 1}}, "logit_bias"), ({"logit_bias": {"not_a_token_id": 50}}, "logit_bias"),
    ({"logit_bias": {"1": "not_a_number"}}, "logit_bias"),
    ({"extra_body": {"stop_token_ids": [VOCABULARY + 1]}}, "stop_token_ids"),
    ({"extra_body": {"stop_token_ids": [-1]}}, "stop_token_ids"),
    ({"extra_body": {"prompt_logprobs": -1}}, "prompt_logprobs"), ({"extra_body": {"cache_salt": ""}}, "cache_salt"),
    ({"extra_body": {"structured_outputs": {"regex": {"1": "Python"}}}}, "structured_outputs"),
    ({"extra_body": {"response_format": {"type": "json_schema"}}}, "response_format"),
    ({"stream": True, "extra_body": {"use_beam_search": True}}, "stream"),
    ({"extra_body": {"min_characters": 10}}, "min_characters"),  # which vLLM ignores: it might change the answer
])
def test_refusals_name_their_field(create, fields, param):
    with pytest.raises(openai.BadRequestError) as refused:
        create(**fields)
    assert refused.value.param == param and param in refused.value.message


def test_the_vocabularys_last_token_is_one_of_it(create):
    assert create(logit_bias={str(VOCABULARY - 1): 1}, extra_body={"stop_token_ids": [VOCABULARY - 1]}).choices


@pytest.mark.parametrize("prompt", [[-1], [[-1]], [999999], [], [[]]])
def test_values_that_are_not_prompts_are_refused(client, prompt):
    with pytest.raises(openai.BadRequestError) as refused:
        client.completions.create(model="tiny", prompt=prompt, max_tokens=5)
    assert refused.value.param == "prompt"


@pytest.mark.parametrize("body", ["this is not valid json{{{", ["not", "an", "object"], 42, None])
def test_bodies_that_are_not_objects_are_refused(server, body):
    status, answer = ask(server, "/v1/chat/completions", body)
    assert status == 400 and answer["error"]["type"] == "invalid_request_error"


def test_alternatives_are_as_many_as_are_asked_for(client):
    for count in (0, 5):
        text = client.completions.create(model="tiny", prompt=IDS, max_tokens=5, temperature=0, logprobs=count)
        assert max(count, 1) <= len(text.choices[0].logprobs.top_logprobs[0]) <= count + 1
        chat = client.chat.completions.create(model="tiny", messages=MESSAGES, max_completion_tokens=5, logprobs=True,
                                              top_logprobs=count)
        assert all(len(token.top_logprobs) == count for token in chat.choices[0].logprobs.content)
    for stream in (False, True):
        with pytest.raises(openai.BadRequestError):
            client.completions.create(model="tiny", prompt=IDS, logprobs=21, stream=stream)
        with pytest.raises(openai.BadRequestError):
            client.chat.completions.create(model="tiny", messages=MESSAGES, logprobs=True, top_logprobs=21, stream=stream)


def test_ids_of_echo_and_answer_are_those_of_their_log_probabilities(client):
    wishes = {"return_token_ids": True, "return_tokens_as_token_ids": True}
    (choice,) = client.completions.create(model="tiny", prompt="Hello, world!", max_tokens=5, temperature=0, echo=True,
                                          logprobs=1, extra_body={**wishes, "prompt_logprobs": 1}).choices
    told = [int(token.removeprefix("token_id:")) for token in choice.logprobs.tokens]
    assert told == choice.prompt_token_ids + choice.token_ids and len(choice.prompt_logprobs) == len(choice.prompt_token_ids)
    assert choice.logprobs.token_logprobs[0] is choice.logprobs.top_logprobs[0] is None
    first, *events = client.completions.create(model="tiny", prompt="Hello, world!", max_tokens=5, temperature=0,
                                               stream=True, logprobs=1, extra_body=wishes)
    assert first.choices[0].prompt_token_ids == choice.prompt_token_ids
    told = [int(token.removeprefix("token_id:")) for event in (first, *events) for token in event.choices[0].logprobs.tokens]
    assert told == [token for event in (first, *events) for token in event.choices[0].token_ids] == choice.token_ids


def test_only_the_first_event_of_a_chat_has_the_prompts_ids(client):
    first, *events = client.chat.completions.create(model="tiny", messages=MESSAGES, max_completion_tokens=5, stream=True,
                                                    extra_body={"return_token_ids": True})
    assert first.prompt_token_ids and all("prompt_token_ids" not in event.model_dump() for event in events)
    assert sum(len(event.choices[0].model_dump().get("token_ids") or []) for event in (first, *events)) == 5


@pytest.mark.parametrize("echo", [True, False])
def test_a_chat_echoes_the_message_that_it_goes_on_with(client, echo):
    messages = [*MESSAGES, {"role": "assistant", "content": SAYING}]
    body = {"echo": echo, "continue_final_message": True, "add_generation_prompt": False}
    (choice,) = client.chat.completions.create(model="tiny", messages=messages, max_completion_tokens=5,
                                               extra_body=body).choices
    assert choice.message.content.startswith(SAYING) == echo and choice.message.role == "assistant"
    with pytest.raises(openai.BadRequestError, match="cannot both be true"):
        client.chat.completions.create(model="tiny", messages=messages, extra_body={**body, "add_generation_prompt": True})


def test_messages_are_taken_as_clients_keep_them(client):
    """Fields of other makers, roles of one's own, contents in parts, and an answer's message with all of its members."""
    def said(*messages):
        chat = client.chat.completions.create(model="tiny", messages=list(messages), max_completion_tokens=5, temperature=0)
        return chat.choices[0].message

    first = said(*MESSAGES)
    assert said(*[{**message, "extra_field": "0"} for message in MESSAGES]).content == first.content
    for role in ("user", "my-custom-role"):
        in_parts = {"role": role, "content": [{"type": "text", "text": "what?"}]}
        assert said(in_parts).content == said({"role": role, "content": "what?"}).content
    plain = {"role": "assistant", "content": first.content}
    kept = {**first.model_dump(), "tool_calls": [], "audio": None}
    assert said(*MESSAGES, kept, MESSAGES[1]).content == said(*MESSAGES, plain, MESSAGES[1]).content


def test_a_tool_choice_of_null_is_as_good_as_absent(client):
    def said(**fields):
        return client.chat.completions.create(model="tiny", messages=MESSAGES, max_completion_tokens=5, temperature=0,
                                              **fields)

    for fields in ({"tools": TOOLS}, {}):
        without, null = said(**fields), said(**fields, extra_body={"tool_choice": None})
        assert null.choices == without.choices
    with pytest.raises(openai.BadRequestError, match="tool_choice"):
        client.chat.completions.create(model="tiny", messages=MESSAGES, tools=TOOLS, tool_choice="bogus")


def test_tokens_of_a_conversation_are_those_of_its_prompt(server):
    for tools in ({}, {"tools": TOOLS}):
        for add, goes_on in ((False, False), (True, False), (False, True)):
            messages = MESSAGES + [{"role": "assistant", "content": "Sure,"}] * goes_on
            body = {"messages": messages, "add_generation_prompt": add, "continue_final_message": goes_on, **tools}
            prompt = ask(server, "/apply-template", body)[1]["prompt"]
            for special in (False, True):
                _, chat = ask(server, "/tokenize", {**body, "add_special_tokens": special})
                _, text = ask(server, "/tokenize", {"prompt": prompt, "add_special_tokens": special})
                assert chat == text and chat["count"] == len(chat["tokens"]) and chat["token_strs"] is None
    status, _ = ask(server, "/tokenize", {"messages": MESSAGES, "add_generation_prompt": True,
                                          "continue_final_message": True})
    assert status == 400


def test_tokens_make_their_text_again(server):
    text = "This is a test prompt."
    _, told = ask(server, "/tokenize", {"model": "tiny", "prompt": text, "add_special_tokens": False,
                                        "return_token_strs": True})
    assert len(told["token_strs"]) == told["count"] and told["max_model_len"] == 2048
    assert ask(server, "/detokenize", {"model": "tiny", "tokens": told["tokens"]}) == (
        200, {"prompt": text, "content": text})  # vLLM's name, and llama-server's
    for tokens in ([99999], [-1], "x"):
        assert ask(server, "/detokenize", {"tokens": tokens})[0] == 400


def test_another_content_type_is_refused(client):
    with pytest.raises(openai.APIStatusError) as refused:
        client.chat.completions.create(model="tiny", messages=MESSAGES,
                                       extra_headers={"Content-Type": "application/x-www-form-urlencoded"})
    assert refused.value.status_code == 415


def test_constraints_that_cannot_be_are_refused(create, binary):
    if not (pathlib.Path(binary).parent / "grammar-env").exists():
        pytest.skip("llguidance is not installed by scripts/build")
    schema = {"type": "object", "properties": {"brand": {"type": "string"}, "foo": "bar"}}
    for constraint in ({"json": schema}, {"regex": "[.*"}, {"grammar": "root ::= missing"}, {"grammar": ""}):
        with pytest.raises(openai.BadRequestError) as refused:
            create(extra_body={"structured_outputs": constraint})
        assert "too costly" not in refused.value.message, json.dumps(constraint)
