"""`pinion load` against a server with known service times that is none of ours: every metric is
computed again from the times of both sides."""

import json
import pathlib
import signal
import statistics
import subprocess
import sys

import pytest

from conftest import PATIENCE_S, free_port, wait_until

FIXED = pathlib.Path(__file__).with_name("fixed_server.py")
TTFT_MS, ITL_MS, TOKENS = 40, 8, 6


class FixedServer:
    def __init__(self, *flags):
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.process = subprocess.Popen(
            [sys.executable, str(FIXED), "--port", str(self.port), "--ttft-ms", str(TTFT_MS),
             "--itl-ms", str(ITL_MS), *map(str, flags)],
            stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        assert "port" in self.process.stderr.readline()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.communicate()


def check_formulas(result, open_loop, limit_ms):
    """Every number again, from the times of every request."""
    requests = result["pinion"]["requests"]
    since = "scheduled_s" if open_loop else "sent_s"
    ttft = [1e3 * (one["token_s"][0] - one[since]) for one in requests]
    e2el = [1e3 * (one["token_s"][-1] - one[since]) for one in requests]
    tpot = [1e3 * (one["token_s"][-1] - one["token_s"][0]) / (one["output_tokens"] - 1)
            for one in requests]
    itl = [1e3 * (b - a) for one in requests for a, b in zip(one["token_s"], one["token_s"][1:])]
    for name, values in (("ttft", ttft), ("e2el", e2el), ("tpot", tpot), ("itl", itl)):
        assert result[f"mean_{name}_ms"] == pytest.approx(statistics.fmean(values))
        assert result[f"median_{name}_ms"] == pytest.approx(statistics.median(values))
        assert result[f"std_{name}_ms"] == pytest.approx(statistics.pstdev(values))
        if len(values) >= 44:
            p90 = statistics.quantiles(values, n=10, method="inclusive")[-1]
            assert result[f"p90_{name}_ms"] == pytest.approx(p90)
        else:
            assert result[f"p90_{name}_ms"] is None
    window = max(one["token_s"][-1] for one in requests) - min(one[since] for one in requests)
    outputs = sum(one["output_tokens"] for one in requests)
    inputs = sum(one["prompt_tokens"] for one in requests)
    assert result["duration"] == pytest.approx(window)
    assert result["request_throughput"] == pytest.approx(len(requests) / window)
    assert result["output_throughput"] == pytest.approx(outputs / window)
    assert result["total_token_throughput"] == pytest.approx((inputs + outputs) / window)
    assert result["request_goodput"] == pytest.approx(sum(one <= limit_ms for one in ttft) / window)


CLOCK_S = 1e-6  # both sides read the same clock; times are written with so many digits


def no_later(earlier, later):
    """Whether each event comes no later than its consequence, whichever belongs to which."""
    assert len(earlier) == len(later)
    return all(a <= b + CLOCK_S for a, b in zip(sorted(earlier), sorted(later)))


def times_of(result, log):
    """The requests' times on the server's clock, and the server's own, the warm-up's left out."""
    start = result["pinion"]["start_monotonic_s"]
    requests = [{"sent": start + one["sent_s"], "read": [start + at for at in one["token_s"]]}
                for one in result["pinion"]["requests"]]
    return requests, [json.loads(line) for line in log.read_text().splitlines()][2:]


def tokens(answers, name):
    return [at for one in answers for at in one[name]]


@pytest.mark.parametrize("endpoint", ["completions", "chat"])
@pytest.mark.parametrize("arrivals", [("--max-concurrency", 3), ("--request-rate", 40)])
def test_metrics_are_those_of_the_server(pinion_json, tmp_path, endpoint, arrivals):
    limit_ms = 5 * TTFT_MS  # a slow answer takes 10 times as long
    log = tmp_path / "answers.log"
    with FixedServer("--log", log, "--slow-every", 4) as server:
        result = pinion_json("load", server.url, "--endpoint", endpoint, "--num-prompts", 12,
                             "--prompt-len", 30, "--output-len", TOKENS, "--slo-ttft",
                             f"{limit_ms}ms", "--detailed", "--json", *arrivals)
    check_formulas(result, "--request-rate" in arrivals, limit_ms)
    assert result["completed"] == 12 and result["failed"] == 0
    assert result["total_output_tokens"] == 12 * TOKENS
    assert result["total_input_tokens"] == 12 * 30  # as this server counts
    # Of requests 3 to 14, behind two of warm-up, three are slow: 4, 8 and 12.
    assert result["request_goodput"] <= result["request_throughput"] * 9 / 12 * (1 + 1e-9)
    # Nothing comes before its time, and nothing is read before it was sent.
    assert result["median_ttft_ms"] >= TTFT_MS
    assert result["median_e2el_ms"] >= TTFT_MS + (TOKENS - 1) * ITL_MS
    requests, answers = times_of(result, log)
    assert no_later([one["sent"] for one in requests], [one["start"] for one in answers])
    assert no_later(tokens(answers, "sending"), tokens(requests, "read"))


# One request at a time: each time of ours lies between two of the server's that cause it and follow
# from it, however slow the machine is.
@pytest.mark.parametrize("endpoint", ["completions", "chat"])
def test_times_lie_between_their_causes_and_consequences(pinion_json, tmp_path, endpoint):
    log = tmp_path / "answers.log"
    with FixedServer("--log", log) as server:
        result = pinion_json("load", server.url, "--endpoint", endpoint, "--num-prompts", 8,
                             "--output-len", TOKENS, "--max-concurrency", 1, "--detailed", "--json")
    requests, answers = times_of(result, log)
    requests.sort(key=lambda one: one["sent"])
    read_at_once = 0
    for at, (ours, theirs) in enumerate(zip(requests, answers, strict=True)):
        chain = [ours["sent"], theirs["start"], theirs["sending"][-1], ours["read"][-1]]
        chain += [one["sent"] for one in requests[at + 1:at + 2]]
        assert all(a <= b + CLOCK_S for a, b in zip(chain, chain[1:])), chain
        assert ours["read"] == sorted(ours["read"])
        assert all(a <= b + CLOCK_S for a, b in zip(theirs["sending"], ours["read"], strict=True))
        read_at_once += sum(read < following for read, following in zip(ours["read"], theirs["sending"][1:]))
    # Of 40 tokens that others follow, some are read before the next is sent: none would be if times
    # were taken when the answer ends.
    assert read_at_once > 0


def test_conversations_go_on_with_the_answer(pinion_json):
    with FixedServer() as server:
        result = pinion_json("load", server.url, "--endpoint", "chat", "--num-prompts", 2, "--turns",
                             3, "--prompt-len", 13, "--output-len", 4, "--json", "--detailed")
    requests = result["pinion"]["requests"]
    assert [one["turn"] for one in sorted(requests, key=lambda one: one["turn"])] == [0, 0, 1, 1, 2, 2]
    # The server counts 3 tokens and one a word: each turn adds its 10 words, and 4 of the answer.
    assert {(one["turn"], one["prompt_tokens"]) for one in requests} == {(0, 13), (1, 27), (2, 41)}


def test_waiting_for_a_place_counts_in_an_open_loop(pinion_json):
    with FixedServer("--slots", 1, "--gather", 4) as server:
        result = pinion_json("load", server.url, "--num-prompts", 4, "--output-len", 2,
                             "--request-rate", 1000, "--burstiness", "inf", "--json")
    # Four at once, which the server waits for, one after the other: the last one waits for three.
    assert result["mean_ttft_ms"] >= 2.5 * TTFT_MS
    assert result["max_concurrent_requests"] == 4


def test_failures_are_counted_and_named(pinion):
    with FixedServer("--fail-every", 4) as server:
        done = pinion("load", server.url, "--num-prompts", 6, "--output-len", 2,
                      "--max-concurrency", 1)
    assert done.returncode == 1
    assert "4 of 6 requests complete" in done.stdout
    assert "2 x  HTTP 503: out of order" in done.stdout


def test_a_refusal_is_one_line_however_long_it_is(pinion):
    with FixedServer("--fail-every", 4, "--refusal", "line\n\x1b[2J" + 1000 * "x") as server:
        done = pinion("load", server.url, "--num-prompts", 2, "--output-len", 2,
                      "--max-concurrency", 1)
    assert "1 x  HTTP 503: line  [2Jxxx" in done.stdout
    assert max(map(len, done.stdout.splitlines())) < 400


def test_an_answer_without_an_end_is_a_failure(pinion):
    # The requests of the warm-up ask for 4 tokens and get them.
    with FixedServer("--die-after", 4) as server:
        done = pinion("load", server.url, "--num-prompts", 3, "--output-len", 6)
    assert done.returncode == 1
    assert "0 of 3 requests complete" in done.stdout
    assert "3 x  the answer broke off: neither a finish_reason nor [DONE] came" in done.stdout


def test_duration_ends_the_sending(pinion_json):
    with FixedServer() as server:
        result = pinion_json("load", server.url, "--num-prompts", 1000, "--output-len", 2,
                             "--max-concurrency", 2, "--duration", "300ms", "--json")
    assert 0 < result["completed"] < 100


def test_no_time_at_all_is_one_request(pinion_json):
    with FixedServer() as server:
        result = pinion_json("load", server.url, "--num-prompts", 3, "--output-len", 2,
                             "--max-concurrency", 2, "--duration", 0, "--json")
    assert result["completed"] == 1


def test_an_interrupted_load_reports_its_measurements(spawn, tmp_path):
    log = tmp_path / "answers.log"
    with FixedServer("--log", log) as server:
        running = spawn("load", server.url, "--request-rate", 0.05, "--output-len", 2, "--json",
                        stdout=subprocess.PIPE)
        assert wait_until(lambda: log.read_text().count("\n") >= 2)  # the warm-up is over
        running.send_signal(signal.SIGINT)
        text, _ = running.communicate(timeout=PATIENCE_S)
    assert json.loads(text)["pinion"]["interrupted"]


def test_replays_a_trace_and_names_the_line_of_a_bad_one(pinion, pinion_json, tmp_path):
    trace = tmp_path / "trace.csv"
    trace.write_text("timestamp,input_length,output_length\n10,20,3\n10.2,30,2\n")
    with FixedServer() as server:
        result = pinion_json("load", server.url, "--trace", trace, "--json", "--detailed")
        assert [round(one["scheduled_s"], 3) for one in result["pinion"]["requests"]] == [0, 0.2]
        assert [one["prompt_tokens"] for one in result["pinion"]["requests"]] == [20, 30]
        assert [one["output_tokens"] for one in result["pinion"]["requests"]] == [3, 2]
        trace.write_text("timestamp,input_length,output_length\n10,20,many\n")
        done = pinion("load", server.url, "--trace", trace)
    assert done.returncode == 1
    assert f"{trace}, line 2: length 'many' is not a number" in done.stderr


@pytest.mark.parametrize("arguments, says", [
    (("ftp://x",), "http and https"),
    (("http://127.0.0.1:1", "--workload", "poems"), "chat, rag, code, summarise, batch"),
    (("http://127.0.0.1:1", "--request-rate", "0"), "requests/s"),
    (("http://127.0.0.1:1", "--prompt-len", "long"), "lognormal:256,0.5"),
    (("http://127.0.0.1:1", "--goodput", "fast:3"), "ttft:MS"),
    (("http://127.0.0.1:1", "--ramp-up-start-rps", "1"), "--ramp-up-end-rps"),
])
def test_bad_usage_says_the_way_out(pinion, arguments, says):
    done = pinion("load", *arguments)
    assert done.returncode == 2
    assert says in done.stderr and done.stderr.count("\n") == 1


def test_a_server_that_is_not_there_is_one_sentence(pinion):
    done = pinion("load", f"http://127.0.0.1:{free_port()}")
    assert done.returncode == 1
    assert "Connection refused" in done.stderr and done.stderr.count("\n") == 1


# Of the tokens of one answer: none that come in one piece are so far apart, all others are.
AT_ONCE = "0.0001ms"


def test_finds_the_highest_concurrency_that_meets_the_slo(pinion_json):
    with FixedServer("--knee", 5) as server:
        found = pinion_json("load", server.url, "--find", "concurrency", "--slo-tpot", AT_ONCE,
                            "--num-prompts", 24, "--output-len", 2, "--repeats", 2, "--json")
    assert (found["pass"]["load"], found["fail"]["load"]) == (5, 6)
    assert found["is_cliff"] and found["is_settled"]
    assert found["pass"]["share"] == 1 > found["fail"]["share"]
    assert found["pass"]["low"] <= found["pass"]["share"] <= found["pass"]["high"]


def test_finds_a_rate_between_one_that_passes_and_one_that_fails(pinion_json, tmp_path):
    """The first of three runs fails: the search halves the rate, then looks in between."""
    log, number = tmp_path / "answers.log", 12
    with FixedServer("--script", "011", "--run-length", number, "--log", log) as server:
        found = pinion_json("load", server.url, "--find", "rate", "--slo-tpot", AT_ONCE,
                            "--find-start", 80, "--num-prompts", number, "--output-len", 2,
                            "--burstiness", "inf", "--repeats", 1, "--resolution", 0.5, "--json")
    rates = [80, 40, (80 * 40) ** 0.5]
    assert [level["load"] for level in found["levels"]] == pytest.approx(sorted(rates))
    assert [level["share"] for level in found["levels"]] == [1, 1, 0]
    assert found["pass"]["load"] == pytest.approx(rates[2]) and found["fail"]["load"] == rates[0]
    # No request comes before its time, which counts from after the last token of the run before.
    answers = [json.loads(line) for line in log.read_text().splitlines()]
    answers.sort(key=lambda one: one["start"])
    assert len(answers) == 2 + 3 * number
    for run, rate in enumerate(rates):
        first = 2 + run * number
        before_s = max(one["sending"][-1] for one in answers[:first])
        last_s = answers[first + number - 1]["start"]
        assert last_s - before_s >= (number - 1) / rate - CLOCK_S


def test_a_search_needs_an_slo(pinion):
    with FixedServer() as server:
        done = pinion("load", server.url, "--find", "rate")
    assert done.returncode == 2 and "--slo-ttft" in done.stderr
