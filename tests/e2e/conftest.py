"""Fixtures that end-to-end tests share: the built binary, the data, and servers that always end."""

import fcntl
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import time

import pytest

from longest_first import LongestFirst
from own_server import TOP, Server, free_port  # noqa: F401: tests import them from here

# A shell that starts the tests in the background has them ignore Ctrl-C, and all that they start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Files run side by side: threads that wait for each other sleep, as in the unit tests.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
# The machine's ceilings take 3 s of CPU time on a machine with a large cache, in every candidate's first trial and
# every bench: they are measured by the tests that look at them.
os.environ.setdefault("PINION_CEILINGS", "0")
WITH_CEILINGS = {"PINION_CEILINGS": "1"}


@pytest.hookimpl(optionalhook=True)  # xdist's, which may be switched off
def pytest_xdist_make_scheduler(config, log):
    """In the place of xdist's own; None leaves the others to it."""
    return LongestFirst(config, log) if config.getoption("dist") == "loadfile" else None


def ours(process):
    """Whether /proc/PID belongs to this worker: files run side by side, each worker one at a time."""
    worker = os.environ.get("PYTEST_XDIST_WORKER")
    if worker is None:
        return True
    return f"PYTEST_XDIST_WORKER={worker}".encode() in (process / "environ").read_bytes().split(b"\0")


@pytest.fixture(scope="session")
def binary():
    """The program under test; PINION_BINARY names another build of it."""
    path = pathlib.Path(os.environ.get("PINION_BINARY", TOP / "build" / "pinion"))
    assert path.exists(), f"{path} is missing: run scripts/build"
    return path


@pytest.fixture(scope="session")
def data():
    """tests/data: checkpoints with their goldens."""
    return TOP / "tests" / "data"


@pytest.fixture(scope="session")
def top():
    """The repository."""
    return TOP


@pytest.fixture(scope="session")
def version():
    """The version of the tree, from its one place."""
    return re.search(r"project\(pinion VERSION (\S+)", (TOP / "CMakeLists.txt").read_text())[1]


@pytest.fixture(scope="session")
def pinion(binary):
    """pinion("topo", "--json", env={...}) -> CompletedProcess with text output; never raises for an
    exit status."""

    def run(*arguments, env=None, timeout=120, **options):
        return subprocess.run([str(binary), *map(str, arguments)], capture_output=True, text=True,
                              stdin=subprocess.DEVNULL, timeout=timeout,
                              env={**os.environ, **(env or {})}, **options)

    return run


@pytest.fixture
def own_llguidance(binary, tmp_path):
    """(a copy of the binary with an llguidance of its own, what makes that one impossible to import from then on)"""
    packages = binary.parent / "grammar-env"
    if not packages.exists():
        pytest.skip("llguidance is not installed by scripts/build")
    copy = shutil.copytree(packages, tmp_path / "own/grammar-env")

    def spoil():
        for library in (copy / "llguidance").glob("*.so"):
            library.unlink()  # processes that have it go on
    return shutil.copy(binary, tmp_path / "own/pinion"), spoil


@pytest.fixture
def spawn(binary):
    """spawn("sweep", ..., stderr=log) -> Popen of the binary, which does not outlive the test, however
    that ends."""
    running = []

    def run(*arguments, **options):
        options = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL,
                   "stderr": subprocess.DEVNULL, "text": True, **options}
        running.append(subprocess.Popen([str(binary), *map(str, arguments)], **options))
        return running[-1]

    yield run
    for process in running:
        if process.poll() is None:
            process.kill()
        process.communicate()


@pytest.fixture(scope="session")
def pinion_json(pinion):
    """Like pinion, for commands that must succeed and print JSON alone."""

    def run(*arguments, **options):
        done = pinion(*arguments, **options)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return run


@pytest.fixture(scope="session")
def certificate(tmp_path_factory):
    """(certificate, key) of a server called localhost, signed by nobody else."""
    folder = tmp_path_factory.mktemp("tls")
    files = folder / "server.crt", folder / "server.key"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
                    "-nodes", "-days", "1", "-subj", "/CN=localhost", "-addext",
                    "subjectAltName=DNS:localhost", "-out", files[0], "-keyout", files[1]],
                   check=True, capture_output=True)
    return files


@pytest.fixture
def small_disk(tmp_path):
    """small_disk(bytes) -> (folder, prefix of commands that find a disk of that size there)"""

    def mount(size):
        folder = tmp_path / "disk"
        folder.mkdir()
        script = f'mount -t tmpfs -o size={size} none {folder} && "$@"; status=$?; ls -A {folder}; exit $status'
        prefix = ["unshare", "--mount", "sh", "-c", script, "sh"]
        if subprocess.run([*prefix, "true"], capture_output=True, check=False).returncode != 0:
            pytest.skip("this process may not mount file systems")
        return folder, prefix

    return mount


ISA_PATHS = ["scalar", "avx2", "avx2_vnni", "avx512", "avx512_vnni", "avx512_bf16", "amx"]


@pytest.fixture(scope="session")
def need_isa(pinion_json):
    """need_isa("amx") skips the test on a machine without that path."""
    usable = pinion_json("topo", "--json")["isa"]
    assert set(usable) <= set(ISA_PATHS), "a path that no test knows"

    def need(isa):
        if isa not in usable:
            pytest.skip(f"this machine has no {isa}, only {', '.join(usable)}")

    return need


REAL_SWEEP = {
    "axes": {"threads_bind": ["auto", "nobind", "4000"]},
    "workload": {"prompt_len": 16, "output_len": 8, "concurrency": [1, 2], "num_prompts": 2},
    "objectives": ["throughput", "latency", "balanced"],
    # All configurations in every round, however slow or noisy the machine is.
    "strategy": "grid",
    "rounds": 6,
    "budget": "20m",
    "seed": 1,
}


@pytest.fixture(scope="session")
def real_sweep(pinion, tmp_path_factory):
    """The folder of a finished sweep of the smallest preset, one for all workers. No test changes it."""
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent  # a worker's own folder is below the one of the whole run
    definition, out = folder / "definition.json", folder / "real-sweep"
    with open(folder / "real-sweep.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (out / "report.html").exists():
            definition.write_text(json.dumps(REAL_SWEEP))
            done = pinion("sweep", "preset:tiny", "--def", definition, "--out", out, timeout=280,
                          env=WITH_CEILINGS)
            assert done.returncode == 0, done.stderr[-4000:]
    return out


# How long to wait for what must come. It only bounds a failure, so it is far longer than the slowest
# machine needs.
PATIENCE_S = 60


def running(*words):
    """Processes of ours whose command line has all these words."""
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        try:
            line = (entry / "cmdline").read_bytes().split(b"\0") if entry.name.isdigit() else []
            if line and all(str(word).encode() in line for word in words) and ours(entry):
                found.append(int(entry.name))
        except OSError:
            continue  # it ended while we looked
    return found


def wait_until(condition):
    """Whether it came to hold."""
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.05)
    return False


@pytest.fixture(scope="module")
def start_server(binary, tmp_path_factory):
    """start_server(MODEL, FLAGS..., command="serve") -> Server; all are stopped after the module."""
    servers = []

    def start(target, *flags, **options):
        log = tmp_path_factory.mktemp("serve") / "server.log"
        servers.append(Server(binary, log, target, *flags, **options))
        return servers[-1]

    yield start
    for server in servers:
        server.stop()
