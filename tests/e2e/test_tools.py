"""Calls of tools and reasoning, through the official OpenAI client. The engine's stand-in answers with the
prompt, which is here the last message as it is: the tests decide what the model says."""

import json
import shutil

import openai
import pytest

from conftest import wait_until
from test_serve import metric

TOOLS = [{"type": "function", "function": {"name": name, "parameters": {
    "type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}}}}
    for name in ("weather", "time")]
CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Bern", "days": 2}}\n</tool_call>'
CUT_AT = 30  # tokens: within the arguments of CALL
STOP = "#END#"
MOST = 1800  # tokens of an answer that is left


@pytest.fixture(scope="module")
def echoing(data, tmp_path_factory):
    """A model whose prompts are the last message alone."""
    folder = tmp_path_factory.mktemp("echoing") / "model"
    shutil.copytree(data / "models" / "tiny-trained", folder)
    (folder / "chat_template.jinja").write_text(
        "{#- <tool_call> </think> -#}{{- messages[-1].content -}}")
    return folder


@pytest.fixture(scope="module")
def server(start_server, echoing):
    return start_server(echoing, "--stand-in", "5000", "--served-model-name", "echo")


@pytest.fixture(scope="module")
def client(server):
    return openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0, timeout=60)


def say(client, text, **more):
    return client.chat.completions.create(model="echo", messages=[{"role": "user", "content": text + STOP}],
                                          stop=[STOP], max_tokens=500, **more)


def test_calls_are_told_apart_from_the_text(client):
    (choice,) = say(client, f"I ask.\n{CALL}\n{CALL}", tools=TOOLS).choices
    assert choice.message.content == "I ask." and choice.finish_reason == "tool_calls"
    first, second = choice.message.tool_calls
    assert first.type == "function" and first.id != second.id
    assert first.function.name == "weather"
    assert json.loads(first.function.arguments) == {"city": "Bern", "days": 2}


def call_deltas(chunks):
    return [call for chunk in chunks if chunk.choices for call in chunk.choices[0].delta.tool_calls or []]


def check_deltas(deltas):
    """The first delta of each call has its name and no arguments, the others have arguments alone."""
    arguments = []
    for call in deltas:
        if call.index == len(arguments):
            assert call.id and call.type == "function" and call.function.name and call.function.arguments == ""
            arguments.append([])
        else:
            assert call.index == len(arguments) - 1 and call.id is call.type is call.function.name is None
            arguments[-1].append(call.function.arguments)
    return arguments


def test_streams_carry_the_same_calls(client):
    text = f"I ask.\n{CALL}\n{CALL}"
    chunks = list(say(client, text, tools=TOOLS, stream=True))
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == "I ask."
    deltas = call_deltas(chunks)
    whole = say(client, text, tools=TOOLS).choices[0].message.tool_calls
    pieces = check_deltas(deltas)
    assert ["".join(call) for call in pieces] == [call.function.arguments for call in whole]
    assert all(len(call) > 3 for call in pieces), "arguments come as they are written"
    assert [call.function.name for call in deltas if call.id] == ["weather", "weather"]
    assert len({call.id for call in deltas if call.id}) == 2
    assert chunks[-1].choices[0].finish_reason == "tool_calls"


def test_a_call_cut_by_max_tokens_has_cut_arguments(client):
    for stream in (False, True):
        done = client.chat.completions.create(model="echo", messages=[{"role": "user", "content": CALL}],
                                              tools=TOOLS, max_tokens=CUT_AT, stream=stream)
        if stream:
            chunks = list(done)
            reason = chunks[-1].choices[0].finish_reason
            (arguments,) = ["".join(call) for call in check_deltas(call_deltas(chunks))]
        else:
            reason = done.choices[0].finish_reason
            arguments = done.choices[0].message.tool_calls[0].function.arguments
        assert reason == "length" and arguments and '{"city": "Bern", "days": 2}'.startswith(arguments)


def test_the_clients_own_streaming_helper_puts_the_calls_together(client):
    with client.beta.chat.completions.stream(
            model="echo", messages=[{"role": "user", "content": CALL + STOP}], stop=[STOP],
            tools=TOOLS, max_tokens=500) as stream:
        for _ in stream:
            pass
        (call,) = stream.get_final_completion().choices[0].message.tool_calls
    assert call.function.name == "weather" and json.loads(call.function.arguments)["days"] == 2


def test_answers_without_tools_stay_text(client):
    for more in ({}, {"tools": TOOLS, "tool_choice": "none"}):
        (choice,) = say(client, CALL, **more).choices
        assert choice.message.content == CALL and choice.message.tool_calls is None
        assert choice.finish_reason == "stop"


def test_one_call_is_kept_if_no_more_are_wanted(client):
    (choice,) = say(client, CALL + CALL, tools=TOOLS, parallel_tool_calls=False).choices
    assert len(choice.message.tool_calls) == 1


def test_only_tools_that_are_allowed_are_shown_to_the_model(start_server, echoing, tmp_path):
    template = tmp_path / "names.jinja"
    template.write_text("{#- <tool_call> -#}{% for tool in tools %}{{ tool.function.name }} {% endfor %}" + STOP)
    server = start_server(echoing, "--stand-in", "5000", "--served-model-name", "echo", "--chat-template", template)
    client = openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0, timeout=60)

    def allow(*names):
        allowed = {"mode": "auto", "tools": [{"type": "function", "function": {"name": name}} for name in names]}
        return {"tools": TOOLS, "tool_choice": {"type": "allowed_tools", "allowed_tools": allowed}}
    for names in (["weather"], ["time"], ["weather", "time"]):
        assert say(client, "x", **allow(*names)).choices[0].message.content.split() == names
        chunks = say(client, "x", stream=True, **allow(*reversed(names)))
        assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks).split() == names
    with pytest.raises(openai.BadRequestError, match="'tide', which is none of the tools") as refused:
        say(client, "x", **allow("time", "tide"))
    assert refused.value.param == "tool_choice.allowed_tools.tools"


