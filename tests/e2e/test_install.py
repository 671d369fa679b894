"""`cmake --install`: the binary runs from its prefix, and its man pages and completions agree
with --help."""

import gzip
import json
import os
import re
import shutil
import subprocess

import own_server
import pytest

# Ends after its first trial: enough for a report, and little for a busy machine.
SHORT_SWEEP = {
    "axes": {"max_num_seqs": [64]},
    "workload": {"prompt_len": 8, "output_len": 4, "concurrency": [1], "num_prompts": 1},
    "objectives": ["throughput"],
    "strategy": "grid",
    "rounds": 1,
    "budget": "1s",
    "seed": 1,
}
ONE_CPU = ("--threads-bind", str(min(os.sched_getaffinity(0))))


@pytest.fixture(scope="module")
def prefix(binary, tmp_path_factory):
    if not (binary.parent / "cmake_install.cmake").exists():
        pytest.skip(f"{binary.parent} is not a build folder")
    folder = tmp_path_factory.mktemp("prefix")
    done = subprocess.run(["cmake", "--install", binary.parent, "--prefix", folder], capture_output=True,
                          text=True, check=False)
    assert done.returncode == 0, f"{done.stderr}: run scripts/build"
    return folder


@pytest.fixture(scope="module")
def installed(prefix):
    """installed("topo") -> CompletedProcess of the installed binary, run from its prefix."""

    def run(*arguments):
        return subprocess.run([prefix / "bin/pinion", *map(str, arguments)], capture_output=True, text=True,
                              stdin=subprocess.DEVNULL, timeout=280, cwd=prefix, check=False)

    return run


def helped(installed, path):
    """Flags and commands that `pinion PATH --help` lists."""
    done = installed(*path, "--help")
    assert done.returncode == 0, done.stderr
    flags = [name.split("{")[0] for names in re.findall(r"^ +(-[-\w,{}]+)", done.stdout, re.MULTILINE)
             for name in names.split(",")]
    commands = re.search(r"^Subcommands:\n((?:  .*\n)+)", done.stdout, re.MULTILINE)
    return flags, re.findall(r"^  (\S+)", commands[1], re.MULTILINE) if commands else []


@pytest.fixture(scope="module")
def command_line(installed):
    """{("model", "make"): flags that its --help lists}, for every command."""
    found, paths = {}, [()]
    while paths:
        path = paths.pop()
        found[path], commands = helped(installed, path)
        paths += [(*path, command) for command in commands]
    assert {(), ("sweep",), ("model", "make")} < set(found)
    return found


def test_installed_binary_has_the_builds_version(installed, version):
    assert installed("--version").stdout == f"pinion {version}\n"


def test_installed_binary_finds_the_parts_of_reports(installed, prefix, tmp_path):
    definition = tmp_path / "definition.json"
    definition.write_text(json.dumps(SHORT_SWEEP))
    done = installed("sweep", "preset:tiny", *ONE_CPU, "--def", definition, "--out", tmp_path / "out")
    assert done.returncode == 0, done.stderr[-2000:]
    page = (tmp_path / "out/report.html").read_text()
    assert (prefix / "share/pinion/reports/page.css").read_text() in page


def test_sweep_definitions_and_schemas_are_installed(prefix, top):
    there = {path.name: path.read_text() for path in (prefix / "share/pinion/profiles").iterdir()}
    assert there == {path.name: path.read_text() for path in (top / "profiles").glob("*.json")}


def man_page(prefix, path):
    """The page that a command is on: those of `model` share one."""
    return prefix / f"share/man/man1/{'-'.join(('pinion', *path[:1]))}.1.gz"


def test_man_pages_have_every_flag_of_every_command(prefix, command_line):
    for path, flags in command_line.items():
        text = gzip.open(man_page(prefix, path), "rt").read().replace("\\-", "-")
        assert " ".join(("pinion", *path)) in text
        for flag in flags:
            assert f"\\fB{flag}\\fR" in text, f"{' '.join(path)} {flag}"


@pytest.mark.skipif(not shutil.which("man") or not shutil.which("groff"), reason="needs man-db")
def test_man_pages_have_no_errors(prefix):
    for page in sorted((prefix / "share/man/man1").iterdir()):
        done = subprocess.run(["man", "--warnings", "-l", page], capture_output=True, text=True, check=False)
        assert done.returncode == 0 and done.stderr == "", f"{page.name}: {done.stderr}"


def complete(prefix, *words):
    """The completions that bash offers for the last of `words`."""
    script = ('source "$0"; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _pinion; '
              'printf "%s\\n" "${COMPREPLY[@]}"')
    done = subprocess.run(["bash", "-c", script, prefix / "share/bash-completion/completions/pinion", *words],
                          capture_output=True, text=True, check=True)
    return done.stdout.split()


def test_bash_completes_every_command_and_flag(prefix, command_line):
    for path, flags in command_line.items():
        assert sorted(complete(prefix, "pinion", *path, "-")) == sorted(flags)
        if path:
            assert path[-1] in complete(prefix, "pinion", *path[:-1], path[-1][:2])


@pytest.mark.parametrize("words, offered", [
    (["bench", "--mode", ""], ["latency", "throughput", "serving"]),
    (["bench", "--mode", "=", "th"], ["throughput"]),
    (["run", "preset", ":", "tin"], ["tiny", "tinyllama-1.1b"]),
    # A value is not a command: the words after it belong to `bench`.
    (["bench", "--dtype", "model", "--roun"], ["--rounds"]),
])
def test_bash_completes_values(prefix, words, offered):
    assert complete(prefix, "pinion", *words) == offered


@pytest.mark.parametrize("shell, file", [("zsh", "zsh/vendor-completions/_pinion"),
                                         ("fish", "fish/vendor_completions.d/pinion.fish")])
def test_other_shells_accept_their_completions(prefix, shell, file):
    if not shutil.which(shell):
        pytest.skip(f"needs {shell}")
    done = subprocess.run([shell, "-n", prefix / "share" / file], capture_output=True, text=True, check=False)
    assert done.returncode == 0 and done.stderr == "", done.stderr


def test_constrained_output_works_from_the_prefix(prefix, data, tmp_path):
    if not (prefix / "lib/pinion/grammar-env").exists():
        pytest.skip("llguidance is not installed by scripts/build")
    server = own_server.Server(prefix / "bin/pinion", tmp_path / "log", data / "models/tiny-trained")
    try:
        answer = server.post("/v1/completions", {"prompt": "a", "max_tokens": 9, "guided_choice": ["yes", "no"]})
    finally:
        server.stop()
    assert answer["choices"][0]["text"] in ("yes", "no")
