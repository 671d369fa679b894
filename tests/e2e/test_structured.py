"""Constrained output, through the official clients: the model is random, so whatever holds, the grammar did."""

import contextlib
import json
import os
import pathlib
import re
import signal
import subprocess
import time

import anthropic
import jsonschema
import openai
import pydantic
import pytest

from conftest import wait_until
from test_tools import call_deltas, check_deltas

SCHEMA = {"type": "object", "additionalProperties": False, "required": ["name", "age", "tags"],
          "properties": {"name": {"type": "string", "maxLength": 8}, "age": {"type": "integer", "maximum": 120},
                         "tags": {"type": "array", "items": {"enum": ["red", "blue"]}, "maxItems": 2}}}
TOOLS = [{"type": "function", "function": {"name": name, "parameters": {
    "type": "object", "additionalProperties": False, "required": ["days"],
    "properties": {"days": {"$ref": "#/$defs/Days"}}, "$defs": {"Days": {"enum": [1, 2, 3]}}}}}
    for name in ("weather", "time")]


CALL_TAG = {"type": "structural_tag", "format": {
    "type": "triggered_tags", "triggers": ["<f="], "at_least_one": True, "stop_after_first": True, "tags": [
        {"type": "tag", "begin": "<f=x>", "content": {"type": "json_schema", "json_schema": {"type": "boolean"}},
         "end": "</f>"}]}}


@pytest.fixture(scope="module")
def server(start_server, binary, data):
    if not (pathlib.Path(binary).parent / "grammar-env").exists():
        pytest.skip("llguidance is not installed by scripts/build")
    return start_server(data / "models/tiny-trained", "--served-model-name", "tiny", "--max-model-len", "1024",
                        "--tool-call-parser", "hermes")


@pytest.fixture(scope="module")
def client(server):
    return openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0, timeout=120)


def chat(client, **more):
    options = {"temperature": 2, "max_tokens": 400, "messages": [{"role": "user", "content": "Say it."}], **more}
    return client.chat.completions.create(model="tiny", **options)


def test_json_validates_at_any_temperature(client):
    answer = chat(client, n=4, response_format={"type": "json_schema",
                                                "json_schema": {"name": "person", "schema": SCHEMA}})
    for choice in answer.choices:
        assert choice.finish_reason == "stop"
        jsonschema.validate(json.loads(choice.message.content), SCHEMA)


def test_any_json_object_parses(client):
    choice = chat(client, temperature=0, response_format={"type": "json_object"}).choices[0]
    assert choice.message.content.startswith("{")
    if choice.finish_reason == "stop":
        assert isinstance(json.loads(choice.message.content), dict)


class Person(pydantic.BaseModel):
    age: int
    likes: list[bool]


def test_the_clients_own_parser_gets_the_requested_type(client):
    parsed = client.chat.completions.parse(model="tiny", temperature=0, max_tokens=700, response_format=Person,
                                           messages=[{"role": "user", "content": "Who?"}]).choices[0]
    if parsed.finish_reason == "stop":
        assert isinstance(parsed.message.parsed, Person)
    assert parsed.message.content.startswith('{"age": ')


@pytest.mark.parametrize("fields, rule", [
    ({"guided_regex": "[0-9]{2}-[a-c]{1,9}"}, "[0-9]{2}-[a-c]{1,9}"),
    ({"guided_choice": ["red", "green"]}, "red|green"),
    ({"guided_grammar": 'root ::= "x" [0-9] "y"'}, "x[0-9]y"),
    ({"guided_json": {"enum": [7, "eight"]}}, '7|"eight"'),
    ({"structured_outputs": {"regex": "ab{3}"}}, "ab{3}"),
    ({"structured_outputs": {"choice": ["one", "two"]}}, "one|two"),
    ({"structured_outputs": {"json": {"const": None}}}, "null"),
    ({"structured_outputs": {"grammar": 'start: "q" /[a-b]/'}}, "q[ab]"),
    ({"response_format": CALL_TAG}, "<f=x>(true|false)</f>"),
    ({"response_format": {"type": "json_object", "schema": {"enum": [7, "eight"]}}}, '7|"eight"'),
    ({"structured_outputs": {"structural_tag": json.dumps(CALL_TAG)}}, "<f=x>(true|false)</f>"),
])
def test_vllms_fields_hold_for_both_endpoints(client, fields, rule):
    assert re.fullmatch(rule, chat(client, extra_body=fields).choices[0].message.content)
    text = client.completions.create(model="tiny", prompt="Say", max_tokens=200, temperature=2, seed=3,
                                     extra_body={**fields, "ignore_eos": True, "min_tokens": 20})
    assert re.fullmatch(rule, text.choices[0].text) and text.choices[0].finish_reason == "stop"


