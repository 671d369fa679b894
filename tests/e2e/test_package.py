"""The Debian package in a clean Debian 12, as scripts/package --check makes it, and the image of
scripts/image."""

import json
import os
import pathlib
import shutil
import subprocess

import pytest

from conftest import Server
from test_install import ONE_CPU, SHORT_SWEEP

# The first test makes the root, which is debootstrap and apt.
pytestmark = pytest.mark.timeout(1800)

# Runs a command in the root, with the mounts that every Debian system has; they end with the command.
IN_ROOT = """#!/bin/sh
exec unshare --mount sh -ec '
for place in proc sys dev; do mount --rbind /$place "$0/$place"; done
exec chroot "$0" "$@"' {root} {command} "$@"
"""
ENVIRONMENT = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", "LC_ALL": "C.UTF-8",
               "DEBIAN_FRONTEND": "noninteractive"}


@pytest.fixture(scope="module")
def package():
    if "PINION_PACKAGE" not in os.environ:
        pytest.skip("takes minutes; scripts/package --check makes the package and tests it")
    return pathlib.Path(os.environ["PINION_PACKAGE"])


def wrapper(folder, root, command):
    """A program that runs `command` in the root."""
    path = folder / command.split()[0].split("/")[-1]
    path.write_text(IN_ROOT.format(root=root, command=command))
    path.chmod(0o755)
    return path


def install(root, package, folder):
    """Installs the package and its dependencies, without its recommendations."""
    shutil.copy(package, root / "root/pinion.deb")
    shell = wrapper(folder, root, "/bin/sh -c")
    for command in ("apt-get update", "apt-get install -y --no-install-recommends /root/pinion.deb"):
        done = subprocess.run([shell, command], capture_output=True, text=True, env=ENVIRONMENT,
                              stdin=subprocess.DEVNULL, check=False)
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]


@pytest.fixture(scope="module")
def root(request, top, tmp_path_factory):
    """The folder named by PINION_ROOT, which scripts/image unpacks; else a minimal Debian 12 of our own with
    the package."""
    if "PINION_ROOT" in os.environ:
        yield pathlib.Path(os.environ["PINION_ROOT"])
        return
    package = request.getfixturevalue("package")
    folder = tmp_path_factory.mktemp("clean")
    made = subprocess.run([top / "scripts/bookworm-root", folder / "root"], capture_output=True, text=True, check=False)
    if made.returncode != 0:
        pytest.skip(made.stderr.strip().splitlines()[-1].removeprefix("== "))
    install(folder / "root", package, folder)
    yield folder / "root"
    shutil.rmtree(folder / "root")


@pytest.fixture(scope="module")
def pinion_there(root, tmp_path_factory):
    return wrapper(tmp_path_factory.mktemp("there"), root, "/usr/bin/pinion")


@pytest.fixture(scope="module")
def run(pinion_there):
    """run("topo") -> standard output of the installed pinion, which must succeed."""

    def execute(*arguments):
        done = subprocess.run([pinion_there, *map(str, arguments)], capture_output=True, text=True,
                              env=ENVIRONMENT, stdin=subprocess.DEVNULL, timeout=600, check=False)
        assert done.returncode == 0, done.stderr[-2000:]
        return done.stdout

    return execute


def test_commands_run_without_anything_else_installed(run, version):
    assert run("--version") == f"pinion {version}\n"
    assert "nodes" in json.loads(run("topo", "--json"))
    assert json.loads(run("bench", "preset:tiny", "--rounds", 1, "--num-prompts", 1,
                          "--prompt-len", 8, "--output-len", 4, "--json"))


def test_server_renders_chat_templates_with_the_roots_python(pinion_there, root, data, tmp_path):
    shutil.copytree(data / "models/llama", root / "root/model")
    server = Server(pinion_there, tmp_path / "log", "/root/model", env=ENVIRONMENT)
    try:
        chat = server.post("/v1/chat/completions",
                           {"messages": [{"role": "user", "content": "x"}], "max_tokens": 4})
        completion = server.post("/v1/completions", {"prompt": "x", "max_tokens": 4})
    finally:
        server.stop()
    # The template puts more around the text than the text.
    assert chat["usage"]["prompt_tokens"] > completion["usage"]["prompt_tokens"]
    assert completion["usage"]["completion_tokens"] > 0


def test_sweep_leaves_a_report_with_charts(run, root):
    (root / "root/definition.json").write_text(json.dumps(SHORT_SWEEP))
    run("sweep", "preset:tiny", *ONE_CPU, "--def", "/root/definition.json", "--out", "/root/out")
    assert (root / "usr/share/pinion/reports/vega.min.js").read_text() in (root / "root/out/report.html").read_text()


def test_package_has_pages_completions_and_licences_and_a_stripped_binary(package, root):
    listed = subprocess.run(["dpkg-deb", "-c", package], capture_output=True, text=True, check=True).stdout
    for path in ("man/man1/pinion.1.gz", "man/man1/pinion-sweep.1.gz", "bash-completion/completions/pinion",
                 "zsh/vendor-completions/_pinion", "fish/vendor_completions.d/pinion.fish",
                 "doc/pinion/copyright", "doc/pinion/libraries/libsqlitecpp-dev", "pinion/profiles/sweep.schema.json"):
        assert f"./usr/share/{path}\n" in listed
        assert (root / "usr/share" / path).stat().st_size > 0
    sections = subprocess.run(["readelf", "-S", root / "usr/bin/pinion"], capture_output=True, text=True,
                              check=True).stdout
    assert ".text" in sections and ".debug_info" not in sections
