"""The page at `/` of `pinion serve` in a real browser: the chat, and what holds for all of the page."""

import json
import re
import urllib.request

import pytest

import chromium
from conftest import wait_until
from page_visit import ECHO, PHONE, STOP, TALL, browser, ready, server, start_echo, visit  # noqa: F401 (fixtures)

pytestmark = chromium.needed


def test_it_opens_without_a_complaint_or_a_request_to_another(ready, server):
    assert ready.page.title() == "echo · Pinion"
    assert ready.wrong == []
    assert all(url.startswith((f"{server.url}/", "data:")) for url in ready.requests)
    assert ready.page.locator("#welcome").is_visible()


def test_every_message_carries_the_turns_before_it_and_the_parameters_that_are_set(ready):
    ready.set(system="Be brief.", temperature=0, top_p=0.5)
    ready.say("one" + STOP)
    ready.say("two" + STOP)
    first, second = ready.asked
    assert [(one["role"], one["content"]) for one in second["messages"]] == [
        ("system", "Be brief."), ("user", "one" + STOP), ("assistant", "one"), ("user", "two" + STOP)]
    assert set(first) == {"model", "messages", "stream", "stream_options", "temperature", "top_p", "stop"}
    assert (first["model"], first["temperature"], first["top_p"]) == ("echo", 0, 0.5)
    assert ready.answer().locator(".text").inner_text() == "two"
    ready.page.get_by_role("button", name="Answer again").click()
    ready.page.wait_for_selector("#stop", state="hidden")
    assert ready.asked[2]["messages"] == second["messages"]
    assert ready.page.locator(".turn").count() == 4
    assert ready.wrong == []


def test_an_answer_is_shown_while_it_comes_and_stopped(visit, start_echo):
    server = start_echo(rate=20)
    seen = visit(server).wait_until_ready()
    seen.page.fill("#prompt", "over and over ")
    seen.page.press("#prompt", "Enter")
    seen.wait_for(".turn.assistant .text", "overover and over")
    assert seen.page.locator("#stop").is_visible()
    seen.wait_for("#state", "computing")
    seen.wait_for("#running", "1")
    seen.wait_for("#generated", "[1-9]")
    seen.page.get_by_role("button", name="Stop").click()
    seen.page.wait_for_selector("#stop", state="hidden")
    assert "stopped" in seen.answer().locator(".stats").inner_text()
    assert wait_until(lambda: json.loads(server.get("/load"))["server_load"] == 0)
    # So does the key, and what was said stays.
    seen.page.fill("#prompt", "again ")
    seen.page.press("#prompt", "Enter")
    seen.page.wait_for_selector("#stop")
    seen.page.press("body", "Escape")
    seen.page.wait_for_selector("#stop", state="hidden")
    assert seen.page.locator(".turn").count() == 4
    assert seen.wrong == []


def test_reasoning_is_shown_apart_and_not_sent_back(ready):
    ready.say(f"<think>A plan.</think>The answer.{STOP}")
    thoughts = ready.answer().locator("details.thoughts")
    assert ready.answer().locator(".text").inner_text() == "The answer."
    assert thoughts.locator("summary").inner_text().startswith("Reasoning, ")
    assert not thoughts.locator("div").is_visible()
    thoughts.locator("summary").press("Enter")
    assert thoughts.locator("div").inner_text() == "A plan."
    ready.say("more" + STOP)
    assert ready.asked[1]["messages"][1] == {"role": "assistant", "content": "The answer."}


def test_reasoning_can_be_turned_off_if_the_template_can(ready):
    ready.page.get_by_role("button", name="Parameters").click()
    ready.page.select_option("#set-enable_thinking", "off")
    ready.page.keyboard.press("Escape")
    ready.say("one" + STOP)
    assert ready.asked[0]["chat_template_kwargs"] == {"enable_thinking": False}


def test_words_of_a_model_become_no_more_than_text(ready):
    ready.say('**bold** `code` <img src=x onerror="wrong=1"> <script>wrong=1</script> '
              f'[a](javascript:wrong=1) [b](https://b.example/){STOP}')
    text = ready.answer().locator(".text")
    assert text.locator("strong").inner_text() == "bold" and text.locator("code").inner_text() == "code"
    assert text.locator("img, script").count() == 0
    assert text.locator("a").all_inner_texts() == ["b"]
    assert "<img src=x" in text.inner_text() and "[a](javascript:wrong=1)" in text.inner_text()
    assert ready.page.evaluate("typeof wrong") == "undefined"
    assert ready.wrong == []