def test_streams_are_constrained_as_well(client):
    chunks = list(chat(client, stream=True, extra_body={"guided_choice": ["alpha beta", "gamma"]}))
    assert "".join(c.choices[0].delta.content or "" for c in chunks) in ("alpha beta", "gamma")
    assert chunks[-1].choices[0].finish_reason == "stop"


@pytest.mark.parametrize("fields, why", [
    ({"guided_regex": "("}, "guided_regex.*not supported"),
    ({"guided_json": {"type": "nothing"}}, "guided_json"),
    ({"guided_regex": "(([a-z]{1,60}){1,60}){1,60}"}, "too costly"),
    ({"guided_choice": []}, "0 choices"),
    ({"structured_outputs": {"grammar": 'root ::= missing'}}, "cannot be read: Rule 'missing' not found"),
    ({"guided_choice": ["a"], "guided_regex": "a"}, "both constrain"),
    ({"guided_json": '{"enum": ["\\ud83d"]}'}, "guided_json.*half of a surrogate pair"),
    ({"response_format": {"type": "json_object", "schema": "{"}}, "response_format"),
    ({"response_format": {"type": "structural_tag", "format": {"type": "token", "token": 3}}}, "the part 'token'"),
    ({"structured_outputs": {"whitespace_pattern": "x"}}, "whitespace_pattern"),
    ({"response_format": {"type": "xml"}}, "response_format"),
])
def test_grammars_that_cannot_be_followed_are_refused_at_once(client, fields, why):
    with pytest.raises(openai.BadRequestError, match=why):
        chat(client, extra_body=fields)


FIRM = {"type": "object", "additionalProperties": False, "required": ["name_of_the_customer", "to_be_delivered_by_express"],
        "properties": {"name_of_the_customer": {"enum": ["Ann", "Bob"]}, "to_be_delivered_by_express": {"type": "boolean"}}}


@pytest.mark.parametrize("limits", [{}, {"stop": ["delivered"]}, {"max_tokens": 20},
                                    {"frequency_penalty": 1.5, "extra_body": {"repetition_penalty": 1.3}}])
def test_tokens_without_a_choice_are_tokens_like_others(client, limits):
    """With log-probabilities they are computed one by one."""
    asked = {"seed": 7, "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": FIRM}}, **limits}
    whole, one_by_one = chat(client, **asked), chat(client, logprobs=True, **asked)
    streamed = list(chat(client, stream=True, stream_options={"include_usage": True}, **asked))
    text = whole.choices[0].message.content
    assert text == one_by_one.choices[0].message.content
    assert text == "".join(chunk.choices[0].delta.content or "" for chunk in streamed if chunk.choices)
    assert whole.choices[0].finish_reason == one_by_one.choices[0].finish_reason
    assert whole.usage == one_by_one.usage == streamed[-1].usage
    if "stop" in limits:
        assert text.endswith('"to_be_')


def test_a_required_call_is_made(client):
    choice = chat(client, tools=TOOLS, tool_choice="required", parallel_tool_calls=False).choices[0]
    (call,) = choice.message.tool_calls
    assert call.function.name in ("weather", "time") and choice.finish_reason == "tool_calls"
    assert json.loads(call.function.arguments)["days"] in (1, 2, 3)
    assert not choice.message.content


