"""Calls of tools as each family of models writes them, through the official OpenAI client: whole and streamed. The engine's
stand-in answers with the prompt, which is here the last message as it is."""

import json

import openai
import pytest

from test_tools import TOOLS, call_deltas, check_deltas, echoing, say  # noqa: F401 (a fixture)

ARGUMENTS = {"city": "Bern", "days": 2}
JSON = json.dumps(ARGUMENTS)
# The text by which a family's model calls `weather`, by the parser's name: two calls for those whose format has several.
WRITTEN = {
    "llama3_json": '{"name": "weather", "parameters": ' + JSON + "}",
    "llama4_json": '{"name": "weather", "parameters": ' + JSON + "}",
    "llama4_pythonic": '[weather(city="Bern", days=2), weather(city="Bern", days=2)]',
    "pythonic": '[weather(city="Bern", days=2)]',
    "hermes": ('<tool_call>\n{"name": "weather", "arguments": ' + JSON + "}\n</tool_call>\n") * 2,
    "qwen3_coder": "<tool_call>\n<function=weather>\n<parameter=city>\nBern\n</parameter>\n<parameter=days>\n2\n</parameter>\n"
                   "</function>\n</tool_call>",
    "qwen3_xml": "<tool_call>\n<function=weather>\n<parameter=city>\nBern\n</parameter>\n<parameter=days>\n2\n</parameter>\n"
                 "</function>\n</tool_call>",
    "mistral": '[TOOL_CALLS][{"name": "weather", "arguments": ' + JSON + '}, {"name": "weather", "arguments": ' + JSON + "}]",
    "gemma4": '<|tool_call>call:weather{city:<|"|>Bern<|"|>,days:2}<tool_call|>',
    "functiongemma": "<start_function_call>call:weather{city:<escape>Bern<escape>,days:2}<end_function_call>",
    "glm45": "<tool_call>weather\n<arg_key>city</arg_key>\n<arg_value>Bern</arg_value>\n<arg_key>days</arg_key>\n"
             "<arg_value>2</arg_value>\n</tool_call>",
    "glm47": "<tool_call>weather<arg_key>city</arg_key><arg_value>Bern</arg_value><arg_key>days</arg_key>"
             "<arg_value>2</arg_value></tool_call>",
    "deepseek_v3": "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>weather\n```json\n" + JSON +
                   "\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
    "deepseek_v31": "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>weather<｜tool▁sep｜>" + JSON +
                    "<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
    "deepseek_v32": '<｜DSML｜function_calls>\n<｜DSML｜invoke name="weather">\n<｜DSML｜parameter name="city" string="true">Bern'
                    '</｜DSML｜parameter>\n<｜DSML｜parameter name="days" string="false">2</｜DSML｜parameter>\n</｜DSML｜invoke>\n'
                    "</｜DSML｜function_calls>",
    "granite": '<|tool_call|>[{"name": "weather", "arguments": ' + JSON + "}]",
    "granite4": '<tool_call>\n{"name": "weather", "arguments": ' + JSON + "}\n</tool_call>",
    "openai": "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>commentary to=functions.weather "
              "<|constrain|>json<|message|>" + JSON + "<|call|>",
}


@pytest.mark.parametrize("parser", WRITTEN)
def test_calls_are_read_whole_and_in_a_stream(start_server, echoing, parser):  # noqa: F811
    server = start_server(echoing, "--stand-in", 5000, "--served-model-name", "echo", "--tool-call-parser", parser,
                          "--reasoning-parser", "openai_gptoss" if parser == "openai" else "none")
    client = openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0, timeout=60)
    text = WRITTEN[parser]
    (choice,) = say(client, text, tools=TOOLS).choices
    calls = choice.message.tool_calls
    assert [call.function.name for call in calls] == ["weather"] * len(calls) and choice.finish_reason == "tool_calls"
    assert [json.loads(call.function.arguments) for call in calls] == [ARGUMENTS] * len(calls)
    assert len(calls) == max(1, text.count("Bern")) and not choice.message.content
    chunks = list(say(client, text, tools=TOOLS, stream=True))
    deltas = check_deltas(call_deltas(chunks))
    assert all(len(pieces) > 1 for pieces in deltas), "arguments come in pieces"
    streamed = ["".join(pieces) for pieces in deltas]
    assert streamed == [call.function.arguments for call in calls]
    assert chunks[-1].choices[0].finish_reason == "tool_calls"
    assert not "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
    if parser == "openai":
        assert choice.message.reasoning_content == "Hm."
    server.stop()


def test_every_format_that_can_be_named_is_here(pinion):
    done = pinion("serve", "preset:tiny", "--tool-call-parser", "no-such")
    named = done.stderr.split("want one of auto, none, ")[1].strip().split(", ")
    assert sorted(named) == sorted(WRITTEN)
