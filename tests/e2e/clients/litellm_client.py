"""LiteLLM's client: prints as JSON what it got from the server at argv[1], whose model says what it is told up to
argv[2]. It reaches the server as one of OpenAI's kind, as vLLM, as Anthropic's and through Responses, and leaves
answers that would have argv[4] tokens. See test_litellm.py."""

import asyncio
import json
import sys

import litellm

from leaving import ends

url, stop, call, most = sys.argv[1:5]
litellm.suppress_debug_info = True
TOOLS = [{"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {}}}}]
OF_OPENAI = {"api_base": f"{url}/v1", "api_key": "none", "max_retries": 0}


def asked(text, model="openai/echo", **more):
    return {"model": model, "messages": [{"role": "user", "content": text + stop}], "stop": [stop], "max_tokens": 500,
            **OF_OPENAI, **more}


def joined(stream):
    return "".join(chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices)


found = {}
found["said"] = litellm.completion(**asked("Hello")).choices[0].message.content
found["streamed"] = joined(litellm.completion(**asked("Hello", stream=True)))
found["vllm"] = litellm.completion(**asked("Hello", model="hosted_vllm/echo")).choices[0].message.content
anthropic = asked("Hello", model="anthropic/echo", api_base=url)
del anthropic["max_retries"]
found["anthropic"] = litellm.completion(**anthropic).choices[0].message.content
found["anthropic_streamed"] = joined(litellm.completion(**anthropic, stream=True))
message = litellm.completion(**asked(f"<think>hm</think>I ask.\n{call}", tools=TOOLS)).choices[0].message
found["reasoning"] = message.reasoning_content
found["calls"] = [[one.function.name, json.loads(one.function.arguments)] for one in message.tool_calls]
pieces = [delta for chunk in litellm.completion(**asked(call, tools=TOOLS, stream=True)) if chunk.choices
          for delta in chunk.choices[0].delta.tool_calls or []]
found["streamed_calls"] = [["".join(piece.function.name or "" for piece in pieces),
                            json.loads("".join(piece.function.arguments or "" for piece in pieces))]]
responded = litellm.responses(model="openai/echo", input="Hello" + stop, max_output_tokens=500,
                              extra_body={"stop": [stop]}, **OF_OPENAI)
found["responded"] = "".join(part.text for item in responded.output if item.type == "message" for part in item.content)
found["completed"] = litellm.text_completion(model="text-completion-openai/echo", prompt="One two", max_tokens=3,
                                             api_base=f"{url}/v1", api_key="none").usage.completion_tokens
for name, more in (("unknown", {"model": "openai/other"}), ("bad", {"temperature": -1})):
    try:
        litellm.completion(**asked("x", **more))
    except Exception as error:  # its class is what is looked at
        found[name] = type(error).__name__
# Left after a token. LiteLLM keeps its connections: it is the streams that are closed.
endless = {**OF_OPENAI, "messages": [{"role": "user", "content": "word "}], "max_tokens": int(most), "stream": True}
found["left"], found["ended"] = [], []
for way in ({"model": "openai/echo"}, {"model": "hosted_vllm/echo"}, {"model": "anthropic/echo", "api_base": url}):
    with litellm.completion(**{**endless, **way}) as stream:
        found["left"].append(next(joined([chunk]) for chunk in stream if joined([chunk])))
    found["ended"].append(ends(url))


async def leave():
    async with await litellm.acompletion(model="openai/echo", **endless) as stream:
        async for chunk in stream:
            if joined([chunk]):
                found["left"].append(joined([chunk]))
                break
    found["ended"].append(await asyncio.to_thread(ends, url))


asyncio.run(leave())
print(json.dumps(found))
