"""A clumsy operator's flags of `pinion serve`: refused with a sentence, or made harmless."""

import json
import os
import pathlib
import subprocess
import urllib.error
import urllib.request

import pytest

from conftest import wait_until

FLAGS = ("--dtype", "float32", "--kv-cache-space", "64MiB", "--served-model-name", "tiny")


@pytest.fixture(scope="module")
def model(data):
    return data / "models" / "tiny-trained"


def refused(pinion, model, *flags, env=None):
    """The sentence."""
    done = pinion("serve", model, *flags, env=env, timeout=30)
    assert done.returncode == 2, flags
    return done.stderr.strip().splitlines()[-1]


@pytest.mark.parametrize("flag", ["--api-key", "--api-key-file", "--ssl-certfile", "--ssl-keyfile", "--host",
                                  "--access-log", "--allowed-hosts", "--request-timeout", "--max-stop",
                                  "--from-profile"])
def test_an_unset_variable_is_not_a_value(pinion, model, flag):
    """No key file would mean a server without keys, no certificate one without TLS."""
    assert flag in refused(pinion, model, flag, "")


@pytest.mark.parametrize("flag, value, sentence", [
    ("--max-num-queued-reqs", "0", "'0' is not a whole number from 1 to 18446744073709551615"),
    ("--max-choice-tokens", "-1", "'-1' is not a whole number from 1"),
    ("--max-logprobs", "-2", "-2 not in range"),
    ("--max-logit-bias", "-1", "'-1' is not a whole number from 0"),
    ("--max-stop", "99999999999999999999", "is not a whole number from 0"),
    ("--max-engine-restarts", "-1", "'-1' is not a whole number from 0 to 2147483647"),
    ("--request-timeout", "0", "--request-timeout is 0, want at least 1ms"),
    ("--header-timeout", "0s", "--header-timeout is 0s, want at least 1ms"),
    ("--sse-keep-alive-interval", "0.0001ms", "want at least 1ms, or 0"),
    ("--max-body-size", "0", "--max-body-size is 0, want at least 1.0 KiB"),
    ("--request-memory", "1", "--request-memory is 1, want at least 1.0 MiB"),
    ("--allowed-origins", "https://a.example/", "'https://a.example/', want SCHEME://HOST"),
    ("--allowed-origins", '["a.example"]', "'a.example', want SCHEME://HOST"),
    ("--allowed-hosts", "https://a.example", "'https://a.example', want a name or an address"),
    ("--api-key", "k\x01y", "--api-key holds a character that is not printable ASCII"),
])
def test_values_that_cannot_be_meant_are_refused(pinion, model, flag, value, sentence):
    assert sentence in refused(pinion, model, flag, value)


@pytest.mark.parametrize("flags", [("--served-model-name", "one", "two"),
                                   ("--served-model-name", "one", "--served-model-name", "two")])
def test_a_model_may_have_several_names(start_server, model, flags):
    server = start_server(model, "--stand-in", "500", *flags)
    assert [one["id"] for one in json.loads(server.get("/v1/models"))["data"]] == ["one", "two"]
    for name in ("one", "two"):
        asked = {"model": name, "prompt": "x", "max_tokens": 1}
        assert server.post("/v1/completions", asked)["model"] == "one", "answers and metrics have the first"
    assert 'model_name="two"' not in server.get("/metrics")


def test_a_model_behind_its_name_is_not_a_name(pinion):
    done = pinion("serve", "--served-model-name", "one", "/nowhere/model", timeout=30)
    assert "/nowhere/model" in done.stderr and "MODEL is missing" not in done.stderr
    assert "MODEL is missing" in pinion("serve", "--served-model-name", "one", timeout=30).stderr


def test_keys_that_no_client_can_send_are_refused(pinion, model, tmp_path):
    keys = tmp_path / "keys"
    keys.write_bytes(b"good\nk\xc3\xa9y\n")
    assert f"{keys}: line 2 holds a character" in refused(pinion, model, "--api-key-file", keys)
    assert "VLLM_API_KEY is empty" in refused(pinion, model, env={"VLLM_API_KEY": " \n"})


