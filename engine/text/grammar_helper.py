"""Which tokens a grammar allows next; runs inside the grammar helper's process (see README.md).

`Grammars` holds the sequences that are constrained. Masks go to memory that the engine shares: one row a
slot, one bit a token, its lowest bit first, 1 for an allowed token.
"""

import ctypes
import json
import mmap
import pathlib
import random
import re
import time

import llguidance
import structural_tags
from llguidance.gbnf_to_lark import any_to_lark

MAX_GRAMMAR_BYTES = 256 << 10
MAX_TAGS_BYTES = 4 * MAX_GRAMMAR_BYTES  # of what structural tags of so many bytes become
MAX_DEPTH = 64
MAX_CHOICES = 4096
MAX_CACHED_GRAMMARS = 64
# Limits of a client's grammar: about 20 ms to build its lexer, 15 ms a mask, 100 MiB of states.
LIMITS = {
    "max_items_in_row": 2000,
    "initial_lexer_fuel": 1_000_000,
    "step_lexer_fuel": 200_000,
    "step_max_items": 50_000,
    "max_lexer_states": 50_000,
    "max_grammar_size": 200_000,
    "verbose_errors": False,
}
# Limits of a check: so many tokens of one or more answers, each mask and all of it in CPU time.
PROBED_TOKENS = 12
MAX_MASK_S = 0.2
MAX_PROBE_S = 1.0
# The library's error where nothing can follow.
NO_WAY_ON = "NoExtension"
# The longest run of forced tokens: a step computes so many about as quickly as one.
MAX_FORCED = 32
MAX_FORCED_S = 0.005  # for finding a run; tokens that are not found in time are chosen by their masks
# No space but one after a comma or a colon: a model that may write any number of them may never stop.
JSON_OPTIONS = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}


class Refused(Exception):
    """One sentence about a grammar, for the client."""


def depth_of(text):
    """How deep brackets nest outside of double-quoted strings; never recurses."""
    deepest = depth = 0
    for mark in re.findall(r'"(?:[^"\\]|\\.)*"|[\[\]{}()]', text, re.DOTALL):
        if mark in "[{(":
            depth += 1
            deepest = max(deepest, depth)
        elif mark in ")}]":
            depth -= 1
    return deepest


def encoded(text):
    """The text's bytes. JSON may name half of a surrogate pair, which is not a character."""
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError as error:
        half = text[error.start]
        raise Refused(f"a text has {json.dumps(half)[1:-1]} alone, half of a surrogate pair; want both halves, or "
                      "another character") from error


def read_json(text):
    value = json.loads(text)
    encoded(json.dumps(value, ensure_ascii=False))
    return value


def bounded(text):
    size = len(encoded(text))
    if size > MAX_GRAMMAR_BYTES:
        raise Refused(f"the grammar has {size} bytes, want at most {MAX_GRAMMAR_BYTES}")
    depth = depth_of(text)
    if depth > MAX_DEPTH:
        raise Refused(f"the grammar nests {depth} deep, want at most {MAX_DEPTH}")
    return text


def choice_grammar(text):
    choices = read_json(text)
    if not (isinstance(choices, list) and all(isinstance(c, str) and c for c in choices)):
        raise Refused("the choices are not a list of texts that are not empty")
    if not 0 < len(choices) <= MAX_CHOICES:
        raise Refused(f"there are {len(choices)} choices, want 1 to {MAX_CHOICES}")
    quoted = (json.dumps(choice, ensure_ascii=False) for choice in choices)
    return llguidance.LLMatcher.grammar_from_lark("start: " + " | ".join(quoted))


def has_inner_id(schema):
    """Whether a part has a base URI of its own: the library resolves references without regard to it."""
    rest = list(schema.values()) if isinstance(schema, dict) else []
    while rest:
        part = rest.pop()
        if isinstance(part, dict):
            if isinstance(part.get("$id"), str):
                return True
            rest.extend(value for key, value in part.items() if key not in ("enum", "const"))
        elif isinstance(part, list):
            rest.extend(part)
    return False


def checked_schema(schema):
    """An object or a truth value, as an object that the library reads without regard to spaces and bounds of its own."""
    if not isinstance(schema, (dict, bool)):
        raise Refused(f"the schema is of type {'null' if schema is None else type(schema).__name__}, want an object")
    # The library's own options inside of a schema could lift the bounds.
    if isinstance(schema, dict) and "x-guidance" in schema:
        raise Refused("the schema has 'x-guidance', which is not supported; leave it out")
    if has_inner_id(schema):
        raise Refused("the schema has '$id' below its top, which is not supported; refer by '#/...' instead")
    if isinstance(schema, bool):
        return {} if schema else {"not": {}}
    return schema


def json_grammar(text):
    schema = read_json(text)
    checked = checked_schema(schema)
    text = text if checked is schema else json.dumps(checked)
    return llguidance.LLMatcher.grammar_from_json_schema(text, overrides=JSON_OPTIONS)


