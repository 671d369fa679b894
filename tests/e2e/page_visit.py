"""Visits to the page of `pinion serve` in a real browser, and the servers whose page it is. The engine's stand-in
answers with the prompt, which is here the last message as it is, over and over: the tests decide what the model says."""

import re

import pytest

import chromium

STOP = "#END#"
ECHO = "{#- <tool_call> </think> enable_thinking -#}{{- messages[-1].content -}}"
TALL = {"viewport": {"width": 1280, "height": 900}}
PHONE = {"viewport": {"width": 390, "height": 844}}


@pytest.fixture(scope="module")
def browser():
    with chromium.launched() as opened:
        yield opened


@pytest.fixture(scope="module")
def start_echo(start_server, data):
    def start(*flags, rate=2000, **options):
        return start_server(data / "models/tiny-trained", "--stand-in", rate, "--chat-template", ECHO,
                            "--served-model-name", "echo", *flags, **options)

    return start


@pytest.fixture(scope="module")
def server(start_echo):
    return start_echo()


class Visit(chromium.Visit):
    def __init__(self, browser, url, **options):
        super().__init__(browser, url + "/", **{**TALL, **options})
        self.asked = []  # the bodies of requests for answers
        self.page.on("request", lambda request: request.method == "POST"
                     and self.asked.append(request.post_data_json))

    def wait_until_ready(self):
        self.page.wait_for_selector("#state[data-is=ready]")
        return self

    def wait_for(self, selector, pattern):
        """The page's policy forbids Playwright's functions that wait."""
        self.page.locator(selector, has_text=re.compile(pattern)).wait_for()

    def set(self, **values):
        self.page.get_by_role("button", name="Parameters").click()
        for name, value in values.items():
            self.page.fill(f'[data-field="{name}"]', str(value))
        self.page.get_by_role("button", name="Done").click()

    def say(self, text):
        """Sends it and waits for the end of the answer, which the model gives back up to STOP."""
        self.page.fill("#prompt", text)
        self.page.press("#prompt", "Enter")
        self.page.wait_for_selector("#stop", state="hidden")

    def answer(self):
        """The last one."""
        return self.page.locator(".turn.assistant").last


@pytest.fixture
def visit(browser):
    opened = []

    def go(server, **options):
        """server: a Server, or an address."""
        opened.append(Visit(browser, getattr(server, "url", server), **options))
        return opened[-1]

    yield go
    for one in opened:
        one.context.close()


@pytest.fixture
def ready(visit, server):
    """A page that echoes messages up to STOP."""
    seen = visit(server).wait_until_ready()
    seen.set(stop=STOP)
    return seen
