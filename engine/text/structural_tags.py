"""Structural tags, vLLM's and xgrammar's, as a grammar in Lark; runs inside the grammar helper's process (see README.md).

A tag's text is read up to the first of what ends it, so free text ends with its tag's end, or with the answer.
"""

import json
import re


def quoted(text):
    """A string of Lark's."""
    return json.dumps(text, ensure_ascii=False)


def one_of(texts):
    return "(" + " | ".join(map(quoted, texts)) + ")"


# The fields of each part but its type: what they are if they are left out, or REQUIRED.
REQUIRED = object()
FIELDS = {
    "const_string": {"value": REQUIRED},
    "json_schema": {"json_schema": REQUIRED, "style": "json", "any_order": False, "max_whitespace_cnt": None},
    "qwen_xml_parameter": {"json_schema": REQUIRED},
    "grammar": {"grammar": REQUIRED},
    "regex": {"pattern": REQUIRED, "excludes": ()},
    "any_text": {"excludes": (), "max_chars": None, "max_tokens": None},
    "sequence": {"elements": REQUIRED},
    "or": {"elements": REQUIRED},
    "optional": {"content": REQUIRED},
    "plus": {"content": REQUIRED},
    "star": {"content": REQUIRED},
    "repeat": {"content": REQUIRED, "min": REQUIRED, "max": REQUIRED},
    "tag": {"begin": REQUIRED, "content": REQUIRED, "end": REQUIRED},
    "triggered_tags": {"triggers": REQUIRED, "tags": REQUIRED, "at_least_one": False, "stop_after_first": False,
                       "excludes": ()},
    "tags_with_separator": {"tags": REQUIRED, "separator": REQUIRED, "at_least_one": False,
                            "stop_after_first": False},
    "dispatch": {"rules": REQUIRED, "loop": True, "excludes": ()},
}
# Those that have one value here.
ONLY = {"any_order": False, "max_whitespace_cnt": None, "max_tokens": None}


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
    found = {name: part.get(name, default) for name, default in FIELDS[kind].items()}
    for name, value in found.items():
        if value is REQUIRED:
            raise ValueError(f"the part {kind!r} has no {name!r}")
    return found


def texts_of(value, what):
    if not (isinstance(value, (list, tuple)) and all(isinstance(text, str) for text in value)):
        raise ValueError(f"{what} is {quoted(value)[:100]}, want a list of strings")
    return value


def text_of(value, what):
    if not isinstance(value, str):
        raise ValueError(f"{what} is {quoted(value)[:100]}, want a string")
    return value


def parts_of(value, what):
    if not isinstance(value, list) or not value:
        raise ValueError(f"{what} is {quoted(value)[:100]}, want a list of at least one part")
    return value