def test_markdown_becomes_lists_tables_and_code(ready):
    ready.say("# Head\n\n1. one\n2. two\n   - deep\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n"
              f"```py\nx = [1]\n\n# no heading\n```\n\n> quoted\n\nend{STOP}")
    text = ready.answer().locator(".text")
    assert text.locator("h3").all_inner_texts() == ["Head"]
    assert text.locator("ol > li").count() == 2 and text.locator("ol li ul li").inner_text() == "deep"
    assert text.locator("td").all_inner_texts() == ["1", "2"]
    assert text.locator("pre code").text_content() == "x = [1]\n\n# no heading"
    assert text.locator("blockquote").inner_text() == "quoted"
    assert text.locator("p").last.inner_text() == "end"


def test_no_text_makes_the_page_stumble_or_lose_a_letter(ready):
    """Any mixture of marks: what stands between them is shown."""
    lost = ready.page.evaluate("""() => {
      const marks = ["a", "b ", "\\n", "\\n\\n", "```", "``", "`", "- ", "  - ", "12. ", "|", "\\n|---|\\n", "**", "*", "# ",
                     "> ", "    ", "[a](https://b.org/)", "[", "](", "---", "<b>", "&amp;"];
      let state = 20261124;
      const random = below => (state = (Math.imul(state, 1664525) + 1013904223) >>> 0) % 65536 * below >>> 16;
      const count = text => [...text].filter(one => one === "a").length;
      for (let i = 0; i < 4000; ++i) {
        let text = "";
        for (let length = 1 + random(40); length > 0; --length) text += marks[random(marks.length)];
        const place = document.createElement("div"), streamed = document.createElement("div");
        drawMarkdown(place, text);
        for (let end = 1; end <= text.length; end += 7) drawMarkdown(streamed, text.slice(0, end));
        drawMarkdown(streamed, text);
        if (count(place.textContent) !== count(text) || streamed.innerHTML !== place.innerHTML) return text;
      }
      return null;
    }""")
    assert lost is None


def test_a_refusal_is_the_servers_sentence_and_the_way_out_works(ready):
    ready.set(top_p=5)
    ready.say("one" + STOP)
    error = ready.answer().locator(".error")
    assert "top_p" in error.inner_text()
    ready.set(top_p=1)
    ready.page.get_by_role("button", name="Try again").click()
    ready.page.wait_for_selector("#stop", state="hidden")
    assert ready.answer().locator(".text").inner_text() == "one"
    assert ready.page.locator(".turn").count() == 2
    assert not error.is_visible()


def test_a_question_without_an_answer_is_not_sent_again(ready):
    ready.set(top_p=5)
    ready.say("one" + STOP)
    ready.set(top_p=1)
    ready.say("two" + STOP)
    assert [one["content"] for one in ready.asked[1]["messages"]] == ["two" + STOP]
    assert ready.answer().locator(".text").inner_text() == "two"


def test_a_conversation_survives_a_reload_and_a_new_one_forgets_it(ready):
    ready.say("kept" + STOP)
    ready.page.reload()
    ready.wait_until_ready()
    assert ready.answer().locator(".text").inner_text() == "kept"
    ready.page.get_by_role("button", name="Edit").click()
    assert ready.page.input_value("#prompt") == "kept" + STOP
    assert ready.page.locator(".turn").count() == 0
    ready.page.press("#prompt", "Enter")
    ready.page.wait_for_selector(".turn.assistant")
    ready.page.get_by_role("button", name="New chat").click()
    assert ready.page.locator(".turn").count() == 0
    ready.page.reload()
    assert ready.page.locator(".turn").count() == 0


def test_a_server_with_keys_gives_the_page_and_wants_a_key_for_the_rest(visit, start_echo):
    server = start_echo("--api-key", "a secret key")
    assert "a secret key" not in server.get("/")
    seen = visit(server)
    seen.page.get_by_label("This server asks for an API key.").fill("wrong")
    seen.page.keyboard.press("Enter")
    seen.page.locator("#key-form:has(#key:invalid)").wait_for()  # it is empty, and wanted again
    assert seen.page.locator("#state").inner_text() == "waits for an API key"
    assert seen.page.locator("#machine-card, #profile-card, #model-card").filter(visible=True).count() == 0
    seen.page.fill("#key", "a secret key")
    seen.page.keyboard.press("Enter")
    seen.wait_until_ready()
    assert not seen.page.locator("#key-form").is_visible()
    seen.set(stop=STOP)
    seen.say("one" + STOP)
    assert seen.answer().locator(".text").inner_text() == "one"
    assert "secret" not in seen.page.evaluate("JSON.stringify(localStorage) + document.documentElement.outerHTML")
    seen.page.reload()
    seen.wait_until_ready()