def test_a_call_of_an_allowed_tool_is_made(client):
    allowed = {"mode": "required", "tools": [{"type": "function", "function": {"name": "time"}}]}
    choice = chat(client, tools=TOOLS, tool_choice={"type": "allowed_tools", "allowed_tools": allowed},
                  parallel_tool_calls=False).choices[0]
    assert [call.function.name for call in choice.message.tool_calls] == ["time"]


def test_a_named_call_is_made_in_streams_too(client):
    named = {"type": "function", "function": {"name": "time"}}
    chunks = list(chat(client, tools=TOOLS, tool_choice=named, stream=True))
    first, *rest = call_deltas(chunks)
    (pieces,) = check_deltas([first, *rest])
    assert first.function.name == "time" and json.loads("".join(pieces))["days"] in (1, 2, 3)
    assert len(pieces) > 2 and chunks[-1].choices[0].finish_reason == "tool_calls"


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "time"}}])
def test_a_forced_call_cut_by_max_tokens_is_a_call(client, choice):
    more = {"tools": TOOLS, "tool_choice": choice, "temperature": 0}
    whole = chat(client, **more).choices[0].message.tool_calls[0].function
    for limit in range(4, 40):
        cut = chat(client, **more, max_tokens=limit).choices[0]
        calls = cut.message.tool_calls
        if cut.finish_reason != "length" or not calls or not calls[0].function.arguments:
            continue
        chunks = list(chat(client, **more, max_tokens=limit, stream=True))
        (pieces,) = check_deltas(call_deltas(chunks))
        (call,) = calls
        assert call.function.name == whole.name and whole.arguments.startswith(call.function.arguments)
        assert "".join(pieces) == call.function.arguments and not cut.message.content
        assert chunks[-1].choices[0].finish_reason == "length"
        return
    pytest.fail("no limit cut the call's arguments")


def test_messages_force_calls_as_well(server):
    client = anthropic.Anthropic(base_url=server.url, api_key="none", max_retries=0)
    tools = [{"name": "weather", "input_schema": TOOLS[0]["function"]["parameters"]}]
    for choice in ({"type": "any", "disable_parallel_tool_use": True}, {"type": "tool", "name": "weather"}):
        answer = client.messages.create(model="tiny", max_tokens=300, tools=tools, tool_choice=choice,
                                        messages=[{"role": "user", "content": "x"}])
        (block,) = answer.content
        assert block.type == "tool_use" and block.name == "weather" and block.input["days"] in (1, 2, 3)
        assert answer.stop_reason == "tool_use"


def helpers_of_engine(server):
    listed = subprocess.run(["ps", "-e", "-o", "pid=,ppid=,args="], capture_output=True, text=True, check=True)
    rows = [line.split(None, 2) for line in listed.stdout.splitlines()]
    engines = {pid for pid, parent, _ in rows if int(parent) == server.process.pid}
    return [int(pid) for pid, parent, args in rows if parent in engines and args.endswith("grammar-helper")]


def error_of_answer_without_helper(client, server):
    """The error that ends the stream of an answer whose helper is killed at its first text; None if the answer was complete
    before."""
    (helper,) = helpers_of_engine(server)
    error = None
    try:
        for chunk in chat(client, stream=True, max_tokens=900, extra_body={"guided_regex": "[a-z]{3000}"}):
            if chunk.choices[0].delta.content:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(helper, signal.SIGKILL)
    except openai.APIError as ended:
        error = str(ended)
    assert client.completions.create(model="tiny", prompt="Say", max_tokens=5).choices[0].text
    assert wait_until(lambda: helper not in helpers_of_engine(server))
    return error


def test_a_dead_helper_ends_its_answers_alone(client, server):
    """In a stream: the error comes as its last event. A machine that computes the whole answer before the client reads its
    first text is asked again."""
    error, deadline = None, time.monotonic() + 60
    while error is None:
        assert time.monotonic() < deadline, "every answer was complete before its helper was dead"
        assert chat(client, extra_body={"guided_choice": ["a"]}).choices[0].message.content == "a"
        error = error_of_answer_without_helper(client, server)
    assert "follows grammars ended" in error
    assert chat(client, extra_body={"guided_choice": ["b"]}).choices[0].message.content == "b"
