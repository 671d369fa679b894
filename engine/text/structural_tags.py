"""Structural tags, vLLM's and xgrammar's, as a grammar in Lark; runs inside the grammar helper's process (see README.md).

A tag's text is read up to the first mark that ends it, so free text ends with its tag's end, or with the answer.
"""

import functools
import json
import re


def quoted(text):
    """A string of Lark's."""
    return json.dumps(text, ensure_ascii=False)


def one_of(texts):
    return "(" + " | ".join(map(quoted, texts)) + ")"


REQUIRED = object()


class Field:
    """`want`: what it may be, in the words of an error; `fits`: whether a value is that. `default`: the value if the field
    is left out; REQUIRED: it may not be. A field whose default is None may be null."""

    def __init__(self, want, fits, default=REQUIRED):
        self.want, self.fits, self.default = want, fits, default

    def __call__(self, default):
        return Field(self.want, self.fits, default)

    def checked(self, value, what):
        if not (self.fits(value) or (value is None and self.default is None)):
            raise ValueError(f"{what} is {quoted(value)[:100]}, want {self.want}")
        return value


def is_text(value):
    return isinstance(value, str)


def is_texts(value):
    return isinstance(value, (list, tuple)) and all(map(is_text, value))


ANY = Field("", lambda value: True)
TEXT = Field("a string", is_text)
TEXTS = Field("a list of strings", is_texts)
END = Field("a string or a list of at least one", lambda value: is_text(value) or (is_texts(value) and len(value) > 0))
FLAG = Field("true or false", lambda value: isinstance(value, bool))
# The library's bound of repetitions, which no answer comes near.
MOST_REPEATED = 2**31 - 1
COUNT = Field(f"a number from 0 to {MOST_REPEATED}", lambda value: type(value) is int and 0 <= value <= MOST_REPEATED)
MOST = Field(f"a number from 0 to {MOST_REPEATED}, or -1 for no bound",
             lambda value: type(value) is int and -1 <= value <= MOST_REPEATED)
PARTS = Field("a list of at least one part", lambda value: isinstance(value, list) and len(value) > 0)
OBJECT = Field("an object", lambda value: isinstance(value, dict))

# The fields of each part but its type.
FIELDS = {
    "const_string": {"value": TEXT},
    "json_schema": {"json_schema": ANY, "style": TEXT("json"), "any_order": FLAG(False),
                    "max_whitespace_cnt": COUNT(None)},
    "qwen_xml_parameter": {"json_schema": ANY},
    "grammar": {"grammar": TEXT},
    "regex": {"pattern": TEXT, "excludes": TEXTS(())},
    "any_text": {"excludes": TEXTS(()), "max_chars": COUNT(None), "max_tokens": COUNT(None)},
    "sequence": {"elements": PARTS},
    "or": {"elements": PARTS},
    "optional": {"content": ANY},
    "plus": {"content": ANY},
    "star": {"content": ANY},
    "repeat": {"content": ANY, "min": COUNT, "max": MOST},
    "tag": {"begin": TEXT, "content": ANY, "end": END},
    "triggered_tags": {"triggers": TEXTS, "tags": PARTS, "at_least_one": FLAG(False), "stop_after_first": FLAG(False),
                       "excludes": TEXTS(())},
    "tags_with_separator": {"tags": PARTS, "separator": TEXT, "at_least_one": FLAG(False),
                            "stop_after_first": FLAG(False)},
    "dispatch": {"rules": PARTS, "loop": FLAG(True), "excludes": TEXTS(())},
}
# Those that have one value here.
ONLY = {"any_order": False, "max_whitespace_cnt": None, "max_tokens": None}
# Of the schema of Qwen's parameters; other parameters than its properties are never allowed.
QWEN_FIELDS = {"properties": OBJECT({}), "required": TEXTS(()), "$defs": OBJECT({}), "definitions": OBJECT({}),
               "additionalProperties": Field("false, or to be left out", lambda value: value is False, False)}


def fields_of(part):
    """The fields of a part by name, with defaults; ValueError for those that are unknown or not supported."""
    if not isinstance(part, dict) or not isinstance(part.get("type"), str):
        raise ValueError(f"a part is {quoted(part)[:100]}, want an object with a 'type'")
    kind = part["type"]
    if kind not in FIELDS:
        raise ValueError(f"the part {kind[:40]!r} is not supported, want one of {', '.join(FIELDS)}")
    for name, value in part.items():
        if name != "type" and name not in FIELDS[kind]:
            raise ValueError(f"the part {kind!r} has {name[:40]!r}, want one of {', '.join(FIELDS[kind])}")
        if name in ONLY and value != ONLY[name]:
            raise ValueError(f"'{name}' of the part {kind!r} is not supported; leave it out")
    return {name: field_of(part, name, field, f"the part {kind!r}") for name, field in FIELDS[kind].items()}


