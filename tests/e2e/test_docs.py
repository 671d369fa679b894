"""The documentation's commands are ones that exist, with flags that they have."""

import re

import pytest

CODE = re.compile(r"```\n(.*?)```|`([^`\n]+)`", re.DOTALL)
FLAG = re.compile(r"--?[a-z][a-z0-9-]*")


def commands_of(page):
    """Every command line in code, continued lines joined, without its comment."""
    for block, span in CODE.findall(page.read_text()):
        for line in (block or span).replace("\\\n", " ").splitlines():
            words = re.sub(r"\s#.*", "", line).replace("build/pinion ", "pinion ").split()
            if words and (words[0] == "pinion" or re.match(r"scripts/\w", words[0])):
                yield words


def flags_of(words):
    """The flags of a command; quoted ones are another program's."""
    text = re.sub(r"'[^']*'|\"[^\"]*\"", "", " ".join(words))
    return {word.split("=")[0] for word in text.split() if FLAG.fullmatch(word.split("=")[0])}


@pytest.fixture(scope="session")
def help_of(pinion):
    """help_of("model", "quantize") -> its help text; None if there is no such command."""
    known = {}

    def ask(*names):
        if names not in known:
            done = pinion(*names, "--help")
            known[names] = done.stdout if done.returncode == 0 else None
        return known[names]

    return ask


def unknown(words, help_of, top):
    """The flags of a command line that its program lacks."""
    if words[0].startswith("scripts/"):
        script = top / words[0]
        text = script.read_text() if script.is_file() else None
    else:
        names = [word for word in words[1:] if not word.startswith("-")]
        names = [] if words[1:2] and words[1].startswith("-") else names[:2 if names[:1] == ["model"] else 1]
        text = help_of(*names)
    if text is None:
        return "does not exist"
    missing = [flag for flag in sorted(flags_of(words)) if not re.search(rf"(?<![\w-]){flag}(?![\w-])", text)]
    return f"has no {missing[0]}" if missing else None


def test_every_command_in_the_documentation_exists_with_its_flags(help_of, top):
    pages = [*top.glob("*.md"), *top.glob("docs/*.md"), *top.glob("*/README.md")]
    commands = [(page.relative_to(top), words) for page in pages for words in commands_of(page)]
    assert len(commands) > 50
    wrong = [(f"{page}: {' '.join(words)}", reason) for page, words in commands
             if (reason := unknown(words, help_of, top))]
    assert wrong == []


def test_the_page_on_verdicts_has_every_constant_with_its_value(top):
    rules = (top / "harness/stats/rules.h").read_text()
    constants = dict(re.findall(r"inline constexpr \w+ (k\w+) = ([\d.]+);", rules))
    assert len(constants) == rules.count("inline constexpr")
    rows = re.findall(r"^\| ((?:`k\w+`(?:, )?)+) \| ([\d., ]+) \|", (top / "docs/verdicts.md").read_text(), re.MULTILINE)
    told = {name: value for names, values in rows
            for name, value in zip(re.findall(r"k\w+", names), values.split(", "), strict=True)}
    assert told == constants
