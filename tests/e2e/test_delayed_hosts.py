"""Two hosts whose link delays what it carries and has a rate (tc netem, which this machine's kernel may lack):
network namespaces of a virtual machine. How fast that is nobody knows, as it is emulated; but no message is faster than
its link."""

import glob
import itertools
import json
import os

import pytest
import virtual_machine
from test_mpi import ENVIRONMENT, EXACT, IDS

# {name: (seconds by which a frame is delayed, bits per second)}, the same in both directions.
LINKS = {
    "0.1 ms, 10 Gbit/s": (0.0001, 10_000_000_000),
    "1 ms, 1 Gbit/s": (0.001, 1_000_000_000),
    "20 ms, 50 Mbit/s": (0.02, 50_000_000),
}
MIB = 1 << 20
PLUGINS = "/usr/lib/*/openmpi/lib/openmpi3/*.so", "/usr/lib/*/pmix2/lib/pmix/*.so"
# The plugin of them whose libraries come along; others do if they need none beyond these.
PMIX = "/usr/lib/*/openmpi/lib/openmpi3/mca_pmix_ext3x.so"
TEXTS = "/etc/openmpi/*.conf", "/usr/share/openmpi/help-*.txt"

NETWORK = "10.99.7.0/24"
UP = """
for host in 1 2; do /usr/bin/ip netns add host$host; done
/usr/bin/ip link add eth0 netns host1 type veth peer name eth0 netns host2
for host in 1 2; do
  /usr/bin/ip -n host$host addr add 10.99.7.$host/24 dev eth0
  /usr/bin/ip -n host$host link set eth0 up
  /usr/bin/ip -n host$host link set lo up
done
"""
# The way from one host to another, as ssh would be.
AGENT = """#!/bin/sh
host=${1##*.}; shift
exec /usr/bin/ip netns exec host$host unshare --uts sh -c "hostname host$host; $*"
"""
# All is on one of the machine's CPUs, where MPI hands over the CPU while it waits: the one thread that emulates all
# CPUs gives a process that spins on another one its turn of 0.1 s.
MPIRUN = ("/usr/bin/ip netns exec host1 taskset 1 mpirun -n 2 --host 10.99.7.1,10.99.7.2 --bind-to none "
          f"--mca plm_rsh_agent /agent --mca oob_tcp_if_include {NETWORK} --mca btl tcp,self "
          f"--mca btl_tcp_if_include {NETWORK} --mca mpi_yield_when_idle 1")
VARIABLES = "export OMP_NUM_THREADS=1 " + " ".join(f"{name}={value}" for name, value in ENVIRONMENT.items())
KERNEL = " ".join(["--gemm-kernel scalar", *EXACT])
SCORE = f"pinion score /model --input /prompts.jsonl --logits /tmp/logits {KERNEL}"
DIGEST = "sha256sum /tmp/logits && rm /tmp/logits"
UPTIME = "cut -d ' ' -f 1 /proc/uptime"
# Prints /server_info of two hosts, once it tells of the steps of an answer.
SERVE = f"""pinion serve preset:tiny -tp 2 --port 8000 {KERNEL} > /tmp/log 2>&1 &
fetch() {{ /usr/bin/ip netns exec host1 wget -q -O - "$@"; }}
until fetch http://127.0.0.1:8000/health > /dev/null 2>&1; do
  kill -0 $! || {{ cat /tmp/log >&2; exit 1; }}
  sleep 1
done
fetch --header "Content-Type: application/json" --post-data '{{"model": "preset:tiny", "prompt": "a", "max_tokens": 5,
  "ignore_eos": true}}' http://127.0.0.1:8000/v1/completions > /dev/null || exit
until fetch http://127.0.0.1:8000/server_info > /tmp/info && grep -q '"decode_step":{{' /tmp/info; do sleep 1; done
kill $!; wait $!; cat /tmp/info && echo"""
# On a process or on two hosts; stages change no sum.
ONE = {"tp": f"{SCORE} -tp 2 && {DIGEST}", "pp": f"{SCORE} && {DIGEST}"}
TWO = {
    "tp": f"{SCORE} -tp 2 && {DIGEST}",
    "pp": f"{SCORE} -pp 2 && {DIGEST}",
    "bench": f"pinion bench preset:tiny -tp 2 --prompt-len 8 --output-len 5 --rounds 1 --json {KERNEL}",
    "serve": SERVE,
}
# The rest needs PINION_LINKS=1: mpirun and what it starts take some 7 s of a core each time.
USUAL = [("tp", "1 ms, 1 Gbit/s"), ("pp", "0.1 ms, 10 Gbit/s"), ("bench", "20 ms, 50 Mbit/s")]
ALL = os.environ.get("PINION_LINKS") == "1"
TIMEOUT_S = 580  # shorter than pytest's; all of it takes 200 s on two CPUs that are busy with other work
pytestmark = pytest.mark.timeout(600)


def on_hosts(kind, link):
    """Prints the time, what it does on two hosts, the time, and what has left host 1 through its end of the link."""
    delay_s, rate = LINKS[link]
    return f"""{VARIABLES}
for host in 1 2; do
  /usr/bin/tc -n host$host qdisc del dev eth0 root 2> /dev/null
  /usr/bin/tc -n host$host qdisc add dev eth0 root netem delay {delay_s * 1e6:.0f}us rate {rate}bit
done
{UPTIME}
{MPIRUN} {TWO[kind]} || exit
{UPTIME}
/usr/bin/tc -n host1 -s -j qdisc show dev eth0"""