def test_the_page_of_a_server_with_tls_may_use_it(visit, spawn, data, tmp_path, certificate):
    log = tmp_path / "log"
    with open(log, "wb") as output:
        process = spawn("serve", data / "models/tiny-trained", "--stand-in", 2000, "--chat-template", ECHO, "--port", 0,
                        "--ssl-certfile", certificate[0], "--ssl-keyfile", certificate[1], stderr=output)
    assert wait_until(lambda: "ready: " in log.read_text() or process.poll() is not None), log.read_text()
    port = re.search(r"ready: https://\S+:(\d+)\n", log.read_text())[1]
    seen = visit(f"https://localhost:{port}", ignore_https_errors=True).wait_until_ready()
    seen.set(stop=STOP)
    seen.say("one" + STOP)
    assert seen.answer().locator(".text").inner_text() == "one"


@pytest.mark.parametrize("device", [PHONE, {"viewport": {"width": 320, "height": 600}}, TALL])
def test_it_fits_a_phone_and_a_desk(visit, server, device):
    seen = visit(server, **device).wait_until_ready()
    seen.set(stop=STOP)
    seen.say("a" * 300 + "\n```\n" + "b" * 300 + "\n```\n" + STOP)
    width = device["viewport"]["width"]
    narrow = width < 860
    assert seen.page.locator("#server").is_visible() != narrow
    for view in ("Server", "Chat"):
        if narrow:
            seen.page.get_by_role("button", name=view, exact=True).click()
        shown = seen.page.locator(f"#{view.lower()}")
        assert shown.is_visible()
        assert seen.page.evaluate("document.documentElement.scrollWidth") <= width
        assert shown.evaluate("one => one.scrollWidth - one.clientWidth") <= 0
    for control in seen.page.locator("header button, #composer button, #prompt").filter(visible=True).all():
        box = control.bounding_box()
        assert box["x"] >= 0 and box["x"] + box["width"] <= width
        assert box["y"] + box["height"] <= device["viewport"]["height"]


@pytest.mark.parametrize("wish", ["light", "dark"])
def test_the_theme_follows_the_system_until_the_reader_chooses(visit, server, wish):
    seen = visit(server, color_scheme=wish)
    is_light = seen.page.evaluate(chromium.BRIGHTNESS) > 128
    assert is_light == (wish == "light")
    seen.page.get_by_role("button", name="Light or dark").click()
    assert (seen.page.evaluate(chromium.BRIGHTNESS) > 128) != is_light
    seen.page.reload()
    assert (seen.page.evaluate(chromium.BRIGHTNESS) > 128) != is_light


def test_the_keyboard_reaches_all_of_it(ready):
    ready.say("one" + STOP)
    reached = set()
    ready.page.evaluate("document.activeElement.blur()")
    for _ in range(40):
        ready.page.keyboard.press("Tab")
        reached.add(ready.page.evaluate(
            "(one => one.id || one.textContent.trim())(document.activeElement)"))
    assert {"new-chat", "open-settings", "theme", "log", "Edit", "Copy", "Answer again", "prompt", "send"} <= reached
    ready.page.focus("#open-settings")
    ready.page.keyboard.press("Enter")
    assert ready.page.evaluate("document.getElementById('settings').contains(document.activeElement)")
    ready.page.keyboard.press("Escape")
    assert not ready.page.locator("#settings").is_visible()
    assert ready.page.evaluate("document.activeElement.id") == "open-settings"
    unnamed = ready.page.evaluate("""[...document.querySelectorAll("button, input, textarea, select")]
        .filter(one => !(one.textContent.trim() || one.ariaLabel || one.labels?.length)).map(one => one.id)""")
    assert unnamed == []


def test_a_model_without_a_chat_template_continues_texts(visit, start_server, data):
    seen = visit(start_server(data / "models/olmo2", "--kv-cache-space", "64MiB")).wait_until_ready()
    seen.page.get_by_text("This model has no chat template: it continues what you write.").wait_for()
    seen.set(max_tokens=5)
    seen.say("Once upon")
    assert seen.asked[0]["prompt"] == "Once upon"
    assert seen.page.title() == "olmo2 · Pinion"  # of the path that is its name
    assert seen.asked[0]["model"] == str(data / "models/olmo2")
    stats = seen.answer().locator(".stats").inner_text()
    assert stats.startswith("5 tokens ") and re.search(r" · context \d+ of [\d,]+ · ended by the limit of tokens$", stats)
    assert seen.wrong == []


def test_it_says_why_the_server_does_not_answer_and_goes_on_after(visit, start_echo):
    server = start_echo("--enable-sleep-mode")
    seen = visit(server).wait_until_ready()
    post = lambda path: urllib.request.urlopen(urllib.request.Request(server.url + path, b"", method="POST"), timeout=60)
    post("/sleep").close()
    seen.page.wait_for_selector("#state[data-is=bad]")
    assert seen.page.locator("#state").inner_text() == "the server sleeps; POST /wake_up first"
    post("/wake_up").close()
    seen.wait_until_ready()
    server.stop()
    seen.page.wait_for_selector("#state[data-is=bad]")
    assert seen.page.locator("#state").inner_text() == "the server does not answer"
