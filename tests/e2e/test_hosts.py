"""One model over several hosts: network namespaces, each with an address and a name of its own, that
mpirun reaches through an agent as it would reach hosts through ssh."""

import contextlib
import functools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time

import late_link
import pytest
from conftest import PATIENCE_S, wait_until
from test_mpi import ENVIRONMENT, EXACT, IDS
from test_prefill_split import FLAGS as SPLIT_FLAGS
from test_prefill_split import MODEL, prompts

PORT = 8111  # free in a namespace of our own
# Prints every line of streams that follow one another, so that some stream is always in the middle.
CLIENT = f"""
import json, urllib.request
body = json.dumps({{"model": "preset:tiny", "prompt": "a", "max_tokens": 500, "ignore_eos": True,
                   "stream": True}}).encode()
while True:
    request = urllib.request.Request("http://127.0.0.1:{PORT}/v1/completions", body,
                                     {{"Content-Type": "application/json"}})
    for line in urllib.request.urlopen(request):
        print(line, flush=True)
"""

FETCH = f"""
import sys, urllib.request
body = sys.stdin.read()
request = urllib.request.Request("http://127.0.0.1:{PORT}" + sys.argv[1], None if body == "null" else body.encode(),
                                 {{"Content-Type": "application/json"}})
print(urllib.request.urlopen(request, timeout=110).read().decode())
"""


def may_make_namespaces():
    if os.geteuid() != 0 or not shutil.which("ip"):
        return False
    made = subprocess.run(["ip", "netns", "add", "pinion-try"], capture_output=True).returncode == 0
    subprocess.run(["ip", "netns", "del", "pinion-try"], capture_output=True)
    return made


# Links: tc's queues at the end of each host, in which what leaves it waits; or a relay of our own.
LINKS = {
    "0.1 ms, 1 Gbit/s": ["netem", "delay", "100us", "rate", "1gbit"],
    "1 ms, 1 Gbit/s": ["netem", "delay", "1ms", "rate", "1gbit"],
    "1 Gbit/s": ["tbf", "rate", "1gbit", "burst", "128kb", "latency", "100ms"],
    "0.1 ms, by a relay": 0.0001,
    "1 ms, by a relay": 0.001,
}


@functools.cache
def why_no_link(link):
    """Why this machine has no such link; empty: it has."""
    if isinstance(LINKS[link], float):
        return late_link.why_none()
    if not shutil.which("tc"):
        return "there is no tc (iproute2)"
    name = f"pinion-{os.getpid()}-try"
    subprocess.run(["ip", "netns", "add", name], check=True)
    tried = subprocess.run(["tc", "-n", name, "qdisc", "add", "dev", "lo", "root", *LINKS[link]], capture_output=True,
                           text=True)
    subprocess.run(["ip", "netns", "del", name], check=True)
    return tried.returncode and f"the kernel has no sch_{LINKS[link][0]}: {tried.stderr.strip()}"


pytestmark = pytest.mark.skipif(not may_make_namespaces(),
                                reason="hosts are network namespaces, which need root and iproute2")


