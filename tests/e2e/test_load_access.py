"""How `pinion load` reaches servers: over HTTPS, through proxies, with a key, on connections that it keeps."""

import json

import pytest

from conftest import free_port
from test_load import FixedServer

SHORT = ("--num-prompts", 3, "--output-len", 2, "--max-concurrency", 1)
NOBODY = {"http_proxy": "", "https_proxy": "", "all_proxy": "", "no_proxy": ""}


def answers(log):
    return [json.loads(line) for line in log.read_text().splitlines()]


def test_https_wants_a_certificate_that_is_trusted_and_names_the_server(pinion, pinion_json, certificate):
    with FixedServer("--certificate", certificate[0], "--key", certificate[1]) as server:
        named, numbered = f"https://localhost:{server.port}", f"https://127.0.0.1:{server.port}"
        done = pinion("load", named, *SHORT)
        assert done.returncode == 1 and done.stderr.count("\n") == 1
        assert "is not trusted" in done.stderr and "--ca-file" in done.stderr
        trusted = pinion_json("load", named, "--ca-file", certificate[0], "--json", *SHORT)
        assert trusted["completed"] == 3
        done = pinion("load", numbered, "--ca-file", certificate[0], *SHORT)
        assert done.returncode == 1 and "is not trusted" in done.stderr
        assert pinion_json("load", numbered, "--insecure", "--json", *SHORT)["completed"] == 3


def test_a_missing_file_of_authorities_is_bad_usage(pinion):
    done = pinion("load", "https://localhost", "--ca-file", "/no/such.pem")
    assert done.returncode == 2 and "/no/such.pem" in done.stderr


def test_the_key_of_the_flag_comes_before_that_of_the_environment(pinion, pinion_json):
    with FixedServer("--api-key", "right") as server:
        done = pinion("load", server.url, *SHORT, env={"OPENAI_API_KEY": ""})
        assert done.returncode == 1 and "HTTP 401: the key is ''" in done.stderr
        environment = {"OPENAI_API_KEY": "right"}
        assert pinion_json("load", server.url, "--json", *SHORT, env=environment)["completed"] == 3
        environment = {"OPENAI_API_KEY": "wrong"}
        done = pinion_json("load", server.url, "--api-key", "right", "--json", *SHORT, env=environment)
        assert done["completed"] == 3
        done = pinion("load", server.url, "--api-key", "right\nX-Other: line", *SHORT)
        assert done.returncode == 2 and "control character" in done.stderr


def test_a_proxy_of_the_environment_is_asked_for_servers_elsewhere(pinion, pinion_json, tmp_path):
    log = tmp_path / "answers.log"
    with FixedServer("--log", log) as proxy:
        through = {**NOBODY, "http_proxy": proxy.url}
        result = pinion_json("load", "http://far.invalid/v1", "--json", *SHORT, env=through)
        assert result["completed"] == 3
        assert {one["target"] for one in answers(log)} == {"http://far.invalid/v1/completions"}
        done = pinion("load", "http://far.invalid", *SHORT, env={**through, "no_proxy": ".invalid"})
        assert done.returncode == 1 and "Could not resolve host: far.invalid" in done.stderr


def test_servers_of_this_machine_are_asked_directly(pinion_json, tmp_path):
    log = tmp_path / "answers.log"
    dead = f"http://127.0.0.1:{free_port()}"
    with FixedServer("--log", log) as server:
        proxies = {**NOBODY, "http_proxy": dead, "all_proxy": dead}
        assert pinion_json("load", server.url, "--json", *SHORT, env=proxies)["completed"] == 3
        assert {one["target"] for one in answers(log)} == {"/v1/completions"}


def test_clients_keep_their_connections(pinion_json, tmp_path):
    log = tmp_path / "answers.log"
    with FixedServer("--log", log) as server:
        result = pinion_json("load", server.url, "--num-prompts", 9, "--output-len", 2,
                             "--max-concurrency", 3, "--json")
    assert result["completed"] == 9
    assert len({one["peer"] for one in answers(log)[2:]}) == 3


def test_a_connection_that_the_server_has_closed_is_replaced(pinion_json, tmp_path):
    log = tmp_path / "answers.log"
    with FixedServer("--log", log, "--hang-up") as server:
        result = pinion_json("load", server.url, "--num-prompts", 9, "--output-len", 2,
                             "--max-concurrency", 2, "--json")
    assert result["completed"] == 9 and len(answers(log)) == 11
    assert len({one["peer"] for one in answers(log)}) == 11