class Compiler:
    """Makes rules out of parts. `of_schema` and `of_grammar` turn a JSON Schema and a grammar into what a rule refers
    to; the latter may need a grammar of its own, which it gives as well."""

    def __init__(self, of_schema, of_grammar):
        self.of_schema, self.of_grammar = of_schema, of_grammar
        self.rules, self.grammars = [], []

    def rule(self, body, options="", terminal=False):
        name = f"{'T' if terminal else 'r'}{len(self.rules)}"
        self.rules.append(f"{name}{options}: {body}")
        return name

    def compile(self, part, ends=(), last=True):
        """The name of a rule for a part and, if there are some, one of the texts `ends` behind it. `last`: nothing else
        follows, so that it may go on for as long as the answer does."""
        fields = fields_of(part)
        return getattr(self, "part_" + part["type"])(fields, ends, last)

    def ended(self, body, ends):
        return self.rule(f"({body}) {one_of(ends)}" if ends else body or '""')

    def any_of(self, bodies):
        return self.rule(" | ".join(bodies))

    # Free text.

    def text_without(self, excludes, most=None):
        repeated = "*" if most is None else f"{{0,{most}}}"
        body = f"/(.|\\n){repeated}/"
        if excludes:
            body += f" & ~(/(.|\\n)*/ {one_of(excludes)} /(.|\\n)*/)"
        return self.rule(body, terminal=True)

    def up_to(self, text, ends):
        """The terminal `text` and the first of `ends`."""
        return self.rule(f"{text} {one_of(ends)}", "[lazy]")

    def free(self, text, ends, last, what):
        """The terminal `text`, which only its end bounds."""
        if ends and "" not in ends:
            return self.up_to(text, ends)
        if not last:
            raise ValueError(f"{what} has no end and is followed by more; put it last, or in a tag with an 'end'")
        return self.rule(text)

    def part_any_text(self, fields, ends, last):
        most = fields["max_chars"]
        if most is not None and (type(most) is not int or most < 0):
            raise ValueError(f"'max_chars' is {quoted(most)[:40]}, want a number from 0 on")
        text = self.text_without(texts_of(fields["excludes"], "'excludes'"), most)
        return self.free(text, ends, last or most is not None, "a part 'any_text'")

    def part_regex(self, fields, ends, last):
        pattern = re.sub(r"\\.|[/\n]", lambda found: {"/": r"\/", "\n": r"\n"}.get(found[0], found[0]),
                         text_of(fields["pattern"], "'pattern'"))
        if not pattern:
            return self.ended('""', ends)
        body = f"/{pattern}/"
        if excludes := texts_of(fields["excludes"], "'excludes'"):
            body += f" & ~(/(.|\\n)*/ {one_of(excludes)} /(.|\\n)*/)"
        text = self.rule(body, terminal=True)
        return self.free(text, ends, True, "a part 'regex'")

    # Other texts that stand for themselves.

    def part_const_string(self, fields, ends, last):
        return self.ended(quoted(text_of(fields["value"], "'value'")), ends)

    def part_json_schema(self, fields, ends, last):
        if fields["style"] == "qwen_xml":
            return self.part_qwen_xml_parameter(fields, ends, last)
        if fields["style"] != "json":
            raise ValueError(f"the style {quoted(fields['style'])[:40]} is not supported, want json or qwen_xml")
        return self.ended(self.of_schema(fields["json_schema"]), ends)

    def part_grammar(self, fields, ends, last):
        name = f"g{len(self.grammars)}"
        self.grammars.append({"name": name, "lark_grammar": self.of_grammar(text_of(fields["grammar"], "'grammar'"))})
        return self.ended("@" + name, ends)

    def part_qwen_xml_parameter(self, fields, ends, last):
        """<parameter=NAME>VALUE</parameter> for the properties of an object, in their order; a text has no quotes."""
        schema = fields["json_schema"]
        known = {"type", "properties", "required", "additionalProperties", "description", "title", "$defs",
                 "definitions"}
        if not isinstance(schema, dict) or schema.get("type") != "object" or set(schema) - known:
            raise ValueError(f"the schema of Qwen's parameters is {quoted(schema)[:100]}, want an object's, with "
                             "'properties', 'required' and 'additionalProperties' alone")
        shared = {name: schema[name] for name in ("$defs", "definitions") if name in schema}
        body = []
        for name, value in schema.get("properties", {}).items():
            one = self.rule(f"{quoted(f'<parameter={name}>')} {self.qwen_value(value, shared)} /\\n?/")
            body.append(one if name in schema.get("required", ()) else one + "?")
        return self.ended(" ".join(body), ends)

    def qwen_value(self, schema, shared):
        end = "</parameter>"
        if isinstance(schema, dict) and schema.get("type") == "string" and not set(schema) - {
                "type", "description", "title", "default"}:
            return self.up_to(self.text_without(()), [end])
        if isinstance(schema, dict) and isinstance(schema.get("enum"), list) and all(
                isinstance(value, str) for value in schema["enum"]):
            return self.rule(f"/\\n?/ {one_of(schema['enum'])} /\\n?/ {quoted(end)}")
        if isinstance(schema, dict):
            schema = {**shared, **schema}
        return self.rule(f"/\\n?/ {self.of_schema(schema)} /\\n?/ {quoted(end)}")

    # Parts made of parts.

    def part_sequence(self, fields, ends, last):
        *before, behind = parts_of(fields["elements"], "'elements'")
        names = [self.compile(part, last=False) for part in before]
        return self.rule(" ".join([*names, self.compile(behind, ends, last)]))

    def part_or(self, fields, ends, last):
        return self.any_of([self.compile(part, ends, last) for part in parts_of(fields["elements"], "'elements'")])

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
        if type(least) is not int or type(most) is not int or least < 0 or (most != -1 and most < least):
            raise ValueError(f"'min' and 'max' are {quoted(least)[:20]} and {quoted(most)[:20]}, want numbers from 0 on, "
                             "the second not below the first, or -1")
        return self.repeated(fields, ends, f"{{{least},{'' if most == -1 else most}}}")

    # Tags.

    def part_tag(self, fields, ends, last):
        begin = text_of(fields["begin"], "'begin' of a tag")
        return self.rule(" ".join(filter(None, [begin and quoted(begin), self.tag_rest(fields, ends, last)])))

    def tag_rest(self, fields, ends, last):
        """What follows a tag's beginning."""
        own = fields["end"] if isinstance(fields["end"], list) else [fields["end"]]
        texts_of(own, "'end' of a tag")
        if own == [""]:
            return self.compile(fields["content"], ends, last)
        content = self.compile(fields["content"], own, last and not ends)
        return self.ended(content, ends)

    def tags_of(self, value):
        tags = [{"type": "tag", **tag} if isinstance(tag, dict) else tag for tag in parts_of(value, "'tags'")]
        for tag in tags:
            fields_of(tag)
            if tag["type"] != "tag":
                raise ValueError(f"'tags' has a part {tag['type']!r}, want parts 'tag'")
        return tags

    def part_tags_with_separator(self, fields, ends, last):
        tag = self.any_of([self.compile(tag, last=False) for tag in self.tags_of(fields["tags"])])
        separator = text_of(fields["separator"], "'separator'")
        more = "" if fields["stop_after_first"] else f" ({separator and quoted(separator)} {tag})*"
        return self.ended(f"{tag}{more}" if fields["at_least_one"] else f"({tag}{more})?", ends)

    def part_triggered_tags(self, fields, ends, last):
        triggers = [trigger for trigger in texts_of(fields["triggers"], "'triggers'") if trigger]
        behind, first = {}, []
        for tag in map(fields_of, self.tags_of(fields["tags"])):
            begin = text_of(tag["begin"], "'begin' of a tag")
            begins = [trigger for trigger in triggers if begin.startswith(trigger)]
            if not begins:
                raise ValueError(f"the tag's 'begin' {begin[:100]!r} starts with none of the triggers")
            trigger = max(begins, key=len)
            rest = self.tag_rest(tag, (), False)
            following = begin[len(trigger):]
            behind.setdefault(trigger, []).append(f"{quoted(following)} {rest}" if following else rest)
            first.append(f"{quoted(begin)} {rest}")
        return self.dispatched(behind, first if fields["at_least_one"] else None, not fields["stop_after_first"],
                               fields["excludes"], ends, last, "a part 'triggered_tags'")

    def part_dispatch(self, fields, ends, last):
        behind = {}
        for rule in parts_of(fields["rules"], "'rules'"):
            if not (isinstance(rule, list) and len(rule) == 2 and isinstance(rule[0], str) and rule[0]):
                raise ValueError(f"a rule of 'dispatch' is {quoted(rule)[:100]}, want a text and a part")
            behind.setdefault(rule[0], []).append(self.compile(rule[1], last=False))
        return self.dispatched(behind, None, fields["loop"], fields["excludes"], ends, last, "a part 'dispatch'")

    def dispatched(self, behind, first, loop, excludes, ends, last, what):
        """Text, in which each of the texts in `behind` is followed by one of the rules that it has there. `first`: what
        comes before any text, where something must. `loop`: more text follows than one of them."""
        text = self.text_without(texts_of(excludes, "'excludes'"))
        calls = self.any_of([f"{self.up_to(text, [begin])} ({' | '.join(rules)})" for begin, rules in behind.items()])
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
    made = [{"type": "tag", "begin": one["begin"], "content": {"type": "json_schema", "json_schema": one["schema"]},
             "end": one["end"]} for one in tags["structures"]]
    if not made:
        raise ValueError("the structural tags have no structures, want at least one")
    return {"type": "triggered_tags", "triggers": tags["triggers"], "tags": made}


def to_grammar(tags, of_schema, of_grammar):
    """A grammar for the library, as text."""
    if not isinstance(tags, dict):
        raise ValueError(f"the structural tags are {quoted(tags)[:100]}, want an object")
    compiler = Compiler(of_schema, of_grammar)
    start = compiler.compile(tags["format"] if "format" in tags else newer(tags))
    lark = "\n".join(["%llguidance {}", f"start: {start}", *compiler.rules]) + "\n"
    return json.dumps({"grammars": [{"name": "structural_tag", "lark_grammar": lark}, *compiler.grammars]})