def test_calls_that_cannot_be_forced_are_refused_by_name(client):
    named = {"type": "function", "function": {"name": "tide"}}
    for choice, tools, why in (("always", TOOLS, "want"), (named, TOOLS, "none of the tools"),
                               ("required", [], "has no tools")):
        with pytest.raises(openai.BadRequestError, match=f"tool_choice.*{why}"):
            say(client, CALL, tools=tools, tool_choice=choice)


def test_reasoning_has_a_field_of_its_own(client):
    text = "<think>\nHm.\n</think>\n\nYes."
    message = say(client, text).choices[0].message
    assert message.content == "Yes."
    assert message.reasoning_content == message.reasoning == "Hm."
    deltas = [chunk.choices[0].delta for chunk in say(client, text, stream=True)]
    assert "".join(delta.content or "" for delta in deltas) == "Yes."
    assert "".join(getattr(delta, "reasoning_content", "") for delta in deltas) == "Hm."
    silent = say(client, text, extra_body={"include_reasoning": False}).choices[0].message
    assert silent.content == "Yes." and silent.reasoning_content is None


def test_a_thought_that_the_prompt_began_is_reasoning(client):
    # The prompt ends with the mark, and the answer begins with the prompt's first word.
    done = client.chat.completions.create(model="echo", max_tokens=500, stop=[STOP], messages=[
        {"role": "user", "content": f"Hm.</think>Yes.{STOP}<think>"}])
    assert done.choices[0].message.content == "Yes."
    assert done.choices[0].message.reasoning_content == "Hm."


def test_the_format_can_be_named_instead(start_server, echoing):
    named = start_server(echoing, "--stand-in", "5000", "--served-model-name", "echo",
                         "--tool-call-parser", "qwen3_coder")
    client = openai.OpenAI(base_url=f"{named.url}/v1", api_key="none", max_retries=0, timeout=60)
    text = ("<tool_call><function=weather><parameter=city>\n12\n</parameter>"
            "<parameter=days>\n3\n</parameter></function></tool_call>")
    (call,) = say(client, text, tools=TOOLS).choices[0].message.tool_calls
    assert json.loads(call.function.arguments) == {"city": "12", "days": 3}


def test_parsers_can_be_turned_off(start_server, echoing):
    plain = start_server(echoing, "--stand-in", "5000", "--served-model-name", "echo",
                         "--tool-call-parser", "none", "--reasoning-parser", "none")
    client = openai.OpenAI(base_url=f"{plain.url}/v1", api_key="none", max_retries=0, timeout=60)
    text = f"<think>Hm.</think>{CALL}"
    (choice,) = say(client, text, tools=TOOLS).choices
    assert choice.message.content == text and choice.message.tool_calls is None


def test_an_unknown_parser_is_refused(pinion, echoing):
    done = pinion("serve", echoing, "--tool-call-parser", "gpt")
    assert done.returncode == 2
    assert "--tool-call-parser is 'gpt', want one of auto, none, " in done.stderr


def test_a_stream_that_is_closed_ends_its_answer(start_server, echoing):
    server = start_server(echoing, "--stand-in", MOST // 60, "--served-model-name", "echo")  # it would take a minute
    client = openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0, timeout=60)
    stream = client.chat.completions.create(model="echo", messages=[{"role": "user", "content": "word "}], max_tokens=MOST,
                                            stream=True, extra_body={"ignore_eos": True})
    next(chunk for chunk in stream if chunk.choices and chunk.choices[0].delta.content)
    assert metric(server, "vllm:num_requests_running") == 1
    stream.close()
    assert wait_until(lambda: metric(server, "vllm:num_requests_running") == 0)
    assert 0 < metric(server, "vllm:generation_tokens_total") < MOST