def json_rule(schema):
    """Of a JSON Schema, or the text of one."""
    schema = checked_schema(read_json(schema) if isinstance(schema, str) else schema)
    return "%json " + json.dumps({**schema, "x-guidance": JSON_OPTIONS})


def lark_of(text):
    """Of a grammar in Lark, GBNF or EBNF."""
    try:
        return any_to_lark(text)
    except MemoryError:
        raise
    except Exception as error:  # of which it raises plain ones, where a rule is missing
        raise ValueError(error) from error


def lark_grammar(text):
    return llguidance.LLMatcher.grammar_from_lark(lark_of(text))


def structural_grammar(text):
    return structural_tags.to_grammar(read_json(text), json_rule, lark_of, MAX_TAGS_BYTES)


KINDS = {
    "json": json_grammar,
    "regex": llguidance.LLMatcher.grammar_from_regex,
    "choice": choice_grammar,
    "grammar": lark_grammar,
    "structural_tag": structural_grammar,
}


class Grammars:
    """The constrained sequences of one engine.

    tokenizer   the text of a tokenizer.json, or
    file        the path of one
    vocabulary  the number of logits: ids from the tokenizer's end on are never allowed
    eos_ids     those that end an answer: allowed where the grammar may end
    """

    def __init__(self, tokenizer="", vocabulary=0, eos_ids=(), file=""):
        tokenizer = tokenizer or pathlib.Path(file).read_text(encoding="utf-8")
        self.tokenizer = llguidance.LLTokenizer(tokenizer, n_vocab=vocabulary, eos_token=eos_ids)
        self.eos_ids = eos_ids
        self.row_bytes = (vocabulary + 31) // 32 * 4
        self.limits = llguidance.LLParserLimits(**LIMITS)
        self.compiled = {}
        self.checked = set()
        self.slots = {}
        self.most_forced = {}

    def compile(self, kind, text):
        """A matcher at the grammar's beginning, which its callers copy."""
        key = (kind, text)
        if key not in self.compiled:
            try:
                grammar = KINDS[kind](bounded(text))
            except (ValueError, KeyError, TypeError, AttributeError, AssertionError, RecursionError) as error:
                raise Refused(f"the {kind} cannot be read: {one_line(error)}") from error
            matcher = llguidance.LLMatcher(self.tokenizer, grammar, log_level=0, limits=self.limits)
            if matcher.is_error():
                raise Refused(f"the {kind} is not supported: {one_line(told(kind, matcher.get_error()))}")
            while len(self.compiled) >= MAX_CACHED_GRAMMARS:
                self.compiled.pop(next(iter(self.compiled)))
            self.compiled[key] = matcher
        return self.compiled[key]

    def check(self, kind, text):
        """Refuses what `begin` refuses, what allows no answer, and what costs too much on a random walk."""
        if (kind, text) in self.checked:
            return
        self.probe(kind, text)
        if len(self.checked) >= MAX_CACHED_GRAMMARS:
            self.checked.clear()
        self.checked.add((kind, text))

    def probe(self, kind, text):
        began = time.process_time()
        matcher = self.compile(kind, text).deep_copy()
        row = ctypes.create_string_buffer(self.row_bytes)
        rng = random.Random(7)
        for step in range(PROBED_TOKENS):
            mask_began = time.process_time()
            matcher.unsafe_compute_mask_ptr(ctypes.addressof(row), self.row_bytes)
            if not matcher.is_error():
                self.forced_of(matcher, MAX_FORCED)
            now = time.process_time()
            if matcher.is_error() and matcher.get_error().startswith(NO_WAY_ON):
                raise Refused(f"the {kind} allows " + ("beginnings that no answer has" if step else "no answer"))
            if matcher.is_error():
                raise Refused(f"the {kind} is too costly: {one_line(matcher.get_error())}")
            if now - mask_began > MAX_MASK_S or now - began > MAX_PROBE_S:
                raise Refused(f"the {kind} is too costly to follow; want one with fewer or smaller repetitions")
            token = self.any_allowed(row.raw, rng)
            if token is None and step == 0:
                raise Refused(f"the {kind} allows no answer")
            if token is not None and not matcher.consume_token(token):
                raise Refused(f"the {kind} is too costly: {one_line(matcher.get_error())}")
            if token is None or matcher.is_stopped():  # an answer has ended: another one begins
                matcher = self.compile(kind, text).deep_copy()

    def any_allowed(self, row, rng):
        """One of the tokens that go on; None if there is none."""
        bits = int.from_bytes(row, "little")
        for eos in self.eos_ids:
            ends, bits = bits >> eos & 1, bits & ~(1 << eos)
            if ends and not bits:
                return eos
        if not bits:
            return None
        above = bits >> rng.randrange(bits.bit_length())
        at = bits.bit_length() - above.bit_length()
        return at + (above & -above).bit_length() - 1

    def begin(self, slot, kind, text, most_forced=MAX_FORCED):
        """`most_forced`: the longest run of forced tokens that the sequence can use; 0: none."""
        self.slots[slot] = self.compile(kind, text).deep_copy()
        self.most_forced[slot] = min(most_forced, MAX_FORCED)

    def end(self, slot):
        self.slots.pop(slot, None)
        self.most_forced.pop(slot, None)

    def take(self, slot, *tokens):
        """The tokens that the engine chose; Refused if the grammar does not allow one."""
        matcher = self.slots[slot]
        for token in tokens:
            if not matcher.consume_token(token):
                raise Refused(f"token {token} cannot follow: {one_line(matcher.get_error())}")

    def forced(self, slot):
        """The tokens that must come next in this slot."""
        return self.forced_of(self.slots[slot], self.most_forced[slot])

    def forced_of(self, matcher, most):
        """The tokens that must come next: as long as each one's mask would have a single bit, and at most `most`, the end
        of the answer not counted. For text that is forced the library allows only the tokenizer's own tokens."""
        run = []
        if most == 0:
            return run
        late = time.monotonic() + MAX_FORCED_S
        while len(run) < most and time.monotonic() < late:
            # Asked before every token, as it would be if the tokens came one by one.
            following = matcher.compute_ff_tokens()
            if not following or not matcher.consume_token(following[0]):
                break
            run.append(following[0])
        stopped = matcher.is_stopped()
        if matcher.is_error() or (run and not matcher.rollback(len(run))):
            raise Refused(f"the grammar is too costly: {one_line(matcher.get_error())}")
        return run + self.eos_ids if stopped and len(self.eos_ids) == 1 else run

    def write_mask(self, slot, address):
        """Writes row_bytes at `address`; Refused if the grammar became too costly."""
        matcher = self.slots[slot]
        if matcher.is_error():
            raise Refused(one_line(matcher.get_error()))
        matcher.unsafe_compute_mask_ptr(address, self.row_bytes)
        if matcher.is_error():
            raise Refused(f"the grammar is too costly: {one_line(matcher.get_error())}")


