"""Every flag of `vllm serve` is taken, ignored with a notice, or refused with the reason, as docs/vllm-flags.md says."""

import json
import re
import subprocess
import urllib.error

import pytest


@pytest.fixture(scope="module")
def rows(top):
    text = (top / "docs/vllm-flags.md").read_text()
    return re.findall(r"^\| `([^`]+)` \| (taken|ignored|refused) \| (.*) \|$", text, re.MULTILINE)


def test_the_table_says_something_of_every_kind(rows):
    fates = [fate for _, fate, _ in rows]
    assert len(rows) > 250 and min(map(fates.count, ("taken", "ignored", "refused"))) > 20


def test_taken_flags_are_in_the_help(pinion, rows):
    text = pinion("serve", "--help").stdout + "--model"  # which is another way to give MODEL
    assert not [flag for flag, fate, _ in rows if fate == "taken" and not re.search(flag + r"\b", text)]


def test_refused_flags_give_their_reason(pinion, rows):
    for flag, fate, why in rows:
        if fate != "refused":
            continue
        for value in ((), ("1",)):
            done = pinion("serve", "preset:tiny", flag, *value)
            assert done.returncode == 2 and done.stderr.count("\n") == 1, (flag, done.stderr)
            assert f"{flag} " in done.stderr or f"{flag}:" in done.stderr, done.stderr
            assert why.split(";")[0] in done.stderr, (flag, done.stderr)


def test_ignored_flags_give_a_notice(pinion, rows):
    """Without a model, which is said last: nothing has to start."""
    for flag, fate, why in rows:
        if fate != "ignored":
            continue
        outputs = [pinion("serve", flag, *value).stderr for value in ((), ("1",))]
        assert any(f"{flag} makes no difference here: {why}" in text and "MODEL is missing" in text
                   for text in outputs), (flag, outputs)


def test_vllms_way_to_name_a_model_and_its_short_flags(pinion):
    done = pinion("run", "--model", "preset:tiny", "-p", "x", "--max-tokens", 1)
    assert done.returncode == 0, done.stderr
    assert pinion("run", "preset:tiny", "--model", "preset:tiny", "-p", "x").returncode == 2
    assert "-pp 9 asks for more stages" in pinion("run", "preset:tiny", "-p", "x", "-pp=9", "--threads-bind", "nobind").stderr
    assert "--api-server-count" in pinion("serve", "preset:tiny", "-asc", "2").stderr


def test_a_server_starts_with_flags_that_make_no_difference(start_server):
    server = start_server("preset:tiny", "--trust-remote-code", "--enable-chunked-prefill", "-q", "awq")
    server.get("/health")


def test_flags_that_the_table_lacks_are_named(top, binary, tmp_path):
    for name, text in {"engine/arg_utils.py": 'add("--dtype")\nadd("--brand-new")\n', "entrypoints/cli/serve.py": "",
                       "entrypoints/any/cli_args.py": "class Front:\n    host: str\n    newer_still: int\n"}.items():
        path = tmp_path / "vllm" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    words = [top / "scripts/compat", "--binary", binary]
    done = subprocess.run([*words, "--vllm", tmp_path / "vllm"], capture_output=True, text=True)
    assert done.returncode == 1 and done.stdout.split() == ["--brand-new", "--newer-still"]
    assert subprocess.run([*words, "--vllm", tmp_path], capture_output=True).returncode == 1
    assert "| `--dtype` | taken |" in subprocess.run(words, capture_output=True, text=True).stdout


@pytest.mark.parametrize("in_file", [False, True])
def test_a_chat_template_of_the_users_own(start_server, tmp_path, in_file):
    template = "{% for message in messages %}<{{ message.content }}>{% endfor %}"
    path = tmp_path / "mine.jinja"
    path.write_text(template)
    server = start_server("preset:tiny", "--chat-template", path if in_file else template)
    asked = {"messages": [{"role": "user", "content": "one"}, {"role": "user", "content": "two"}]}
    assert server.post("/apply-template", asked)["prompt"] == "<one><two>"


def refusal(server, body):
    """The sentence of the 400 that a chat gets."""
    with pytest.raises(urllib.error.HTTPError) as refused:
        server.post("/v1/chat/completions", body)
    assert refused.value.code == 400
    return json.loads(refused.value.read())["error"]["message"]


def test_a_chat_template_of_a_request(start_server, data):
    """Of a model that has one; what it writes is what the model reads."""
    asked = {"messages": [{"role": "user", "content": "one"}], "chat_template": "<{{ messages[0].content }}>"}
    trusting = start_server(data / "models/tiny-trained", "--trust-request-chat-template", "--stand-in", 1000)
    assert trusting.post("/apply-template", asked)["prompt"] == "<one>"
    length = trusting.post("/tokenize", {"prompt": "<one>", "add_special_tokens": False})["count"]
    answer = trusting.post("/v1/chat/completions", {**asked, "max_tokens": 1})
    assert answer["usage"]["prompt_tokens"] == length
    looped = {**asked, "chat_template": "{% for i in range(99999) %}{% for i in range(99999) %}{% endfor %}{% endfor %}"}
    assert "chat template was stopped" in refusal(trusting, looped)
    assert "TemplateSyntaxError" in refusal(trusting, {**asked, "chat_template": "{% if"})
    wary = start_server(data / "models/tiny-trained", "--stand-in", 1000)
    assert "--trust-request-chat-template" in refusal(wary, asked)


def test_a_chat_template_that_is_not_there_is_refused(pinion):
    done = pinion("serve", "preset:tiny", "--chat-template", "/nowhere/mine.jinja")
    assert done.returncode == 2 and "/nowhere/mine.jinja" in done.stderr and "--chat-template" in done.stderr