def field_of(values, name, field, owner):
    value = values.get(name, field.default)
    if value is REQUIRED:
        raise ValueError(f"{owner} has no {name!r}")
    return field.checked(value, f"'{name}' of {owner}")


def has_reference(schema):
    rest = [schema]
    while rest:
        part = rest.pop()
        if isinstance(part, dict):
            if "$ref" in part:
                return True
            rest.extend(part.values())
        elif isinstance(part, list):
            rest.extend(part)
    return False


def excluding(excludes):
    """The part of a terminal that keeps these texts out of it."""
    return f" & ~(/(.|\\n)*/ {one_of(excludes)} /(.|\\n)*/)" if excludes else ""


class Ends:
    """Texts of which one must come. The grammar has them once, for all the branches that end so."""

    def __init__(self, texts, compiler):
        self.texts, self.compiler = texts, compiler
        self.may_be_nothing = "" in texts

    @functools.cached_property
    def rule(self):
        return self.compiler.rule(one_of(self.texts))

    @functools.cached_property
    def terminal(self):
        """The same, for a terminal to refer to."""
        return self.compiler.rule(one_of(self.texts), terminal=True)


class Compiler:
    """Makes rules out of parts. `of_schema` and `of_grammar` turn a JSON Schema and a grammar into what a rule refers
    to; the latter may need a grammar of its own, which it gives as well. All rules have `most_bytes` at most."""

    def __init__(self, of_schema, of_grammar, most_bytes):
        self.of_schema, self.of_grammar = of_schema, of_grammar
        self.most_bytes, self.bytes = most_bytes, 0
        self.rules, self.grammars = [], []

    def count(self, text):
        self.bytes += len(text.encode("utf-8", "surrogatepass"))
        if self.bytes > self.most_bytes:
            raise ValueError(f"the grammar that the structural tags stand for has more than {self.most_bytes} bytes; want "
                             "fewer or smaller parts")
        return text

    def rule(self, body, options="", terminal=False):
        name = f"{'T' if terminal else 'r'}{len(self.rules)}"
        self.rules.append(self.count(f"{name}{options}: {body}"))
        return name

    def compile(self, part, ends=None, last=True):
        """The name of a rule for a part and, if there are some, one of `ends` behind it. `last`: nothing else follows, so
        that it may go on for as long as the answer does."""
        fields = fields_of(part)
        return getattr(self, "part_" + part["type"])(fields, ends, last)

    def ended(self, body, ends):
        return self.rule(f"({body}) {ends.rule}" if ends else body or '""')

    def any_of(self, bodies):
        return self.rule(" | ".join(bodies))

    # Free text.

    def text_without(self, excludes, most=None):
        repeated = "*" if most is None else f"{{0,{most}}}"
        return self.rule(f"/(.|\\n){repeated}/" + excluding(excludes), terminal=True)

    def up_to(self, text, ends):
        """The terminal `text` and the first of `ends`."""
        return self.rule(f"{text} {ends.terminal}", "[lazy]")

    def free(self, text, ends, last, what):
        """The terminal `text`, which only its end bounds."""
        if ends and not ends.may_be_nothing:
            return self.up_to(text, ends)
        if not last:
            raise ValueError(f"{what} has no end and is followed by more; put it last, or in a tag with an 'end'")
        return self.rule(text)

    def part_any_text(self, fields, ends, last):
        most = fields["max_chars"]
        text = self.text_without(fields["excludes"], most)
        return self.free(text, ends, last or most is not None, "a part 'any_text'")

    def part_regex(self, fields, ends, last):
        pattern = fields["pattern"]
        if (len(pattern) - len(pattern.rstrip("\\"))) % 2:
            raise ValueError(f"'pattern' {pattern[-40:]!r} ends in a backslash without what it escapes; write two for one")
        # A line of the grammar and its slashes end where they do.
        pattern = re.sub(r"\\.|[/\n]", lambda found: {"/": r"\/", "\n": r"\n", "\\\n": r"\n"}.get(found[0], found[0]),
                         pattern, flags=re.DOTALL)
        if not pattern:
            return self.ended('""', ends)
        text = self.rule(f"/{pattern}/" + excluding(fields["excludes"]), terminal=True)
        return self.free(text, ends, True, "a part 'regex'")

    # Other texts that stand for themselves.

    def part_const_string(self, fields, ends, last):
        return self.ended(quoted(fields["value"]), ends)

    def part_json_schema(self, fields, ends, last):
        if fields["style"] == "qwen_xml":
            return self.part_qwen_xml_parameter(fields, ends, last)
        if fields["style"] != "json":
            raise ValueError(f"the style {quoted(fields['style'])[:40]} is not supported, want json or qwen_xml")
        return self.ended(self.of_schema(fields["json_schema"]), ends)

    def part_grammar(self, fields, ends, last):
        name = f"g{len(self.grammars)}"
        self.grammars.append({"name": name, "lark_grammar": self.count(self.of_grammar(fields["grammar"]))})
        return self.ended("@" + name, ends)

    def part_qwen_xml_parameter(self, fields, ends, last):
        """<parameter=NAME>VALUE</parameter> for the properties of an object, in their order; a text has no quotes."""
        schema = fields["json_schema"]
        known = {"type", "description", "title", *QWEN_FIELDS}
        if not isinstance(schema, dict) or schema.get("type") != "object" or set(schema) - known:
            raise ValueError(f"the schema of Qwen's parameters is {quoted(schema)[:100]}, want an object's, with "
                             "'properties', 'required' and 'additionalProperties' alone")
        found = {name: field_of(schema, name, field, "the schema of Qwen's parameters")
                 for name, field in QWEN_FIELDS.items()}
        shared = {name: found[name] for name in ("$defs", "definitions") if found[name]}
        required = set(found["required"])
        body = []
        for name, value in found["properties"].items():
            one = self.rule(f"{quoted(f'<parameter={name}>')} {self.qwen_value(value, shared)} /\\n?/")
            body.append(one if name in required else one + "?")
        return self.ended(" ".join(body), ends)

    def qwen_value(self, schema, shared):
        end = "</parameter>"
        if isinstance(schema, dict) and schema.get("type") == "string" and not set(schema) - {
                "type", "description", "title", "default"}:
            return self.up_to(self.text_without(()), Ends([end], self))
        if isinstance(schema, dict) and isinstance(schema.get("enum"), list) and all(
                isinstance(value, str) for value in schema["enum"]):
            return self.rule(f"/\\n?/ {one_of(schema['enum'])} /\\n?/ {quoted(end)}")
        if isinstance(schema, dict) and has_reference(schema):
            schema = {**shared, **schema}
        return self.rule(f"/\\n?/ {self.of_schema(schema)} /\\n?/ {quoted(end)}")

    # Parts made of parts.

    def part_sequence(self, fields, ends, last):
        *before, behind = fields["elements"]
        names = [self.compile(part, last=False) for part in before]
        return self.rule(" ".join([*names, self.compile(behind, ends, last)]))

    def part_or(self, fields, ends, last):
        return self.any_of([self.compile(part, ends, last) for part in fields["elements"]])

    def part_optional(self, fields, ends, last):
        return self.any_of([self.compile(fields["content"], ends, last), self.ended('""', ends)])

    def repeated(self, fields, ends, suffix):
        return self.ended(self.compile(fields["content"], last=False) + suffix, ends)

    def part_plus(self, fields, ends, last):
        return self.repeated(fields, ends, "+")

    def part_star(self, fields, ends, last):
        return self.repeated(fields, ends, "*")

    def part_repeat(self, fields, ends, last):
        least, most = fields["min"], fields["max"]
        if most != -1 and most < least:
            raise ValueError(f"'min' and 'max' are {least} and {most}, want the second not below the first, or -1")
        content = self.compile(fields["content"], last=False)
        return self.ended('""' if most == 0 else f"{content}{{{least},{'' if most == -1 else most}}}", ends)

    # Tags.

    def part_tag(self, fields, ends, last):
        begin = fields["begin"]
        return self.rule(" ".join(filter(None, [begin and quoted(begin), self.tag_rest(fields, ends, last)])))

    def tag_rest(self, fields, ends, last):
        """The rule that follows a tag's beginning."""
        own = fields["end"] if isinstance(fields["end"], list) else [fields["end"]]
        if own == [""]:
            return self.compile(fields["content"], ends, last)
        content = self.compile(fields["content"], Ends(own, self), last and not ends)
        return self.ended(content, ends)

    def tags_of(self, value):
        tags = [{"type": "tag", **tag} if isinstance(tag, dict) else tag for tag in value]
        for tag in tags:
            fields_of(tag)
            if tag["type"] != "tag":
                raise ValueError(f"'tags' has a part {tag['type']!r}, want parts 'tag'")
        return tags

    def part_tags_with_separator(self, fields, ends, last):
        tag = self.any_of([self.compile(tag, last=False) for tag in self.tags_of(fields["tags"])])
        separator = fields["separator"]
        more = "" if fields["stop_after_first"] else f" ({separator and quoted(separator)} {tag})*"
        return self.ended(f"{tag}{more}" if fields["at_least_one"] else f"({tag}{more})?", ends)

    def part_triggered_tags(self, fields, ends, last):
        triggers = set(fields["triggers"]) - {""}
        lengths = sorted({len(trigger) for trigger in triggers}, reverse=True)
        behind, first = {}, []
        for tag in map(fields_of, self.tags_of(fields["tags"])):
            begin = tag["begin"]
            trigger = next((begin[:length] for length in lengths if begin[:length] in triggers), None)
            if trigger is None:
                raise ValueError(f"the tag's 'begin' {begin[:100]!r} starts with none of the triggers")
            rest = self.tag_rest(tag, None, False)
            following = begin[len(trigger):]
            behind.setdefault(trigger, []).append(f"{quoted(following)} {rest}" if following else rest)
            first.append(f"{quoted(begin)} {rest}")
        return self.dispatched(behind, first if fields["at_least_one"] else None, not fields["stop_after_first"],
                               fields["excludes"], ends, last, "a part 'triggered_tags'")

    def part_dispatch(self, fields, ends, last):
        behind = {}
        for rule in fields["rules"]:
            if not (isinstance(rule, list) and len(rule) == 2 and isinstance(rule[0], str) and rule[0]):
                raise ValueError(f"a rule of 'dispatch' is {quoted(rule)[:100]}, want a text and a part")
            behind.setdefault(rule[0], []).append(self.compile(rule[1], last=False))
        return self.dispatched(behind, None, fields["loop"], fields["excludes"], ends, last, "a part 'dispatch'")

    def dispatched(self, behind, first, loop, excludes, ends, last, what):
        """Text, in which each of the texts in `behind` is followed by one of the rules that it has there. `first`: what
        comes before any text, where something must. `loop`: more text follows than one of them."""
        text = self.text_without(excludes)
        calls = self.any_of([f"{self.up_to(text, Ends([begin], self))} ({' | '.join(rules)})"
                             for begin, rules in behind.items()])
        if first is not None and not loop:
            return self.ended(f"({' | '.join(first)})", ends)
        tail = self.free(text, ends, last, what)
        if first is not None:
            return self.rule(f"({' | '.join(first)}) {calls}* {tail}")
        if loop:
            return self.rule(f"{calls}* {tail}")
        return self.any_of([self.ended(calls, ends), tail])