def told(kind, error):
    """The library's error without its place in, and its excerpt of, a grammar that the client has not written."""
    return error if kind == "grammar" else re.sub(r"^(at )?\d+\(\d+\): |\n +\d+ \| .*", "", error, flags=re.DOTALL)


def one_line(error):
    return " ".join(str(error).replace("<non-verbose/>", "").split())[:300] or type(error).__name__


class Helper:
    """Answers requests; `rows` is the address of the shared memory, a row a slot."""

    def __init__(self, rows=0, slots=0):
        self.rows, self.count = rows, slots
        self.grammars = self.memory = None

    def handle(self, request_text):
        try:
            return json.dumps(self.answer(json.loads(request_text)))
        except Refused as refused:
            return json.dumps({"error": str(refused)})

    def answer(self, request):
        if "open" in request:
            self.grammars = Grammars(**request["open"])
            self.map(**request.get("rows", {"count": 0, "fd": -1}))
            return {"row_bytes": self.grammars.row_bytes}
        if "check" in request:
            self.grammars.check(*request["check"])
            return {}
        return self.step(request)

    def map(self, fd, count):
        """Rows in a file that another process has mapped as well."""
        if count > 0:
            self.memory = mmap.mmap(fd, count * self.grammars.row_bytes)
            self.rows, self.count = ctypes.addressof(ctypes.c_char.from_buffer(self.memory)), count

    def step(self, request):
        """Ends, begins and moves sequences on, and writes the masks of those that go on; returns what failed, and the
        forced tokens of each slot that has some."""
        for slot in request.get("end", ()):
            self.grammars.end(slot)
        failed = {}
        for slot, *grammar in request.get("begin", ()):
            self.attempt(failed, slot, self.grammars.begin, *grammar)
        for slot, *tokens in request.get("take", ()):
            self.attempt(failed, slot, self.grammars.take, *tokens)
        forced = {}
        for slot in [s for s, *_ in (*request.get("begin", ()), *request.get("take", ()))]:
            if slot not in failed:
                self.attempt(failed, slot, self.grammars.write_mask, self.address(slot))
            if slot not in failed and (run := self.attempt(failed, slot, self.grammars.forced)):
                forced[slot] = run
        return {"failed": failed, "forced": forced}

    def attempt(self, failed, slot, what, *arguments):
        try:
            return what(slot, *arguments)
        except Refused as refused:
            failed[slot] = str(refused)
            self.grammars.end(slot)
            return None

    def address(self, slot):
        if not 0 <= slot < self.count:
            raise ValueError(f"slot {slot} is outside the {self.count} there are")
        return self.rows + slot * self.grammars.row_bytes


handle = Helper().handle
