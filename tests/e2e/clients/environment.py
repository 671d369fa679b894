"""Clients as their users install them: each in an environment of its own below build/clients, of the packages that
NAME.txt (pip) or NAME/package.json (npm) beside this file pins. Most are heavy, so that only PINION_CLIENTS=1 runs them:

    PINION_CLIENTS=1 build/venv/bin/python -m pytest tests/e2e/clients -q
"""

import json
import os
import pathlib
import shutil
import subprocess

import pytest

from conftest import TOP

HERE = pathlib.Path(__file__).resolve().parent
FOLDER = TOP / "build" / "clients"
MODEL = TOP / "tests/data/models/tiny-trained"
INSTALLING_S = 1800
PATIENCE_S = 900  # for a client to end: it only bounds a failure

# Packages that only these clients need: some 13 GB.
HEAVY = [pytest.mark.skipif(os.environ.get("PINION_CLIENTS") != "1", reason="PINION_CLIENTS=1 installs and runs it"),
         pytest.mark.timeout(INSTALLING_S)]


@pytest.fixture(scope="module")
def model(pinion, tmp_path_factory):
    """A model with random weights, for tests that import this fixture."""
    folder = tmp_path_factory.mktemp("made") / "model"
    made = pinion("model", "make", "--preset", "tiny", folder)
    assert made.returncode == 0, made.stderr
    return folder


def install(*command, cwd=None):
    done = subprocess.run([str(word) for word in command], cwd=cwd, stdin=subprocess.DEVNULL, capture_output=True,
                          text=True, timeout=INSTALLING_S)
    assert done.returncode == 0, done.stderr[-2000:]


def python_environment(name):
    """The folder of NAME's programs, made anew if its packages are others than those in NAME.txt and, without what they
    ask for in turn, NAME.alone.txt, if there is one."""
    folder = FOLDER / name
    wanted = [file for file in (HERE / f"{name}.txt", HERE / f"{name}.alone.txt") if file.exists()]
    text = "".join(file.read_text() for file in wanted)
    installed = folder / "requirements.txt"
    if not installed.exists() or installed.read_text() != text:
        install("/usr/bin/python3", "-m", "venv", "--clear", folder)
        for file in wanted:
            flags = ["--no-deps"] if file.name.endswith(".alone.txt") else []
            install(folder / "bin/pip", "install", "--quiet", "--disable-pip-version-check", *flags, "-r", file)
        installed.write_text(text)
    return folder / "bin"


def node_environment(name):
    """The folder in which node finds what NAME/package.json asks for."""
    folder, wanted = FOLDER / name, HERE / name / "package.json"
    installed = folder / "installed.json"
    if not installed.exists() or installed.read_text() != wanted.read_text():
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copy(wanted, folder)
        install("npm", "install", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error", cwd=folder)
        shutil.copy(wanted, installed)
    return folder


def run(*command, cwd=None, timeout=PATIENCE_S, expected=0, **environment):
    """The output of a client's command, which exits with `expected` (None: with anything) and gets nothing from any
    hub."""
    done = subprocess.run([str(word) for word in command], cwd=cwd, stdin=subprocess.DEVNULL, capture_output=True,
                          text=True, timeout=timeout,
                          env={**os.environ, "HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1",
                               "TOKENIZERS_PARALLELISM": "false", "NO_COLOR": "1", "OPENAI_API_KEY": "none",
                               **environment})
    assert expected in (None, done.returncode), done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


def run_program(name, program, *arguments):
    """The JSON that a program of NAME's environment prints as its last line."""
    output = run(python_environment(name) / "python", HERE / program, *arguments)
    return json.loads(output.splitlines()[-1])


def metric(server, name, label=""):
    """The sum over all labels, or over those series that have a label, such as finished_reason="abort"."""
    lines = [line for line in server.get("/metrics").splitlines() if line.startswith((name + "{", name + " "))]
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines if label in line)


def abandoned(server):
    """How many requests ended because their clients had left."""
    return metric(server, "vllm:request_success_total", 'finished_reason="abort"')
