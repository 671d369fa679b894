"""The list of changes that scripts/mutants tries: its entries, how they are read and checked."""

import dataclasses
import hashlib
import json
import pathlib
import re
import shlex

TOP = pathlib.Path(__file__).resolve().parent.parent
LISTS = TOP / "tests" / "mutants"
# Build kinds by name: the folder and the options that CMake gets.
BUILDS = {"release": ("build", []),
          "address": ("build-asan", ["-DPINION_SANITIZE=address"]),
          "thread": ("build-tsan", ["-DPINION_SANITIZE=thread"])}


class Refused(Exception):
    """The list contradicts the tree, the tests fail unchanged, or the folder is in use."""


@dataclasses.dataclass
class Mutant:
    """One change: `before`, which occurs once in `file`, becomes `after`."""
    name: str
    file: str = ""
    before: str = ""
    after: str = ""
    rule: str = ""
    build: str = "release"
    equivalent: str = ""
    tests: list = dataclasses.field(default_factory=list)

    def digest(self):
        text = json.dumps([self.file, self.before, self.after, self.build, self.tests])
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def mutate(self, text):
        found = text.count(self.before) if self.before else 0
        if found != 1:
            raise Refused(f"{self.name}: '{self.before}' occurs {found} times in {self.file}, "
                          "want once: bring tests/mutants up to date")
        return text.replace(self.before, self.after)


@dataclasses.dataclass(frozen=True)
class Test:
    """One command of a `test:` line, in one build kind."""
    line: str
    build: str

    def words(self):
        """({NAME: VALUE}, [program or file, arguments...])"""
        words = shlex.split(self.line)
        count = next((i for i, word in enumerate(words) if not re.match(r"[A-Z_]+=", word)), 0)
        return dict(word.split("=", 1) for word in words[:count]), words[count:]

    def is_e2e(self):
        return self.words()[1][0].startswith("tests/e2e/")

    def target(self):
        return "pinion" if self.is_e2e() else self.words()[1][0]


def read_list():
    mutants = []
    lines = [(f"{path.name}:{number}", line) for path in sorted(LISTS.glob("*.txt"))
             for number, line in enumerate(path.read_text().splitlines(), 1)]
    for place, line in lines:
        key, _, value = line.partition(" ")
        if not line.strip() or line.startswith("#"):
            continue
        if line.startswith("["):
            mutants.append(Mutant(line.strip("[]")))
            continue
        field = {"-": "before", "+": "after"}.get(key, key.rstrip(":"))
        if not mutants or field not in ("file", "before", "after", "rule", "build", "equivalent",
                                        "test"):
            raise Refused(f"tests/mutants/{place}: '{line}' is not a line of an entry")
        if field == "test":
            mutants[-1].tests.append(value.strip())
        else:
            setattr(mutants[-1], field, value.strip())
    return mutants


def check_entry(mutant):
    """Raises Refused unless the entry is complete and agrees with the tree."""
    lacks = [field for field in ("file", "before", "rule", "tests") if not getattr(mutant, field)]
    if lacks:
        raise Refused(f"{mutant.name}: no {', '.join(lacks)}")
    if mutant.before == mutant.after:
        raise Refused(f"{mutant.name}: the change changes nothing")
    if mutant.build not in BUILDS:
        raise Refused(f"{mutant.name}: build '{mutant.build}', want {', '.join(BUILDS)}")
    if not (TOP / mutant.file).is_file():
        raise Refused(f"{mutant.name}: no file {mutant.file}")
    mutant.mutate((TOP / mutant.file).read_text())
    for line in mutant.tests:
        first = Test(line, mutant.build).words()[1][0]
        # test_engine_kv: engine/kv; test_engine_exec_cpu: engine/exec/cpu
        name = first.removeprefix("test_")
        places = [first] if first.startswith("tests/e2e/") else [
            f"tests/{name.replace('_', '/', depth)}" for depth in range(3)]
        if not any((TOP / place).exists() for place in places):
            raise Refused(f"{mutant.name}: '{first}' is neither a test program nor an e2e file")


def check_list(mutants):
    """Raises a single error that lists everything wrong."""
    names = [mutant.name for mutant in mutants]
    wrong = [f"{name}: the name is used twice" for name in set(names) if names.count(name) > 1]
    for mutant in mutants:
        try:
            check_entry(mutant)
        except Refused as error:
            wrong.append(str(error))
    if wrong:
        raise Refused("\n".join(wrong))
