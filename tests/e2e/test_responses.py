"""OpenAI's Responses, through the official client. The engine's stand-in answers with the prompt, which is here the
last message as it is: the tests decide what the model says."""

import json
import pathlib
from typing import Literal

import openai
import pydantic
import pytest

from conftest import wait_until
from test_serve import metric
from test_tools import CALL, CUT_AT, STOP, echoing  # noqa: F401: a fixture

TOOLS = [{"type": "function", "name": name, "description": "d", "strict": False, "parameters": {
    "type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}}}
    for name in ("weather", "time")]
MOST = 400  # tokens: a second of the stand-in's


@pytest.fixture(scope="module")
def server(start_server, echoing):  # noqa: F811
    return start_server(echoing, "--stand-in", MOST, "--served-model-name", "echo")


@pytest.fixture(scope="module")
def client(server):
    return openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0, timeout=60)


def asked(text, **more):
    return {"model": "echo", "max_output_tokens": 500, "extra_body": {"stop": [STOP]}, "input": text + STOP, **more}


def test_items_are_the_models_words(client):
    response = client.responses.create(**asked(f"<think>hm</think>I ask.\n{CALL}", tools=TOOLS, instructions="Be."))
    thought, message, call = response.output
    assert (thought.type, thought.content[0].text, thought.summary) == ("reasoning", "hm", [])
    assert (message.type, message.content[0].text, message.status) == ("message", "I ask.", "completed")
    assert (call.type, call.name, json.loads(call.arguments)) == ("function_call", "weather",
                                                                  {"city": "Bern", "days": 2})
    assert len({thought.id, message.id, call.id, call.call_id, response.id}) == 5
    assert response.output_text == "I ask." and response.status == "completed" and response.error is None
    assert response.instructions == "Be." and response.tools[0].name == "weather" and response.store is False
    usage = response.usage
    assert 0 < usage.output_tokens_details.reasoning_tokens < usage.output_tokens
    assert usage.total_tokens == usage.input_tokens + usage.output_tokens


def test_every_answer_is_a_response_in_all_its_fields(client):
    """The client builds its types without looking; this one looks."""
    for body in (asked("Hi"), asked(f"<think>hm</think>I ask.{CALL}", tools=TOOLS),
                 asked("A long text", max_output_tokens=2)):
        raw = client.responses.with_raw_response.create(**body)
        openai.types.responses.Response.model_validate_json(raw.text)


# Fields that only OpenAI's own service has; a client that does not find them knows that they are not there.
NOT_HERE = {"access_programs", "image", "input_transformations", "moderation", "prompt_cache_diagnostics",
            "prompt_cache_options", "tool_usage"}


def test_settings_are_repeated_in_every_state(client):
    """Beside those that are checked elsewhere; the values are JSON's own, so that 0.7 is no 0.69999998."""
    settings = {
        "instructions": "Be.", "metadata": {"a": "b"}, "user": "u", "safety_identifier": "s", "prompt_cache_key": "k",
        "prompt_cache_retention": "24h", "max_tool_calls": 3, "parallel_tool_calls": False, "temperature": 0.7,
        "top_p": 0.9, "max_output_tokens": 4, "top_logprobs": 2, "tool_choice": "none",
        "text": {"format": {"type": "text"}, "verbosity": "low"}, "tools": [{"description": None, **TOOLS[0]}]}
    fixed = {"background": False, "conversation": None, "previous_response_id": None, "prompt": None, "store": False,
             "truncation": "disabled", "service_tier": "default", "frequency_penalty": 0.0, "presence_penalty": 0.5}
    body = {**asked("A long text"), **settings, "truncation": "auto", "store": True, "service_tier": "flex",
            "previous_response_id": None}
    body["extra_body"]["presence_penalty"] = 0.5
    whole = json.loads(client.responses.with_raw_response.create(**body).text)
    states = [event.response.model_dump() for event in client.responses.create(**body, stream=True)
              if hasattr(event, "response")]
    assert len(states) == 3
    for key, value in {**settings, **fixed}.items():
        assert whole[key] == value, key
        assert all(state[key] == value for state in states if key != "tools"), key
    assert all(state["tools"][0].items() >= settings["tools"][0].items() for state in states)
    assert set(openai.types.responses.Response.model_fields) - set(whole) == NOT_HERE


def test_streams_number_their_events_and_end_with_the_same_response(client):
    body = asked(f"<think>hm</think>I ask.\n{CALL}{CALL}", tools=TOOLS)
    whole = client.responses.create(**body)
    events = list(client.responses.create(**body, stream=True))
    assert [event.sequence_number for event in events] == list(range(len(events)))
    kinds = [event.type.removeprefix("response.") for event in events if not event.type.endswith(".delta")]
    assert kinds == ["created", "in_progress",
                     "output_item.added", "content_part.added", "reasoning_text.done", "content_part.done",
                     "output_item.done",
                     "output_item.added", "content_part.added", "output_text.done", "content_part.done",
                     "output_item.done",
                     *["output_item.added", "function_call_arguments.done", "output_item.done"] * 2, "completed"]
    adapter = pydantic.TypeAdapter(openai.types.responses.ResponseStreamEvent)
    for event in events:
        adapter.validate_python(event.model_dump(exclude_unset=True))
    assert "".join(event.delta for event in events if event.type == "response.output_text.delta") == "I ask."
    done = [event.item for event in events if event.type == "response.output_item.done"]
    last = events[-1].response
    assert last.output == done and last.usage == whole.usage

    def told(response):
        return [item.model_dump(exclude={"id", "call_id"}) for item in response.output]

    assert told(last) == told(whole)


def test_the_clients_own_streaming_helper_follows(client):
    with client.responses.stream(**asked(f"I ask.{CALL}", tools=TOOLS)) as stream:
        deltas = [event.delta for event in stream if event.type == "response.output_text.delta"]
        final = stream.get_final_response()
    assert "".join(deltas) == final.output_text == "I ask."
    assert final.output[1].name == "weather"


def test_arguments_come_as_they_are_written(client):
    events = list(client.responses.create(**asked(CALL, tools=TOOLS), stream=True))
    deltas = [event.delta for event in events if event.type == "response.function_call_arguments.delta"]
    assert len(deltas) > 3 and "".join(deltas) == events[-1].response.output[0].arguments
    body = asked(CALL, tools=TOOLS, max_output_tokens=CUT_AT)
    (cut,) = client.responses.create(**body).output
    assert cut.type == "function_call" and cut.status == "incomplete"
    assert '{"city": "Bern", "days": 2}'.startswith(cut.arguments)
    last = list(client.responses.create(**body, stream=True))[-1]
    assert last.type == "response.incomplete" and last.response.output[0].arguments == cut.arguments


def test_a_conversation_goes_on_with_the_items_of_the_answer(client):
    first = client.responses.create(**asked(f"<think>hm</think>I ask.\n{CALL}", tools=TOOLS))
    call = first.output[-1]
    items = [{"role": "user", "content": "weather?"}, *(item.model_dump() for item in first.output),
             {"type": "function_call_output", "call_id": call.call_id, "output": "rain" + STOP}]
    second = client.responses.create(**asked("", input=items, tools=TOOLS))
    assert second.output_text == "rain"


def test_an_answer_that_was_cut_is_incomplete(client):
    cut = client.responses.create(**asked("A long text", max_output_tokens=2))
    assert (cut.status, cut.incomplete_details.reason) == ("incomplete", "max_output_tokens")
    assert cut.output[-1].status == "incomplete" and cut.usage.output_tokens == 2
    last = list(client.responses.create(**asked("A long text", max_output_tokens=2), stream=True))[-1]
    assert (last.type, last.response.status) == ("response.incomplete", "incomplete")


def test_log_probabilities_come_with_the_text(client):
    body = asked("Hi", include=["message.output_text.logprobs"], top_logprobs=2)
    part = client.responses.create(**body).output[0].content[0]
    assert len(part.logprobs) > 0 and all(token.logprob <= 0 for token in part.logprobs)
    events = list(client.responses.create(**body, stream=True))
    (done,) = [event for event in events if event.type == "response.output_text.done"]
    told = [token for event in events if event.type == "response.output_text.delta" for token in event.logprobs]
    assert [token.token for token in told] == ["H", "i"], "those of the text; the others made the stop string"
    assert [token.token for token in done.logprobs][:2] == ["H", "i"]
    assert [token.token for token in done.logprobs] == [token.token for token in part.logprobs]


@pytest.fixture(scope="module")
def lenient(start_server, echoing):  # noqa: F811
    return start_server(echoing, "--stand-in", 5000, "--served-model-name", "echo", "--ignore-unknown-fields")


def test_tools_of_other_types_are_left_out_if_the_operator_says_so(lenient):
    """As Codex sends them."""
    client = openai.OpenAI(base_url=f"{lenient.url}/v1", api_key="none", max_retries=0, timeout=60)
    own = {"type": "function", "name": "weather", "parameters": {"type": "object", "properties": {}}, "strict": False}
    tools = [{"type": "web_search", "external_web_access": False}, own, {"type": "local_shell"}]
    response = client.responses.create(**asked(CALL, tools=tools, store=False, prompt_cache_key="k",
                                               include=["reasoning.encrypted_content"], parallel_tool_calls=False,
                                               reasoning={"effort": "medium", "summary": "auto"}))
    assert [item.type for item in response.output] == ["function_call"]
    assert [tool.name for tool in response.tools] == ["weather"], "it says which ones the model saw"
    assert metric(lenient, 'pinion:unknown_fields_total{model_name="echo",outcome="ignored"}') == 2


def test_errors_name_the_field(client):
    with pytest.raises(openai.BadRequestError, match="'previous_response_id' is not supported"):
        client.responses.create(**asked("Hi", previous_response_id="resp_1"))
    with pytest.raises(openai.BadRequestError, match="web_search.*want function"):
        client.responses.create(**asked("Hi", tools=[{"type": "web_search"}]))
    with pytest.raises(openai.BadRequestError, match="'tool_choice' names 'tide'"):
        client.responses.create(**asked("Hi", tools=TOOLS, tool_choice={"type": "function", "name": "tide"}))
    with pytest.raises(openai.BadRequestError, match="'metadata' has 1 as 'a', want a string"):
        client.responses.create(**asked("Hi", metadata={"a": 1}))
    with pytest.raises(openai.NotFoundError):
        client.responses.create(**asked("Hi", model="other"))
    with pytest.raises(openai.BadRequestError) as refused:
        client.responses.create(**asked("Hi", max_output_tokens=10**6))
    assert refused.value.param == "max_output_tokens" and refused.value.code == "context_length_exceeded"
    assert client.responses.create(**asked("Hi", store=True)).store is False, "nothing is stored, and it says so"


def test_a_client_that_leaves_ends_its_answer(client, server):
    before = metric(server, "vllm:generation_tokens_total")
    stream = client.responses.create(model="echo", input="word ", max_output_tokens=MOST, stream=True,
                                     extra_body={"ignore_eos": True})
    next(event for event in stream if event.type == "response.output_text.delta")
    stream.close()
    assert wait_until(lambda: metric(server, "vllm:num_requests_running") == 0)
    assert metric(server, "vllm:generation_tokens_total") - before < MOST


class Answer(pydantic.BaseModel):
    word: Literal["yes", "no"]
    sure: bool


@pytest.fixture(scope="module")
def real(start_server, binary, data):
    """A model that computes, whose answers a grammar can constrain."""
    if not (pathlib.Path(binary).parent / "grammar-env").exists():
        pytest.skip("llguidance is not installed by scripts/build")
    server = start_server(data / "models" / "tiny-trained", "--dtype", "float32", "--kv-cache-space", "64MiB",
                          "--served-model-name", "tiny")
    return openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0, timeout=60)


def test_answers_are_parsed_as_the_clients_types(real):
    parsed = real.responses.parse(model="tiny", input="Say", text_format=Answer, max_output_tokens=60, temperature=2)
    assert isinstance(parsed.output_parsed, Answer)
    with real.responses.stream(model="tiny", input="Say", text_format=Answer, max_output_tokens=60) as stream:
        for _ in stream:
            pass
        assert isinstance(stream.get_final_response().output_parsed, Answer)


def test_forced_calls_are_made(real):
    tools = [{"type": "function", "name": "set", "strict": True, "parameters": Answer.model_json_schema()}]
    for choice in ("required", {"type": "function", "name": "set"},
                   {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "set"}]}):
        response = real.responses.create(model="tiny", input="Say", tools=tools, tool_choice=choice,
                                         max_output_tokens=400, temperature=2, parallel_tool_calls=False)
        (call,) = response.output[:1]
        assert call.type == "function_call" and call.name == "set"
        Answer.model_validate_json(call.arguments)