def name_of(kind, link):
    return f"30-{kind}-{list(LINKS).index(link)}"


COMMANDS = {
    "10-up": UP,
    **{f"20-{kind}": f"{VARIABLES}; {command}" for kind, command in ONE.items()},
    **{name_of(*case): on_hosts(*case) for case in (itertools.product(TWO, LINKS) if ALL else USUAL)},
}


def cases(*kinds):
    heavy = pytest.mark.skipif(not ALL, reason="PINION_LINKS=1 runs it")
    return [pytest.param(case, marks=[] if case in USUAL else heavy, id=" over ".join(case))
            for case in itertools.product(kinds, LINKS)]


def open_mpi(binary):
    """Files of mpirun and of what the binary's MPI library loads."""
    files = virtual_machine.programs("mpirun", "orted")
    for path in binary, *glob.glob(PMIX):
        files |= virtual_machine.same_places(virtual_machine.libraries_of(path))
    for path in itertools.chain.from_iterable(map(glob.glob, PLUGINS)):
        if all(library.lstrip("/") in files for library in virtual_machine.libraries_of(path)):
            files |= virtual_machine.same_places([path])
    return files | virtual_machine.same_places(itertools.chain.from_iterable(map(glob.glob, TEXTS)))


@pytest.fixture(scope="module")
def ran(binary, data, tmp_path_factory):
    more = virtual_machine.modules("sch_netem", "veth") | virtual_machine.programs("ip", "tc") | open_mpi(binary)
    more["agent"] = 0o755, AGENT.encode()
    more["prompts.jsonl"] = 0o644, "".join(json.dumps(line) + "\n" for line in IDS).encode()
    for path in (data / "models/llama").iterdir():
        more[f"model/{path.name}"] = 0o644, path.read_bytes()
    return virtual_machine.run(binary, COMMANDS, tmp_path_factory.mktemp("machine"), more, timeout=TIMEOUT_S)


# However little of a busy machine the emulator gets: hosts that are slow still give signs of life, and leave together.
def lines_of(ran, name):
    status, told, errors = ran[name]
    assert status == 0, errors
    return told.splitlines()


def from_hosts(ran, case):
    """(lines that the command printed, seconds that it took, bytes that host 1 sent)."""
    begin, *lines, end, told = lines_of(ran, name_of(*case))
    (queue,) = json.loads(told)
    assert queue["kind"] == "netem"
    return lines, float(end) - float(begin), queue["bytes"]


@pytest.mark.parametrize("case", cases("tp", "pp"))
def test_hosts_of_a_delayed_link_score_as_one_process(ran, case):
    lines, _, sent_bytes = from_hosts(ran, case)
    assert lines == lines_of(ran, f"20-{case[0]}")
    assert len(lines) > len(IDS), "a line for each prompt, and the digest of the logits"
    assert sent_bytes > 100_000, "what is summed, or handed on"


@pytest.fixture(params=cases("bench", "serve"))
def measured(ran, request):
    """(seconds of delay, bits per second, seconds that everything took, figures of the exchange)."""
    lines, seconds, sent_bytes = from_hosts(ran, request.param)
    assert sent_bytes > 6 * MIB, "by which the link is measured"
    told = json.loads("\n".join(lines))
    exchange = told["exchange"] if "exchange" in told else {"link": told["link"], **told["link"]}
    return *LINKS[request.param[1]], seconds, exchange


def large_call_s(link):
    """The median call that exchanges 1 MiB, from which the bandwidth was computed; at least a small one's."""
    return link["call_s"] + (MIB / link["bytes_per_s"] if link["bytes_per_s"] else 0)


# A call ends when the other process's message is there, which was sent after the call before, in which that process
# waited for a message of ours: two calls in a row, with the moment between them, take two delays or more. So each pair
# of calls takes a delay a call, less half of that moment, and so does the median.
def test_no_call_is_measured_as_faster_than_the_link(measured):
    delay_s, rate, _, exchange = measured
    assert exchange["link"]["call_s"] > 0.9 * delay_s
    # A message beyond MPI's eager limit (64 KiB) goes only after the receiver has said that it is there.
    eager = 1 << 16
    assert large_call_s(exchange["link"]) > 0.9 * (2 * delay_s + (MIB - eager) * 8 / rate)


# Of 49 pairs of small calls in a row 25 take at least as long as their median, of which 13 have no call in common: 26
# calls. Of 5 pairs of large ones it is 3, of which 2 have none in common: 4 calls.
def test_the_calls_that_are_measured_fit_into_the_time_they_were_made_in(measured):
    *_, seconds, exchange = measured
    assert 25 * exchange["link"]["call_s"] + 3 * large_call_s(exchange["link"]) < seconds


# The order goes to the follower, two terms of each of two layers go to and fro, and the logits come back: of a step's
# messages, six wait for one another.
def test_a_step_is_neither_predicted_nor_measured_as_faster_than_its_messages(measured):
    delay_s, _, seconds, exchange = measured
    for kind in "prefill_step", "decode_step":
        step = exchange[kind]
        assert step["measured_s"] >= 6 * delay_s, kind
        assert step["delays"] == 6, kind
        assert step["predicted_s"] > 0.9 * step["delays"] * delay_s, kind
        assert step["steps"] * step["measured_s"] < seconds, kind
