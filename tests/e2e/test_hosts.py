"""One model over several hosts: network namespaces, each with an address and a name of its own, that
mpirun reaches through an agent as it would reach hosts through ssh."""

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys

import pytest
from conftest import PATIENCE_S, wait_until
from test_mpi import ENVIRONMENT, EXACT, IDS

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


def may_make_namespaces():
    if os.geteuid() != 0 or not shutil.which("ip"):
        return False
    made = subprocess.run(["ip", "netns", "add", "pinion-try"], capture_output=True).returncode == 0
    subprocess.run(["ip", "netns", "del", "pinion-try"], capture_output=True)
    return made


pytestmark = pytest.mark.skipif(not may_make_namespaces(),
                                reason="hosts are network namespaces, which need root and iproute2")


class Hosts:
    """As many hosts on one network; host 1 is where mpirun runs."""

    def __init__(self, count, folder):
        self.names = [f"pin{os.getpid()}-{i}" for i in range(1, count + 1)]
        self.bridge = f"pb{os.getpid()}"  # with a number, at most 15 letters
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
            self.ip("-n", name, "addr", "add", f"10.99.7.{i}/24", "dev", "eth0")
            self.ip("-n", name, "link", "set", "eth0", "up")
            self.ip("-n", name, "link", "set", "lo", "up")

    def down(self):
        for host, name in enumerate(self.names, 1):
            for pid in self.processes(host):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            # The namespace itself may go later, and would take its link's name until then.
            subprocess.run(["ip", "link", "del", self.port(host)], capture_output=True)
            subprocess.run(["ip", "netns", "del", name], capture_output=True)
        subprocess.run(["ip", "link", "del", self.bridge], capture_output=True)

    def on_first(self, *command):
        """The words that run a command on host 1."""
        return ["ip", "netns", "exec", self.names[0], "unshare", "--uts", "sh", "-c",
                'hostname host1; exec "$@"', "sh", *map(str, command)]

    def mpirun(self, binary, *arguments, bind=("--bind-to", "none")):
        hosts = ",".join(f"10.99.7.{i}" for i in range(1, len(self.names) + 1))
        network = "10.99.7.0/24"
        return self.on_first(
            "mpirun", "-n", len(self.names), "--host", hosts, *bind,
            "--mca", "plm_rsh_agent", self.agent, "--mca", "oob_tcp_if_include", network,
            "--mca", "btl", "tcp,self", "--mca", "btl_tcp_if_include", network,
            # Without these, mpirun itself waits for a lost host's daemon for some eight minutes.
            "--mca", "oob_tcp_keepalive_time", "2", "--mca", "oob_tcp_keepalive_intvl", "1",
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
    (2, "gemma3n", ["-pp", 2]), (3, "qwen3.5-moe", ["-pp", 3]), (4, "deepseekv3", ["-pp", 2, "-tp", 2])])
def test_hosts_score_as_ranks_of_one_process(hosts, binary, pinion, data, tmp_path, count, model, split):
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text("".join(json.dumps(line) + "\n" for line in IDS))
    command = ["score", data / "models" / model, "--input", prompts, *EXACT]
    tensor = split[split.index("-tp"):] if "-tp" in split else []
    one = pinion(*command, *tensor, "--logits", tmp_path / "one.safetensors", env=environment())
    assert one.returncode == 0, one.stderr
    many = subprocess.run(hosts(count).mpirun(binary, *command, *split, "--logits",
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
    """A server over two hosts, or as many as the test says, in the middle of a stream: (hosts, mpirun,
    client, log)."""
    count = getattr(request, "param", 2)
    pair = hosts(count)
    log = tmp_path / "log"
    with open(log, "wb") as output:
        server = subprocess.Popen(
            pair.mpirun(binary, "serve", "preset:tiny", "--port", PORT, "-tp", count, *EXACT),
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


def everything_ends(served):
    """mpirun with a code, the client with an error, and nothing is left on the host that was not lost.
    Returns what the server and the client's stream said."""
    pair, server, client, log = served
    assert server.wait(PATIENCE_S) != 0
    stream = client.communicate(timeout=PATIENCE_S)[0]
    assert client.returncode != 0
    assert wait_until(lambda: not pair.processes(1))
    return log.read_text(), stream


def test_a_broken_link_ends_everything(served):
    served[0].cut(2)
    said, _ = everything_ends(served)  # mpirun may be the first to notice, and leaves no time for more
    assert "gave no sign of life" in said or "lost communication with a remote daemon" in said, said


def test_a_process_that_stands_still_ends_everything(served):
    """mpirun's daemon on its host is well, and sees nothing amiss."""
    for pid in served[0].processes(2):
        with contextlib.suppress(OSError):
            if os.readlink(f"/proc/{pid}/exe").endswith("/pinion"):
                os.kill(pid, signal.SIGSTOP)
    said, stream = everything_ends(served)
    assert '"error"' in stream
    assert "process 1 of the model gave no sign of life for 6 s" in said, said


# Process 0 hears both all the while.
@pytest.mark.parametrize("served", [3], indirect=True)
def test_a_broken_link_between_followers_ends_everything(served):
    served[0].part(2, 3)
    said, _ = everything_ends(served)
    assert re.search("process [12] of the model gave no sign of life for 6 s", said), said
