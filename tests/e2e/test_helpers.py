"""Errors on a machine that lacks the needs of the helper processes."""

import json
import shutil
import subprocess
import urllib.error

import pytest

import own_server

JINJA = subprocess.run(["/usr/bin/python3", "-I", "-c", "import jinja2; print(jinja2.__path__[0])"],
                       capture_output=True, text=True, check=True).stdout.strip()
CASES = {
    "interpreter": ("mount --bind /dev/null /usr/bin/python3", "cannot start '/usr/bin/python3': Permission denied"),
    "package": (f"mount -t tmpfs none {JINJA}", "ModuleNotFoundError: No module named 'jinja2.exceptions'"),
}


@pytest.fixture
def pinion_without(binary, tmp_path):
    """A program that runs the binary once a command has hidden something from it."""
    def write(hide):
        path = tmp_path / "pinion-without"
        path.write_text(f"#!/bin/sh\nexec unshare --mount sh -c '{hide} && exec {binary} \"$@\"' sh \"$@\"\n")
        path.chmod(0o755)
        if subprocess.run([path, "--version"], capture_output=True, check=False).returncode != 0:
            pytest.skip("this process may not mount file systems")
        return path
    return write


@pytest.mark.parametrize("missing", CASES)
def test_without_jinja_a_chat_fails_with_one_sentence(pinion_without, data, tmp_path, missing):
    hide, why = CASES[missing]
    chats = tmp_path / "chats.jsonl"
    chats.write_text(json.dumps({"messages": [{"role": "user", "content": "x"}]}))
    done = subprocess.run([pinion_without(hide), "tokenize", data / "models/llama", "--input", chats],
                          capture_output=True, text=True, check=False)
    assert done.returncode == 1 and done.stdout == ""
    assert done.stderr == (f"pinion: line 1 of '{chats}': the chat helper does not start: {why}; want /usr/bin/python3 "
                           "with Jinja2, Debian's python3 and python3-jinja2\n")


def refusal(program, model, log):
    """The status and message for a request with a grammar, of a server that answers others."""
    server = own_server.Server(program, log, model)
    try:
        assert server.post("/v1/completions", {"prompt": "a", "max_tokens": 1})["choices"]
        with pytest.raises(urllib.error.HTTPError) as refused:
            server.post("/v1/completions", {"prompt": "a", "guided_choice": ["yes"]})
        return refused.value.code, json.loads(refused.value.read())["error"]["message"]
    finally:
        server.stop()


def test_without_llguidance_a_grammar_is_refused_with_a_way_out(binary, data, tmp_path):
    alone = shutil.copy(binary, tmp_path / "pinion")  # with no packages beside it
    status, message = refusal(alone, data / "models/tiny-trained", tmp_path / "log")
    assert status == 400
    assert message == ("'guided_choice': constrained output needs the Python package llguidance, which is not beside "
                       f"'{alone}'; build with scripts/build, which installs it")


def test_an_llguidance_that_cannot_be_imported_is_one_sentence(binary, pinion_without, data, tmp_path):
    libraries = list((binary.parent / "grammar-env/llguidance").glob("*.so"))
    if not libraries:
        pytest.skip("llguidance is not installed by scripts/build")
    program = pinion_without(f"mount --bind /dev/null {libraries[0].resolve()}")
    status, message = refusal(program, data / "models/tiny-trained", tmp_path / "log")
    assert status == 503
    assert message == ("'guided_choice': the grammar helper does not start: ModuleNotFoundError: No module named "
                       "'llguidance._lib'; want /usr/bin/python3 of version 3.10 or later, and llguidance as scripts/build "
                       "installs it")


def test_an_engine_whose_grammar_helper_does_not_start_says_why_in_the_answer(own_llguidance, data, tmp_path):
    """The front end's helper, which checks grammars, is another one: it runs already."""
    program, spoil = own_llguidance
    server = own_server.Server(program, tmp_path / "log", data / "models/tiny-trained", "--kv-cache-space", "64MiB")
    try:
        with pytest.raises(urllib.error.HTTPError) as refused:
            server.post("/v1/completions", {"prompt": "a", "guided_regex": "("})
        assert refused.value.code == 400
        spoil()
        with pytest.raises(urllib.error.HTTPError) as failed:
            server.post("/v1/completions", {"prompt": "a", "guided_choice": ["yes"]})
        assert json.loads(failed.value.read())["error"]["message"] == (
            "the process that follows grammars does not start: ModuleNotFoundError: No module named 'llguidance._lib'")
        assert server.post("/v1/completions", {"prompt": "a", "max_tokens": 1})["choices"]
    finally:
        server.stop()