class Hosts:
    """As many hosts on one network; host 1 is where mpirun runs."""

    def __init__(self, count, folder):
        self.names = [f"pin{os.getpid()}-{i}" for i in range(1, count + 1)]
        self.bridge = f"pb{os.getpid()}"  # with a number, at most 15 letters
        self.relay = None
        self.agent = folder / "agent.sh"
        self.agent.write_text('#!/bin/sh\nhost=${1##*.}; shift\n'
                              f'exec ip netns exec "pin{os.getpid()}-$host" unshare --uts '
                              f'sh -c "hostname host$host; $*"\n')
        self.agent.chmod(0o755)

    def port(self, host):
        """The end of the host's link at the bridge."""
        return f"{self.bridge}-{host}"

    def ip(self, *words):
        subprocess.run(["ip", *map(str, words)], check=True, capture_output=True)

    def up(self):
        self.ip("link", "add", self.bridge, "type", "bridge")
        self.ip("link", "set", self.bridge, "up")
        for i, name in enumerate(self.names, 1):
            self.ip("netns", "add", name)
            port = self.port(i)
            self.ip("link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", name)
            self.ip("link", "set", port, "master", self.bridge, "up")
            self.address(i)
            self.ip("-n", name, "link", "set", "lo", "up")

    def address(self, host):
        self.ip("-n", self.names[host - 1], "addr", "add", f"10.99.7.{host}/24", "dev", "eth0")
        self.ip("-n", self.names[host - 1], "link", "set", "eth0", "up")

    def down(self):
        for host, name in enumerate(self.names, 1):
            for pid in self.processes(host):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            # The namespace itself may go later, and would take its link's name until then.
            subprocess.run(["ip", "link", "del", self.port(host)], capture_output=True)
            subprocess.run(["ip", "netns", "del", name], capture_output=True)
        subprocess.run(["ip", "link", "del", self.bridge], capture_output=True)
        if self.relay:
            self.relay.close()

    def on(self, host, *command):
        """The words that run a command on a host."""
        return ["ip", "netns", "exec", self.names[host - 1], "unshare", "--uts", "sh", "-c",
                f'hostname host{host}; exec "$@"', "sh", *map(str, command)]

    def on_first(self, *command):
        return self.on(1, *command)

    def slow_down(self, link):
        """From now on every host's link is one of LINKS; a relay's is between two hosts."""
        if isinstance(LINKS[link], float):
            for host in (1, 2):
                self.ip("link", "del", self.port(host))
            self.relay = late_link.LateLink(self.names, LINKS[link])
            for host in (1, 2):
                self.address(host)
            return
        for name in self.names:
            subprocess.run(["tc", "-n", name, "qdisc", "add", "dev", "eth0", "root", *LINKS[link]], check=True)

    def sent_bytes(self, host):
        """The bytes that have left the host through its link."""
        shown = subprocess.run(["ip", "-n", self.names[host - 1], "-s", "-j", "link", "show", "eth0"], check=True,
                               capture_output=True, text=True).stdout
        return json.loads(shown)[0]["stats64"]["tx"]["bytes"]

    def mpirun(self, binary, *arguments, bind=("--bind-to", "none"), asks_after_s=2):
        """`asks_after_s`: how long mpirun hears nothing of a host before it asks whether the host is lost."""
        hosts = ",".join(f"10.99.7.{i}" for i in range(1, len(self.names) + 1))
        network = "10.99.7.0/24"
        return self.on_first(
            "mpirun", "-n", len(self.names), "--host", hosts, *bind,
            "--mca", "plm_rsh_agent", self.agent, "--mca", "oob_tcp_if_include", network,
            "--mca", "btl", "tcp,self", "--mca", "btl_tcp_if_include", network,
            # Without these, mpirun itself waits for a lost host's daemon for some eight minutes.
            "--mca", "oob_tcp_keepalive_time", asks_after_s, "--mca", "oob_tcp_keepalive_intvl", "1",
            "--mca", "oob_tcp_keepalive_probes", "3",
            binary, *arguments)

    def processes(self, host):
        """The ids of all that runs there."""
        listed = subprocess.run(["ip", "netns", "pids", self.names[host - 1]], capture_output=True,
                                text=True)
        return [int(pid) for pid in listed.stdout.split()]

    def part(self, *hosts):
        """From now on the network connects these with the others, but not with each other."""
        for host in hosts:
            subprocess.run(["bridge", "link", "set", "dev", self.port(host), "isolated", "on"], check=True)

    def cut(self, host):
        """From now on the network does not reach the host."""
        self.ip("-n", self.names[host - 1], "link", "set", "eth0", "down")

    def mend(self, host):
        self.ip("-n", self.names[host - 1], "link", "set", "eth0", "up")

    def fetch(self, host, path, body=None):
        """The answer of the server on a host there; CalledProcessError: none, or an error."""
        done = subprocess.run(self.on(host, sys.executable, "-c", FETCH, path), input=json.dumps(body), text=True,
                              check=True, capture_output=True, timeout=120)
        return done.stdout


def environment():
    return {**os.environ, **ENVIRONMENT, "OMP_NUM_THREADS": "1"}


@pytest.fixture
def hosts(tmp_path):
    made = []

    def make(count):
        made.append(Hosts(count, tmp_path))
        made[-1].up()
        return made[-1]

    yield make
    for one in made:
        one.down()


# Stages change no sum: over hosts, a pipeline computes what one rank does, to the bit.
@pytest.mark.parametrize("count, model, split", [
    (2, "llama", ["-tp", 2]), (2, "gemma3n", ["-tp", 2]), (3, "gptoss", ["-tp", 3]),
    (2, "gemma3n", ["-pp", 2]), (3, "qwen3.5-moe", ["-pp", 3]), (2, "gptoss", ["-pp", 2, "-tp", 2]),
    (3, "llama", ["-pp", 3, "-tp", 2]), (4, "deepseekv3", ["-pp", 2, "-tp", 2])])
def test_hosts_score_as_ranks_of_one_process(hosts, binary, pinion, data, tmp_path, count, model, split):
    assert_hosts_score_as_one(hosts(count), binary, pinion, data / "models" / model, tmp_path, split)


