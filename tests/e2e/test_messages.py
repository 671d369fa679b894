"""Anthropic's Messages, through the official client. The engine's stand-in answers with the prompt, which is here
the last message as it is: the tests decide what the model says."""

import shutil
import urllib.request

import anthropic
import pytest

from conftest import wait_until
from test_tools import CALL, CUT_AT, STOP

MOST = 400  # tokens: a second of the stand-in's

TOOLS = [{"name": "weather", "description": "d", "input_schema": {
    "type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}}}]
TEMPLATE = """{#- <tool_call> </think> -#}
{%- if messages[0].role == "system" %}{{- messages[0].content }}{% endif -%}
{%- if enable_thinking is defined and not enable_thinking %}{{- "unthinking " }}{% endif -%}
{{- messages[-1].content -}}"""


@pytest.fixture(scope="module")
def server(start_server, data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("messages") / "model"
    shutil.copytree(data / "models" / "tiny-trained", folder)
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    return start_server(folder, "--stand-in", "400", "--served-model-name", "echo", "--api-key", "secret")


def connect(server, key="secret"):
    return anthropic.Anthropic(base_url=server.url, api_key=key, max_retries=0, timeout=60)


@pytest.fixture(scope="module")
def client(server):
    return connect(server)


def asked(text, **more):
    return {"model": "echo", "max_tokens": 500, "stop_sequences": [STOP],
            "messages": [{"role": "user", "content": text + STOP}], **more}


def test_messages_have_blocks_of_the_models_words(client):
    message = client.messages.create(**asked(f"<think>hm</think>I ask.\n{CALL}", tools=TOOLS))
    thought, text, call = message.content
    assert (thought.type, thought.thinking) == ("thinking", "hm")
    assert (text.type, text.text) == ("text", "I ask.")
    assert (call.type, call.name, call.input) == ("tool_use", "weather", {"city": "Bern", "days": 2})
    assert message.stop_reason == "tool_use" and message.role == "assistant" and message.model == "echo"
    assert message.usage.input_tokens > 0 and message.usage.output_tokens > 0


def test_streams_put_together_are_the_same_message(client):
    body = asked(f"<think>hm</think>I ask.\n{CALL}{CALL}", tools=TOOLS)
    whole = client.messages.create(**body)
    with client.messages.stream(**body) as stream:
        types = [event.type for event in stream]
        streamed = stream.get_final_message()
    assert types[0] == "message_start" and types[-1] == "message_stop"
    assert [block.model_dump(exclude={"id", "signature", "parsed_output"}) for block in streamed.content] == [
        block.model_dump(exclude={"id", "signature", "parsed_output"}) for block in whole.content]
    assert streamed.stop_reason == whole.stop_reason == "tool_use"
    assert streamed.usage.output_tokens == whole.usage.output_tokens
    assert types.count("input_json") > 6, "the input comes as it is written"


def test_a_call_cut_by_max_tokens_is_a_call(client):
    body = asked(CALL, tools=TOOLS, max_tokens=CUT_AT)
    message = client.messages.create(**body)
    assert [block.type for block in message.content] == ["tool_use"] and message.stop_reason == "max_tokens"
    events = list(client.messages.create(**body, stream=True))
    pieces = [event.delta.partial_json for event in events if event.type == "content_block_delta"]
    assert '{"city": "Bern", "days": 2}'.startswith("".join(pieces)) and len(pieces) > 1
    assert message.content[0].input == {"INVALID_JSON": "".join(pieces)}, "nobody may take it for a whole call"
    assert [event.type for event in events[-3:]] == ["content_block_stop", "message_delta", "message_stop"]


def test_ends_are_named(client):
    stopped = client.messages.create(**asked("Hi"))
    assert (stopped.stop_reason, stopped.stop_sequence) == ("stop_sequence", STOP)
    assert stopped.content[0].text == "Hi"
    cut = client.messages.create(**asked("A long text", max_tokens=2))
    assert (cut.stop_reason, cut.stop_sequence, cut.usage.output_tokens) == ("max_tokens", None, 2)


def test_results_of_tools_reach_the_template(client):
    turns = [{"role": "user", "content": "weather?"},
             {"role": "assistant", "content": [
                 {"type": "tool_use", "id": "c1", "name": "weather", "input": {"city": "Bern"}}]},
             {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "rain" + STOP}]}]
    message = client.messages.create(**asked("", messages=turns, tools=TOOLS))
    assert message.content[0].text == "rain"


def test_thinking_can_be_turned_off(client):
    message = client.messages.create(**asked("Hi", thinking={"type": "disabled"}))
    assert message.content[0].text == "unthinking Hi"


def test_tokens_are_counted_as_they_are_computed(client):
    body = asked("How many?")
    counted = client.messages.count_tokens(model="echo", messages=body["messages"])
    usage = client.messages.create(**body).usage
    assert counted.input_tokens == usage.input_tokens + usage.cache_read_input_tokens


def test_claude_codes_requests_are_taken(client):
    """Its text beside the conversation: most of it is about the service; its first block differs in each request."""
    system = [{"type": "text", "text": "x-anthropic-billing-header: cc_version=2.1; cch=12345"},
              {"type": "text", "text": "You are Claude. ", "cache_control": {"type": "ephemeral"}}]
    edits = {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]}
    message = client.beta.messages.create(
        **asked("Hi"), system=system, thinking={"type": "adaptive"}, tools=TOOLS, metadata={"user_id": "u"},
        betas=["context-management-2025-06-27"], service_tier="auto", extra_body={
            "context_management": edits, "output_config": {"effort": "high"}, "inference_geo": "us", "speed": "fast"})
    assert message.content[0].text == "You are Claude. Hi"


def test_services_of_anthropics_servers_are_refused_with_another_way(client):
    for fields, why in (({"container": "c"}, "runs no code"), ({"thread": {"type": "create"}}, "all of its messages"),
                        ({"mcp_servers": [{"type": "url", "url": "http://x", "name": "x"}]}, "that you call yourself"),
                        ({"compaction": {"type": "x"}}, "sums up no conversation")):
        with pytest.raises(anthropic.BadRequestError, match=f"'{next(iter(fields))}' is not supported; .*{why}"):
            client.messages.create(**asked("Hi"), extra_body=fields)
    assert client.messages.create(**asked("Hi"), extra_body={"mcp_servers": []}).content[0].text == "Hi"


def test_errors_name_the_fields_that_were_sent(client):
    with pytest.raises(anthropic.BadRequestError, match="'output_config.format'"):
        client.messages.create(**asked("Hi"), output_config={"format": {"type": "json_schema", "schema": {"type": "no"}}})
    with pytest.raises(anthropic.BadRequestError, match="'stop_sequences' has 200 entries"):
        client.messages.create(**asked("Hi", stop_sequences=["x"] * 200))


def test_errors_have_anthropics_form(client, server):
    with pytest.raises(anthropic.AuthenticationError) as refused:
        connect(server, "wrong").messages.create(**asked("Hi"))
    assert refused.value.body["error"]["type"] == "authentication_error"
    with pytest.raises(anthropic.NotFoundError) as refused:
        client.messages.create(**asked("Hi", model="other"))
    assert refused.value.body["type"] == "error"
    assert refused.value.body["error"]["type"] == "not_found_error"
    with pytest.raises(anthropic.BadRequestError, match="tool_choice.*none of the tools"):
        client.messages.create(**asked("Hi", tools=TOOLS, tool_choice={"type": "tool", "name": "x"}))
    with pytest.raises(anthropic.BadRequestError, match="'colour' is not a field"):
        client.messages.create(**asked("Hi"), extra_body={"colour": "x"})


def metric(server, name):
    request = urllib.request.Request(f"{server.url}/metrics", headers={"x-api-key": "secret"})
    with urllib.request.urlopen(request, timeout=30) as answer:
        lines = answer.read().decode().splitlines()
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(name + "{"))


def test_a_client_that_leaves_ends_its_answer(client, server):
    before = metric(server, "vllm:generation_tokens_total")
    body = asked("", messages=[{"role": "user", "content": "word "}], stop_sequences=[], max_tokens=MOST)
    stream = client.messages.create(**body, extra_body={"ignore_eos": True}, stream=True)
    next(iter(stream))
    stream.close()
    assert wait_until(lambda: metric(server, "vllm:num_requests_running") == 0)
    assert metric(server, "vllm:generation_tokens_total") - before < MOST
