"""Two hosts whose link delays what it carries and has a rate (tc netem, which this machine's kernel may lack):
network namespaces of a virtual machine. How fast that is nobody knows, as it is emulated; but no message is faster than
its link."""

import glob
import itertools
import json

import pytest
import virtual_machine
from test_mpi import ENVIRONMENT, EXACT, IDS

# {name: (seconds by which a frame is delayed, bits per second)}, the same in both directions.
LINKS = {
    "0.1 ms, 10 Gbit/s": (0.0001, 10_000_000_000),
    "1 ms, 1 Gbit/s": (0.001, 1_000_000_000),
    "20 ms, 50 Mbit/s": (0.02, 50_000_000),
}
SPLITS = {"tp": "-tp 2", "pp": "-pp 2"}
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
# All is on one of the machine's CPUs, where MPI hands over the CPU while it waits: the one thread that emulates all CPUs
# lets a process that spins on another one have its turn of 0.1 s.
MPIRUN = ("/usr/bin/ip netns exec host1 taskset 1 mpirun -n 2 --host 10.99.7.1,10.99.7.2 --bind-to none --mca plm_rsh_agent /agent "
          f"--mca oob_tcp_if_include {NETWORK} --mca btl tcp,self --mca btl_tcp_if_include {NETWORK} "
          "--mca mpi_yield_when_idle 1")
VARIABLES = "export OMP_NUM_THREADS=1 " + " ".join(f"{name}={value}" for name, value in ENVIRONMENT.items())
SCORE = " ".join(["pinion score /model --input /prompts.jsonl --gemm-kernel scalar --logits /tmp/logits", *EXACT])
BENCH = " ".join(["pinion bench preset:tiny -tp 2 --prompt-len 8 --output-len 5 --rounds 1 --json --gemm-kernel scalar",
                  *EXACT])
DIGEST = "sha256sum < /tmp/logits"
UPTIME = "cut -d ' ' -f 1 /proc/uptime"


def on_hosts(link, command):
    """A process of the command on each host; the last line tells what has left host 1 through its end of the link."""
    delay_s, rate = LINKS[link]
    return f"""
for host in 1 2; do
  /usr/bin/tc -n host$host qdisc del dev eth0 root 2> /dev/null
  /usr/bin/tc -n host$host qdisc add dev eth0 root netem delay {delay_s * 1e6:.0f}us rate {rate}bit
done
{VARIABLES}
{MPIRUN} {command} || exit
{DIGEST if "--logits" in command else UPTIME}
/usr/bin/tc -n host1 -s -j qdisc show dev eth0"""


def name_of(kind, link):
    return f"30-{kind}-{list(LINKS).index(link)}"


SCORED = list(itertools.product(SPLITS, list(LINKS)[:2]))
MEASURED = list(LINKS)[1:]
COMMANDS = {
    "10-up": UP,
    "20-tp": f"{VARIABLES}; {SCORE} -tp 2 && {DIGEST}",
    "20-pp": f"{VARIABLES}; {SCORE} && {DIGEST}",  # stages change no sum
    **{name_of(split, link): on_hosts(link, f"{SCORE} {SPLITS[split]}") for split, link in SCORED},
    **{name_of("bench", link): f"{UPTIME}; {on_hosts(link, BENCH)}" for link in MEASURED},
}


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
    return virtual_machine.run(binary, COMMANDS, tmp_path_factory.mktemp("machine"), more)


def output(ran, name):
    status, told, errors = ran[name]
    assert status == 0, errors
    return told


def split_off_link(told):
    """What the commands printed, and what tc told of the link."""
    *lines, last = told.splitlines()
    (queue,) = json.loads(last)
    return lines, queue


@pytest.mark.parametrize("split, link", SCORED)
def test_hosts_of_a_delayed_link_score_as_one_process(ran, split, link):
    lines, queue = split_off_link(output(ran, name_of(split, link)))
    assert lines == output(ran, f"20-{split}").splitlines()
    assert len(lines) > len(IDS), "a line for each prompt, and the digest of the logits"
    assert queue["kind"] == "netem" and queue["bytes"] > 100_000, "it carried what is summed"


@pytest.fixture(params=MEASURED)
def measured(ran, request):
    """(delay, bits per second, seconds that everything took, figures of the exchange)."""
    lines, queue = split_off_link(output(ran, name_of("bench", request.param)))
    assert queue["kind"] == "netem" and queue["bytes"] > 6 << 20, "it carried what measures the link"
    begin, *document, end = lines
    return *LINKS[request.param], float(end) - float(begin), json.loads("\n".join(document))["exchange"]


MIB = 1 << 20


def large_call_s(link):
    """The median call that exchanges 1 MiB, from which the bandwidth was computed; 0: not longer than a small one."""
    return link["call_s"] + (MIB / link["bytes_per_s"] if link["bytes_per_s"] else 0)


# In a call each process waits for the other's message, which that one sent after the call before, when it had the first
# one's: two calls in a row take two delays, with the moment between them, and so at least half of all calls take one. That
# is what a median shows, less a part of that moment.
def test_no_call_is_measured_as_faster_than_the_link(measured):
    delay_s, rate, _, exchange = measured
    assert exchange["link"]["call_s"] > 0.9 * delay_s
    # What exceeds MPI's eager limit (64 KiB) goes only after the receiver has said that it is there.
    eager = 1 << 16
    assert large_call_s(exchange["link"]) > 0.9 * (2 * delay_s + (MIB - eager) * 8 / rate)


# At least 25 of 50 small calls take as long as their median, and 3 of 5 large ones.
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
        assert step["predicted_s"] > 0.9 * step["calls"] * delay_s, kind
        assert step["steps"] * step["measured_s"] < seconds, kind