# Sums wait for the slowest term and stages for each other, however late a message comes.
@pytest.mark.parametrize("link", LINKS)
@pytest.mark.parametrize("model, split", [("llama", ["-tp", 2]), ("gemma3n", ["-pp", 2])])
def test_hosts_of_slow_links_score_as_ranks_of_one_process(hosts, binary, pinion, data, tmp_path, model, split, link):
    if why_no_link(link):
        pytest.skip(why_no_link(link))
    pair = hosts(2)
    pair.slow_down(link)
    before = [pair.sent_bytes(host) for host in (1, 2)]
    assert_hosts_score_as_one(pair, binary, pinion, data / "models" / model, tmp_path, split)
    assert all(pair.sent_bytes(host) - sent > 100_000 for host, sent in zip((1, 2), before)), "it carried what is summed"


def assert_hosts_score_as_one(several, binary, pinion, model, tmp_path, split):
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text("".join(json.dumps(line) + "\n" for line in IDS))
    command = ["score", model, "--input", prompts, *EXACT]
    tensor = split[split.index("-tp"):] if "-tp" in split else []
    one = pinion(*command, *tensor, "--logits", tmp_path / "one.safetensors", env=environment())
    assert one.returncode == 0, one.stderr
    many = subprocess.run(several.mpirun(binary, *command, *split, "--logits",
                                              tmp_path / "many.safetensors"),
                          capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=120,
                          env=environment())
    assert many.returncode == 0, many.stderr
    assert many.stdout == one.stdout
    assert (tmp_path / "many.safetensors").read_bytes() == (tmp_path / "one.safetensors").read_bytes()


# Open MPI alone would give each host's only process one core.
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one CPU is all that there is")
def test_a_host_computes_on_all_its_cpus(hosts, binary):
    def threads(bind):
        done = subprocess.run(pair.mpirun(binary, "bench", "preset:tiny", "-tp", 2, "--prompt-len", 16,
                                          "--output-len", 2, "--rounds", 1, "--json", bind=bind),
                              capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=120,
                              env={**os.environ, **ENVIRONMENT})
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)["threads"]

    pair = hosts(2)
    assert threads([]) == threads(["--bind-to", "none"]) == len(os.sched_getaffinity(0))
    assert threads(["--bind-to", "core"]) == 1, "asked for"


@pytest.fixture
def served(request, hosts, binary, tmp_path):
    """A server over two hosts, in the middle of a stream: (hosts, mpirun, client, log). A test may give another number of
    hosts, and arguments of Hosts.mpirun."""
    given = {"count": 2, **getattr(request, "param", {})}
    count = given.pop("count")
    pair = hosts(count)
    log = tmp_path / "log"
    with open(log, "wb") as output:
        server = subprocess.Popen(
            pair.mpirun(binary, "serve", "preset:tiny", "--port", PORT, "-tp", count, *EXACT, **given),
            stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, env=environment())
    client = None
    try:
        asks = pair.on_first(sys.executable, "-c", "import urllib.request as r; "
                             f"r.urlopen('http://127.0.0.1:{PORT}/health', timeout=5)")
        assert wait_until(lambda: server.poll() is not None or
                          subprocess.run(asks, capture_output=True).returncode == 0)
        assert server.poll() is None, log.read_text()
        client = subprocess.Popen(pair.on_first(sys.executable, "-c", CLIENT), text=True,
                                  stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE)
        assert "data:" in client.stdout.readline()  # tokens flow
        yield pair, server, client, log
    finally:
        for process in filter(None, (server, client)):
            process.kill()
            process.communicate()


class Since:
    """Seconds since it was made, but for those for which this process was held up, by the rule of the program's own
    watchers (SilenceWatch): what one of them was late does not count, and after two seconds it begins anew."""

    BEAT_S, ANEW_S = 0.05, 2

    def __init__(self):
        self.began = self.woke = time.monotonic()
        self.over = threading.Event()
        self.thread = threading.Thread(target=self._watch, daemon=True)
        self.thread.start()

    def _look(self):
        now = time.monotonic()
        asleep = now - self.woke
        self.began = now if asleep > self.ANEW_S else self.began + max(0, asleep - self.BEAT_S)
        self.woke = now

    def _watch(self):
        while not self.over.wait(self.BEAT_S):
            self._look()

    def seconds(self):
        return time.monotonic() - self.began

    def end(self):
        self.over.set()
        self.thread.join()
        self._look()
        return self.seconds()


# mpirun takes 3 to 4 s of them to end its processes, and on a busy machine was seen to take longer.
REQUEST_ENDS_S, MPIRUN_ENDS_S = 10, 14


def request_ends(served, since):
    """In time, and with an error. Returns what the client's stream said."""
    _, _, client, log = served
    stream = client.communicate(timeout=PATIENCE_S)[0]
    assert client.returncode != 0
    assert since.seconds() < REQUEST_ENDS_S, log.read_text()
    return stream


def everything_ends(served, since):
    """In time: the client with an error, mpirun with a code; and nothing is left on the host that was not lost.
    Returns what the server and the client's stream said."""
    pair, server, _, log = served
    stream = request_ends(served, since)
    assert server.wait(PATIENCE_S) != 0
    assert since.end() < MPIRUN_ENDS_S, log.read_text()
    assert wait_until(lambda: not pair.processes(1))
    return log.read_text(), stream


