"""pinion serve before its API: who may ask, over what, and what is written about it."""

import json
import pathlib
import re
import ssl
import subprocess
import urllib.error
import urllib.request

import httpx2
import openai
import pytest

from conftest import wait_until

FLAGS = ("--dtype", "float32", "--kv-cache-space", "64MiB", "--served-model-name", "tiny")


@pytest.fixture(scope="module")
def model(data):
    return data / "models" / "tiny-trained"


@pytest.fixture(scope="module")
def guarded(start_server, model, tmp_path_factory):
    """A server with two keys, one allowed page and an access log."""
    folder = tmp_path_factory.mktemp("guarded")
    (folder / "keys").write_text("second-key\n\n")
    log = folder / "access.log"
    server = start_server(model, *FLAGS, "--api-key", "first-key", "--api-key-file", folder / "keys",
                          "--allowed-origins", '["https://good.example"]', "--access-log", log,
                          "--request-memory", "8MiB")
    server.access_log = log
    return server


def ask(server, path="/v1/models", body=None, **headers):
    """(status, headers, text) of one request."""
    request = urllib.request.Request(server.url + path, body,
                                     {name.replace("_", "-"): value for name, value in headers.items()})
    try:
        with urllib.request.urlopen(request, timeout=30) as reply:
            return reply.status, reply.headers, reply.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.headers, error.read().decode()


def message_of(text):
    return json.loads(text)["error"]["message"]


def test_keys_open_everything_but_health(guarded):
    assert ask(guarded, "/health")[0] == 200
    status, headers, text = ask(guarded)
    assert (status, headers["WWW-Authenticate"]) == (401, "Bearer")
    assert "Authorization: Bearer KEY" in message_of(text)
    for key in ("first-key", "second-key"):
        client = openai.OpenAI(base_url=guarded.url + "/v1", api_key=key, max_retries=0)
        assert [one.id for one in client.models.list()] == ["tiny"]
        assert client.completions.create(model="tiny", prompt="Once", max_tokens=2).choices
    wrong = openai.OpenAI(base_url=guarded.url + "/v1", api_key="third-key", max_retries=0)
    with pytest.raises(openai.AuthenticationError):
        wrong.models.list()


def test_web_pages_need_leave(guarded):
    status, _, text = ask(guarded, Host="evil.example", Authorization="Bearer first-key")
    assert status == 403 and "--allowed-hosts evil.example" in message_of(text)
    status, _, text = ask(guarded, Origin="https://evil.example", Authorization="Bearer first-key")
    assert status == 403 and "--allowed-origins https://evil.example" in message_of(text)
    status, headers, _ = ask(guarded, Origin="https://good.example",
                             Authorization="Bearer first-key")
    assert (status, headers["Access-Control-Allow-Origin"]) == (200, "https://good.example")


def test_the_log_has_a_line_for_every_request_and_no_prompt(guarded):
    body = json.dumps({"model": "tiny", "prompt": "a-secret-prompt", "max_tokens": 2}).encode()
    status, headers, _ = ask(guarded, "/v1/completions?secret=query", body, X_Request_Id="order-7",
                             Authorization="Bearer second-key", Content_Type="application/json")
    assert (status, headers["X-Request-Id"]) == (200, "order-7")

    def line():
        lines = map(json.loads, guarded.access_log.read_text().splitlines())
        return next((one for one in lines if one["id"] == "order-7"), None)

    assert wait_until(lambda: line() is not None)
    logged = line()
    assert logged["path"] == "/v1/completions" and logged["client"] == "key 2"
    assert logged["status"] == 200 and logged["complete"] and logged["bytes_in"] > len(body)
    assert "secret" not in guarded.access_log.read_text()


def test_a_body_beyond_all_request_memory_is_refused(guarded):
    status, _, text = ask(guarded, "/tokenize", b'{"prompt":"' + b"x" * (9 << 20) + b'"}',
                          Authorization="Bearer first-key", Content_Type="application/json")
    assert status == 413 and "--request-memory" in message_of(text)


def test_descriptors_are_raised_and_printed(guarded):
    assert "descriptors: " in guarded.log.read_text()
    limits = pathlib.Path(f"/proc/{guarded.process.pid}/limits").read_text()
    soft, hard = next(line for line in limits.splitlines()
                      if line.startswith("Max open files")).split()[3:5]
    assert soft == hard


def test_clients_use_a_key_over_tls(binary, model, tmp_path, certificate):
    certificate, key = certificate
    log = tmp_path / "log"
    with open(log, "wb") as output:
        process = subprocess.Popen(
            [binary, "serve", model, *FLAGS, "--port", "0", "--api-key", "k",
             "--ssl-certfile", certificate, "--ssl-keyfile", key],
            stdin=subprocess.DEVNULL, stdout=output, stderr=output)
    try:
        def ready():
            assert process.poll() is None, log.read_text()
            return re.search(r"ready: https://\S+:(\d+)\n", log.read_text())

        assert wait_until(ready)
        port = ready()[1]
        url = f"https://localhost:{port}"
        trust = ssl.create_default_context(cafile=certificate)
        with httpx2.Client(verify=trust, timeout=60) as http:
            assert http.get(url + "/health").status_code == 200
            client = openai.OpenAI(base_url=url + "/v1", api_key="k", http_client=http,
                                   max_retries=0)
            stream = client.completions.create(model="tiny", prompt="Once", max_tokens=8,
                                               stream=True, extra_body={"ignore_eos": True})
            assert len(list(stream)) >= 8
            with pytest.raises(httpx2.TransportError):
                httpx2.get(f"http://localhost:{port}/health", timeout=30)
    finally:
        process.terminate()
        assert process.wait(60) == 0, log.read_text()


def test_wrong_files_end_it_with_a_sentence(pinion, model, tmp_path):
    (tmp_path / "empty").write_text("\n")
    for flags, sentence in [
            (("--ssl-certfile", "/no/such.crt"), "cannot use the certificate in /no/such.crt"),
            (("--ssl-keyfile", "/no/such.key"), "--ssl-keyfile without --ssl-certfile"),
            (("--api-key-file", "/no/keys"), "/no/keys"),
            (("--api-key-file", tmp_path / "empty"), "holds no key"),
            (("--access-log", "/no/such/log"), "cannot open the access log /no/such/log"),
            (("--allowed-origins", "[1]"), "--allowed-origins holds an integer"),
            (("--api-key", " "), "--api-key is empty")]:
        done = pinion("serve", model, *FLAGS, *flags)
        assert done.returncode == 2, done.stderr
        assert sentence in done.stderr