def test_a_key_file_of_another_system_is_read(start_server, model, tmp_path):
    keys = tmp_path / "keys"
    keys.write_bytes(b"\xef\xbb\xbffirst\r\n\r\nsecond\r\n")
    server = start_server(model, *FLAGS, "--api-key-file", keys)
    for key in ("first", "second"):
        request = urllib.request.Request(server.url + "/v1/models", headers={"Authorization": f"Bearer {key}"})
        with urllib.request.urlopen(request, timeout=30) as reply:
            assert reply.status == 200


def test_a_key_file_without_end_or_writer_is_refused(pinion, model, tmp_path):
    assert "'/dev/zero' is larger than 1.0 MiB" in refused(pinion, model, "--api-key-file", "/dev/zero")
    os.mkfifo(tmp_path / "fifo")
    assert "no process writes to the FIFO" in refused(pinion, model, "--api-key-file", tmp_path / "fifo")


@pytest.mark.parametrize("descriptors", [8, 12, 31])
def test_too_few_descriptors_are_named(binary, model, descriptors):
    done = subprocess.run(["sh", "-c", f'ulimit -n {descriptors}; exec "$0" "$@"', binary, "serve", model, *FLAGS,
                           "--port", "0"], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (1, (
        f"pinion: this process may have {descriptors} descriptors, and a server needs 32 or more; allow them with "
        "ulimit -n\n"))


@pytest.mark.parametrize("host", ["::1", "[::1]"])
def test_an_ipv6_address_is_shown_as_a_url_has_it(spawn, model, tmp_path, host):
    log = tmp_path / "log"
    with open(log, "wb") as output:
        process = spawn("serve", model, *FLAGS, "--host", host, "--port", 0, stderr=output)
    assert wait_until(lambda: "ready: " in log.read_text() or process.poll() is not None)
    if "cannot listen" in log.read_text():
        pytest.skip("no IPv6 here")
    url = log.read_text().split("ready: ")[1].split()[-1]
    assert url.startswith("http://[::1]:")
    with urllib.request.urlopen(url + "/health", timeout=30) as reply:
        assert reply.status == 200


def test_closed_standard_descriptors_become_nothing_else(binary, model, tmp_path):
    """A socket in their place would get what is printed."""
    ready = tmp_path / "access.log"
    process = subprocess.Popen(
        ["sh", "-c", 'exec "$0" "$@" <&- >&- 2>&-', binary, "serve", model, *FLAGS, "--port", "0", "--access-log",
         ready])
    try:
        descriptors = pathlib.Path(f"/proc/{process.pid}/fd")
        assert wait_until(lambda: process.poll() is not None or ready.exists())
        assert [os.readlink(descriptors / str(fd)) for fd in range(3)] == ["/dev/null"] * 3
    finally:
        process.terminate()
        process.wait(60)


def test_a_closed_output_is_not_taken_for_success(binary):
    done = subprocess.run(["sh", "-c", 'exec "$0" topo --json >&-', binary], stderr=subprocess.PIPE, text=True,
                          timeout=60)
    assert done.returncode == 1 and "cannot write to standard output" in done.stderr


def test_without_the_page_nothing_is_at_the_root_and_no_page_is_the_servers_own(start_server, model):
    server = start_server(model, "--stand-in", "500", "--no-ui")
    own = urllib.request.Request(server.url + "/tokenize", b'{"prompt": "x"}',
                                 {"Content-Type": "application/json", "Origin": server.url})
    for request, status in ((server.url + "/", 404), (own, 403)):
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(request, timeout=30)
        assert refused.value.code == status


@pytest.mark.parametrize("text, sentence", [(None, "No such file"), ("{}", "format"), ("[", "")])
def test_a_file_that_is_not_a_profile_is_refused(pinion, model, tmp_path, text, sentence):
    file = tmp_path / "profile.json"
    if text:
        file.write_text(text)
    said = refused(pinion, model, "--from-profile", file)
    assert "--from-profile: " in said and str(file) in said and sentence in said