def newer(tags):
    """Tags in vLLM's older form as a part."""
    if not {"structures", "triggers"} <= tags.keys():
        raise ValueError("the structural tags have no 'format', nor 'structures' and 'triggers'")
    structures = tags["structures"]
    if not isinstance(structures, list) or not structures:
        raise ValueError(f"the structural tags have no structures: 'structures' is {quoted(structures)[:100]}, want a list "
                         "of at least one")
    made = []
    for number, one in enumerate(structures):
        if not isinstance(one, dict):
            raise ValueError(f"structures[{number}] is {quoted(one)[:100]}, want an object")
        found = {name: field_of(one, name, field, f"structures[{number}]")
                 for name, field in {"begin": TEXT, "schema": ANY, "end": TEXT}.items()}
        made.append({"type": "tag", "begin": found["begin"], "end": found["end"],
                     "content": {"type": "json_schema", "json_schema": found["schema"]}})
    return {"type": "triggered_tags", "triggers": tags["triggers"], "tags": made}


def to_grammar(tags, of_schema, of_grammar, most_bytes):
    """A grammar for the library, as text. ValueError if its rules have more than `most_bytes`."""
    if not isinstance(tags, dict):
        raise ValueError(f"the structural tags are {quoted(tags)[:100]}, want an object")
    compiler = Compiler(of_schema, of_grammar, most_bytes)
    start = compiler.compile(tags["format"] if "format" in tags else newer(tags))
    lark = "\n".join(["%llguidance {}", f"start: {start}", *compiler.rules]) + "\n"
    return json.dumps({"grammars": [{"name": "structural_tag", "lark_grammar": lark}, *compiler.grammars]})
