"""A quarter of a minute of soak.py, and that it notices what it is there to notice."""

import asyncio
import dataclasses

import pytest

import soak
from raw_client import Answer


def test_nothing_is_lost_or_kept(start_server, data):
    server = start_server(data / "models/tiny-trained", *soak.FLAGS, "-tp", "1")
    outcome = asyncio.run(soak.soak(server, 15))
    assert not outcome.failures, outcome.report()
    assert outcome.tally.ends["killed engines"] == 3
    assert outcome.tally.ends[200] > 0 and outcome.tally.ends["left"] > 0
    assert 'engine_restarts_total{model_name="soaked"} 3' in server.get("/metrics")


PROCESS = soak.ProcessCount(100 << 20, 30, 6, 5)
BEFORE = soak.Census(PROCESS, PROCESS, soak.AT_REST)


def test_a_process_may_be_as_before_or_smaller():
    less = soak.ProcessCount(90 << 20, 29, 5, 4)
    assert soak.compare(BEFORE, soak.Census(less, less, soak.AT_REST)) == []


def test_an_engine_in_anothers_place_has_to_grow_again_and_nothing_else_is_forgiven():
    more = soak.Census(soak.ProcessCount(120 << 20, 31, 6, 5), soak.ProcessCount(120 << 20, 31, 6, 5), soak.AT_REST)
    again = soak.compare(soak.with_engine_of(more, BEFORE), more)
    assert len(again) == 3 and not any("engine process grew" in sentence for sentence in again)
    grown = soak.Census(PROCESS, soak.ProcessCount(123 << 20, 30, 6, 5), soak.AT_REST)
    assert len(soak.compare(soak.with_engine_of(more, BEFORE), grown)) == 1


@pytest.mark.parametrize("field, value", [("rss_bytes", 107 << 20), ("descriptors", 31), ("threads", 7), ("children", 6)])
@pytest.mark.parametrize("process", ["front", "engine"])
def test_memory_that_a_process_keeps_is_noticed(process, field, value):
    after = dataclasses.replace(BEFORE, **{process: dataclasses.replace(PROCESS, **{field: value})})
    failures = soak.compare(BEFORE, after)
    assert len(failures) == 1 and failures[0].startswith(f"the {process} process")


@pytest.mark.parametrize("name", soak.AT_REST)
def test_memory_that_the_server_keeps_is_noticed(name):
    after = dataclasses.replace(BEFORE, kept={**soak.AT_REST, name: 7})
    assert soak.compare(BEFORE, after) == [f"{name} is 7, want {soak.AT_REST[name]}"]


STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
WHOLE = STREAM + b'12\r\ndata: {"id":"a"}\n\n\r\ne\r\ndata: [DONE]\n\n\r\n0\r\n\r\n'
FAILED = STREAM + b'13\r\ndata: {"error":{}}\n\n\r\ne\r\ndata: [DONE]\n\n\r\n0\r\n\r\n'


@pytest.mark.parametrize("text, end", [
    (WHOLE, 200),
    (FAILED, "error event"),
    (b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 2\r\n\r\n{}", 503),
    (b"", "failed"),                                         # closed without an answer
    (b"HTTP/1.1 500 Oops\r\nContent-Length: 2\r\n\r\n{}", "failed"),
    (b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n{}", "failed"),  # cut
    (WHOLE[:-5], "failed"),                                  # its last chunk is missing
    (WHOLE.replace(b"e\r\ndata: [DONE]\n\n\r\n", b""), "failed"),  # an end without [DONE]
])
def test_every_end_of_a_request_is_judged(text, end):
    tally = soak.Tally()
    tally.judge("a request", Answer(text))
    assert tally.ends == {end: 1}
    assert len(tally.failures) == (end == "failed")
