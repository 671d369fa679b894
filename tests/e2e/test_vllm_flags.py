"""Every flag of `vllm serve` is taken, ignored with a notice, or refused with the reason, as docs/vllm-flags.md says."""

import json
import re
import shutil
import subprocess
import urllib.error
import urllib.request

import pytest


@pytest.fixture(scope="module")
def rows(top):
    text = (top / "docs/vllm-flags.md").read_text()
    return re.findall(r"^\| `([^`]+)` \| (taken|ignored|refused) \| (.*) \|$", text, re.MULTILINE)


def test_the_table_says_something_of_every_kind(rows):
    fates = [fate for _, fate, _ in rows]
    assert len(rows) > 250 and min(map(fates.count, ("taken", "ignored", "refused"))) > 20


def test_taken_flags_are_in_the_help(pinion, rows):
    text = pinion("serve", "--help").stdout
    assert not [flag for flag, fate, _ in rows if fate == "taken" and not re.search(flag + r"(?![\w-])", text)]


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


def test_the_device_is_the_cpu(pinion):
    for device in ("cpu", "auto"):
        done = pinion("run", "preset:tiny", "-p", "x", "--max-tokens", 1, "--device", device)
        assert done.returncode == 0, done.stderr
    for command in ("run", "serve"):
        done = pinion(command, "preset:tiny", "--device", "cuda")
        assert done.returncode == 2 and "--device" in done.stderr, done.stderr
        assert "'cuda' is not available: Pinion computes on CPUs" in done.stderr, done.stderr


def test_data_parallel_size_is_in_the_table(rows):
    assert ("--data-parallel-size", "taken", "") in rows


def test_every_template_gets_the_servers_arguments(start_server):
    template = "{{ mood }} {{ enable_thinking }} {{ messages[0].content }}"
    server = start_server("preset:tiny", "--stand-in", 1000, "--chat-template", template,
                          "--default-chat-template-kwargs", '{"mood": "calm", "enable_thinking": false}')
    asked = {"messages": [{"role": "user", "content": "one"}]}

    def prompt(**more):
        return server.post("/apply-template", {**asked, **more})["prompt"]

    assert prompt() == "calm False one"
    assert prompt(chat_template_kwargs={"mood": "wild"}) == "wild False one"
    assert prompt(reasoning_effort="high") == "calm True one"


@pytest.mark.parametrize("flags, temperature", [
    ((), 0.3), (("--generation-config", "auto"), 0.3), (("--generation-config", "vllm"), 1),
    (("--generation-config", "FOLDER"), 0.6), (("--override-generation-config", '{"temperature": 0.5}'), 0.5),
    (("--generation-config", "vllm", "--override-generation-config", '{"top_k": 7}'), 1)])
def test_sampling_defaults_come_from_the_chosen_configuration(start_server, data, tmp_path, flags, temperature):
    shutil.copytree(data / "models/tiny-trained", tmp_path / "model")
    for folder, wanted in (("model", 0.3), ("other", 0.6)):
        path = tmp_path / folder / "generation_config.json"
        path.parent.mkdir(exist_ok=True)
        config = json.loads(path.read_text()) if path.exists() else {}
        path.write_text(json.dumps({**config, "temperature": wanted}))
    flags = [str(tmp_path / "other") if flag == "FOLDER" else flag for flag in flags]
    server = start_server(tmp_path / "model", "--stand-in", 1000, *flags)
    defaults = json.loads(server.get("/props"))["default_generation_settings"]["params"]
    assert defaults["temperature"] == temperature
    assert (defaults["top_k"] == 7) == ('{"top_k": 7}' in flags)


def test_a_folder_says_in_place_of_the_models_own_which_tokens_end_answers(start_server, data, tmp_path):
    """config.json's still ends them."""
    model, other = tmp_path / "model", tmp_path / "other"
    shutil.copytree(data / "models/tiny-trained", model)
    other.mkdir()
    asked = {"prompt": "Once upon a time", "max_tokens": 12, "temperature": 0, "return_token_ids": True}

    def answer(config, own, folder, **more):
        """(ids, why it ended) with an eos_token_id in config.json, the model's own file and the folder's."""
        for file, ids in ((model / "config.json", config), (model / "generation_config.json", own),
                          (other / "generation_config.json", folder)):
            whole = json.loads(file.read_text()) if file.exists() else {}
            file.write_text(json.dumps({**whole, "top_k": 50, "eos_token_id": ids}))
        flags = ["--generation-config", other] if folder else []
        server = start_server(model, "--dtype", "float32", "--kv-cache-space", "32MiB", *flags)
        choice = server.post("/v1/completions", {**asked, **more})["choices"][0]
        server.stop()
        return choice["token_ids"], choice["finish_reason"]

    whole, reason = answer(2, 2, None)
    assert reason == "length" and len(set(whole)) > 4
    first, second = whole[3], next(id for id in whole[4:] if id not in whole[:4])
    assert answer(2, [2, first], None) == (whole[:whole.index(first) + 1], "stop")
    assert answer(2, [2, first], [second]) == (whole[:whole.index(second) + 1], "stop")
    assert answer(first, 2, [second]) == (whole[:whole.index(first) + 1], "stop")
    assert answer(2, 2, [first], ignore_eos=True) == (whole, "length")


@pytest.mark.parametrize("flag, value, why", [
    ("--generation-config", "/nowhere", "/nowhere/generation_config.json"),
    ("--override-generation-config", '{"colour": 1}', "has 'colour'"),
    ("--override-generation-config", '{"top_p": 7}', "top_p is 7"),
    ("--override-generation-config", "5", "want a JSON object"),
    ("--default-chat-template-kwargs", "{", "want a JSON object"),
    ("--root-path", "llm", "begins with '/'"), ("--root-path", "/a?x", "letters"),
    ("--override-generation-config", '{"max_new_tokens": -5}', "max_new_tokens -5"),
])
def test_flags_that_say_nothing_sensible_are_refused(pinion, flag, value, why):
    done = pinion("serve", "preset:tiny", flag, value)
    assert done.returncode == 2 and flag in done.stderr and why in done.stderr, done.stderr


def test_paths_may_begin_with_the_proxys_prefix(start_server):
    server = start_server("preset:tiny", "--stand-in", 1000, "--root-path", "/llm/", "--api-key", "secret")

    def ask(path):
        return urllib.request.urlopen(urllib.request.Request(
            server.url + path, headers={"Authorization": "Bearer secret"}), timeout=60)

    for path in ("/v1/models", "/llm/v1/models", "/llm", "/llm/health?x=1"):
        assert ask(path).status == 200, path
    for path in ("/llmv1/models", "/other/v1/models"):
        with pytest.raises(urllib.error.HTTPError) as unknown:
            ask(path)
        assert unknown.value.code == 404 and f"there is no '{path}'" in json.load(unknown.value)["error"]["message"]
    with pytest.raises(urllib.error.HTTPError) as keyless:
        urllib.request.urlopen(server.url + "/llm/v1/models", timeout=60)
    assert keyless.value.code == 401, "a path with the prefix needs a key as well"
    assert json.load(ask("/openapi.json"))["servers"] == [{"url": "/llm"}]