def test_a_broken_link_ends_everything(served):
    served[0].cut(2)
    said, _ = everything_ends(served, Since())
    # The first to notice says so: the other is ended by it, and may have no time to.
    assert "process 1 of the model gave no sign of life for 5 s" in said or "lost communication with a remote daemon" in said, said


# mpirun, which might be the first to notice, does not for ten minutes.
@pytest.mark.parametrize("served", [{"asks_after_s": 600}], indirect=True)
def test_a_broken_link_is_noticed_without_mpirun(served):
    served[0].cut(2)
    assert '"error"' in request_ends(served, Since())
    assert wait_until(lambda: "process 1 of the model gave no sign of life for 5 s" in served[3].read_text()), \
        served[3].read_text()


def test_a_process_that_stands_still_ends_everything(served):
    """mpirun's daemon on its host is well, and sees nothing amiss."""
    for pid in served[0].processes(2):
        with contextlib.suppress(OSError):
            if os.readlink(f"/proc/{pid}/exe").endswith("/pinion"):
                os.kill(pid, signal.SIGSTOP)
    said, stream = everything_ends(served, Since())
    assert '"error"' in stream
    assert "process 1 of the model gave no sign of life for 5 s" in said, said


# Process 0 hears both all the while.
@pytest.mark.parametrize("served", [{"count": 3}], indirect=True)
def test_a_broken_link_between_followers_ends_everything(served):
    served[0].part(2, 3)
    said, _ = everything_ends(served, Since())
    assert re.search("process [12] of the model gave no sign of life for 5 s", said), said


@contextlib.contextmanager
def serving_pair(pair, binary, model, tmp_path):
    """A server on host 1 that has its prompts computed by one on host 2."""
    flags = {1: ["--role", "decode", "--prefill-from", "10.99.7.2:9100"],
             2: ["--role", "prefill", "--prefill-listen", "10.99.7.2:9100"]}
    servers = []
    try:
        for host in (1, 2):
            with open(tmp_path / f"log{host}", "wb") as log:
                servers.append(subprocess.Popen(pair.on(host, binary, "serve", model, "--port", PORT, *flags[host],
                                                        *SPLIT_FLAGS),
                                                stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT))
        assert wait_until(lambda: prompts_peer(pair).get("up")), (tmp_path / "log1").read_text()
        yield
    finally:
        for server in servers:
            server.terminate()
        for server in servers:
            server.wait(PATIENCE_S)


def prompts_peer(pair):
    """Host 1's report of the engine that computes its prompts; none while it does not answer."""
    with contextlib.suppress(subprocess.CalledProcessError):
        return json.loads(pair.fetch(1, "/server_info"))["prefill"]["prompts_from"][0]
    return {}


def completion(prompt):
    return {"model": MODEL, "prompt": prompt, "max_tokens": 8, "temperature": 0}


def texts(reply):
    return [choice["text"] for choice in reply["choices"]]


@pytest.mark.parametrize("link", [None, *LINKS])
def test_prompts_that_another_host_computes_are_answered_as_by_one_engine(hosts, binary, start_server, data, tmp_path,
                                                                         link):
    if link and why_no_link(link):
        pytest.skip(why_no_link(link))
    model = data / "models/tiny-trained"
    pair = hosts(2)
    if link:
        pair.slow_down(link)
    asked = completion(prompts("hosts"))
    expected = texts(start_server(model, *SPLIT_FLAGS).post("/v1/completions", asked))
    with serving_pair(pair, binary, model, tmp_path):
        assert texts(json.loads(pair.fetch(1, "/v1/completions", asked))) == expected
        metrics = pair.fetch(1, "/metrics")
    taken = re.search(r'^pinion:transfer_tokens_total{[^}]*direction="taken"[^}]*} (\S+)$', metrics, re.M)
    assert float(taken[1]) > 0
    assert re.search(r"^pinion:transfer_failed_prompts_total(?:{[^}]*})? 0(?:\.0)?$", metrics, re.M)


def test_prompts_of_a_host_that_is_cut_off_are_computed_here_until_it_is_back(hosts, binary, start_server, data,
                                                                             tmp_path):
    model = data / "models/tiny-trained"
    pair = hosts(2)
    asked = completion(prompts("cut"))
    expected = texts(start_server(model, *SPLIT_FLAGS).post("/v1/completions", asked))
    with serving_pair(pair, binary, model, tmp_path):
        pair.cut(2)
        assert texts(json.loads(pair.fetch(1, "/v1/completions", asked))) == expected
        assert wait_until(lambda: prompts_peer(pair).get("up") is False)
        pair.mend(2)
        assert wait_until(lambda: prompts_peer(pair).get("up"))
