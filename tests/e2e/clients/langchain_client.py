"""LangChain's chat model and embeddings for OpenAI's API: prints as JSON what it got from the server at argv[1], whose
model says what it is told up to argv[2] and computes nothing, from the one at argv[3], which computes, and from the
embedder at argv[5], of the texts in argv[6]. It leaves answers that would have argv[7] tokens. See test_langchain.py."""

import asyncio
import json
import sys
from typing import Literal

import openai
import pydantic
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_openai import ChatOpenAI, OpenAI, OpenAIEmbeddings

from leaving import ends

told, stop, real, call, embedder, texts, most = sys.argv[1:8]


class weather(pydantic.BaseModel):  # noqa: N801: the tool's name
    """The forecast of the weather."""

    city: str
    days: int


class Answer(pydantic.BaseModel):
    """The text to be said."""

    model_config = pydantic.ConfigDict(extra="forbid")  # or the model, which is not a good one, adds fields without end
    word: Literal["yes", "no"]
    sure: bool


def chat(**more):
    return ChatOpenAI(model="echo", base_url=f"{told}/v1", api_key="none", max_retries=0, stop=[stop], max_tokens=500,
                      **more)


found = {}
found["said"] = chat().invoke("Hello" + stop).content
chunks = list(chat(stream_usage=True).stream("Hello" + stop))
found["streamed"] = "".join(chunk.content for chunk in chunks)
found["usage"] = [chunk.usage_metadata["output_tokens"] for chunk in chunks if chunk.usage_metadata]
bound = chat().bind_tools([weather])
found["calls"] = [[one["name"], one["args"]] for one in bound.invoke(call + stop).tool_calls]
put_together = None
for chunk in bound.stream(call + stop):
    put_together = chunk if put_together is None else put_together + chunk
found["streamed_calls"] = [[one["name"], one["args"]] for one in put_together.tool_calls]
asked = bound.invoke(call + stop)
found["after_tool"] = bound.invoke([HumanMessage("weather?"), AIMessage("", tool_calls=asked.tool_calls),
                                    ToolMessage("rain" + stop, tool_call_id=asked.tool_calls[0]["id"])]).content
responses = chat(use_responses_api=True, model_kwargs={"extra_body": {"stop": [stop]}})
responses.stop = None
found["responded"] = responses.invoke("Hello" + stop).text
found["batch"] = [message.content for message in chat().batch(["One" + stop, "Two" + stop])]
found["completed"] = OpenAI(model="echo", base_url=f"{told}/v1", api_key="none", max_tokens=3).invoke("One two") != ""
try:
    ChatOpenAI(model="other", base_url=f"{told}/v1", api_key="none", max_retries=0).invoke("x")
except openai.NotFoundError as error:
    found["error"] = error.code

# Left after a token. The clients are kept: it is their streams that are closed.
endless = ChatOpenAI(model="echo", base_url=f"{told}/v1", api_key="none", max_retries=0, max_tokens=int(most),
                     extra_body={"ignore_eos": True})
stream = endless.stream("word ")
found["left"] = [next(chunk.content for chunk in stream if chunk.content)]
stream.close()
found["ended"] = [ends(told)]


async def leave():
    stream = endless.astream("word ")
    async for chunk in stream:
        if chunk.content:
            found["left"].append(chunk.content)
            break
    await stream.aclose()
    found["ended"].append(await asyncio.to_thread(ends, told))


asyncio.run(leave())

computing = ChatOpenAI(model="tiny", base_url=f"{real}/v1", api_key="none", max_retries=0, max_tokens=200)
if real != "none":
    for method in ("json_schema", "function_calling"):
        answer = computing.with_structured_output(Answer, method=method).invoke("Say")
        found[method] = answer.model_dump()
# Without its own tokenizer, which it would fetch: the server cuts no text unless it is told to.
embeddings = {"model": "e", "base_url": f"{embedder}/v1", "api_key": "none", "max_retries": 0,
              "check_embedding_ctx_length": False}
found["embedded"] = OpenAIEmbeddings(**embeddings).embed_documents(json.loads(texts))
found["query"] = OpenAIEmbeddings(dimensions=16, **embeddings).embed_query(json.loads(texts)[0])
try:
    OpenAIEmbeddings(dimensions=65, **embeddings).embed_query("x")
except openai.BadRequestError as error:
    found["too_many"] = error.param
print(json.dumps(found))
