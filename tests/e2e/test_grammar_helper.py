"""The grammar helper's Python, called here as its process calls it."""

import ctypes
import json
import pathlib
import random
import re
import time

import grammar_properties
import pytest

if not grammar_properties.ENVIRONMENT.exists():
    pytest.skip("llguidance is not installed by scripts/build", allow_module_level=True)
helper_module = grammar_properties.load_helper()
DATA = pathlib.Path(__file__).parents[1] / "data/models/tiny-trained"
EOS, VOCABULARY = 2, 1024


@pytest.fixture
def grammars():
    return helper_module.Grammars((DATA / "tokenizer.json").read_text(), VOCABULARY, [EOS])


def texts(grammars, kind, text, count=20):
    rng = random.Random(5)
    said = (grammar_properties.sample(grammars, kind, text, EOS, rng) for _ in range(count))
    return [text for text in said if text is not None]


def test_regular_expressions_hold(grammars):
    said = texts(grammars, "regex", "[a-f]{2,5}-[0-9]+")
    assert said and all(re.fullmatch("[a-f]{2,5}-[0-9]+", text) for text in said)


def test_choices_are_taken_as_they_are_written(grammars):
    choices = ['a "quoted" one', "a\\b", "two\nlines", "größe", "/x/"]
    assert set(texts(grammars, "choice", json.dumps(choices), 60)) == set(choices)


@pytest.mark.parametrize("text", ['start: "a" /[0-9]/ "b"', 'root ::= "a" [0-9] "b"'])
def test_lark_and_gbnf_are_told_apart(grammars, text):
    said = texts(grammars, "grammar", text)
    assert said and all(re.fullmatch("a[0-9]b", one) for one in said)


def test_a_structural_tag_holds_from_its_trigger_on(grammars):
    tag = {"structures": [{"begin": "<f=x>", "schema": {"type": "boolean"}, "end": "</f>"}],
           "triggers": ["<f="]}
    for text in texts(grammars, "structural_tag", json.dumps(tag), 60):
        for body in re.split("<f=", text)[1:]:
            assert re.match("x>(true|false)</f>", body)


def tag(begin, schema, end):
    return {"type": "tag", "begin": begin, "content": {"type": "json_schema", "json_schema": schema}, "end": end}


def text(value):
    return {"type": "const_string", "value": value}


FLAG = tag("<f=x>", {"type": "boolean"}, "</f>")
PAIR = tag("<f=y>", {"type": "object", "properties": {"a": {"enum": [1]}}, "required": ["a"],
                     "additionalProperties": False}, "</f>")
CALLS = {"type": "triggered_tags", "triggers": ["<f="], "tags": [FLAG, PAIR]}
PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"},
                                               "unit": {"enum": ["C", "F"]}}, "required": ["city"]}


def takes(grammars, part, said):
    """Whether `said` is a whole answer."""
    matcher = grammars.compile("structural_tag", json.dumps({"type": "structural_tag", "format": part})).deep_copy()
    tokens = grammars.tokenizer.tokenize_str(said)
    return matcher.try_consume_tokens(tokens) == len(tokens) and matcher.is_accepting()


@pytest.mark.parametrize("part, taken, not_taken", [
    (text("so"), ["so"], ["s", "son"]),
    (FLAG, ["<f=x>true</f>"], ["<f=x>true", "<f=x>1</f>", " <f=x>true</f>"]),
    (tag("", {"type": "integer"}, ""), ["12"], ["", "x"]),
    ({**FLAG, "end": ["</f>", "."]}, ["<f=x>true</f>", "<f=x>false."], ["<f=x>false"]),
    (CALLS, ["", "so", 'a<f=x>true</f> b <f=y>{"a": 1}</f>c'], ["<f=", "<f=z>1</f>", "<f=x>1</f>"]),
    ({**CALLS, "at_least_one": True}, ["<f=x>true</f>", "<f=x>true</f>so<f=x>false</f>"], ["", "so<f=x>true</f>"]),
    ({**CALLS, "stop_after_first": True}, ["so", "so<f=x>true</f>"], ["<f=x>true</f>so"]),
    ({**CALLS, "at_least_one": True, "stop_after_first": True}, ["<f=x>true</f>"], ["", "<f=x>true</f><f=x>true</f>"]),
    ({**CALLS, "excludes": ["no"]}, ["so<f=x>true</f>n"], ["no", "<f=x>true</f>no"]),
    ({"type": "tag", "begin": "<r>", "content": CALLS, "end": "</r>"}, ["<r></r>", "<r>a<f=x>true</f>b</r>"],
     ["<r>a", "<r></r>a", "<r><f=</r>"]),
    ({"type": "tags_with_separator", "tags": [FLAG, PAIR], "separator": ","},
     ["", "<f=x>true</f>", '<f=x>true</f>,<f=y>{"a": 1}</f>'], ["<f=x>true</f>,", "so"]),
    ({"type": "tags_with_separator", "tags": [FLAG], "separator": "", "at_least_one": True},
     ["<f=x>true</f>", "<f=x>true</f><f=x>true</f>"], [""]),
    ({"type": "tags_with_separator", "tags": [FLAG], "separator": ",", "stop_after_first": True},
     ["", "<f=x>true</f>"], ["<f=x>true</f>,<f=x>true</f>"]),
    ({"type": "sequence", "elements": [
        {"type": "tag", "begin": "<t>", "content": {"type": "any_text"}, "end": "</t>"}, FLAG]},
     ["<t>a < b</t><f=x>true</f>"], ["<t></t>", "<t></t></t><f=x>true</f>"]),
    ({"type": "or", "elements": [text("yes"), {"type": "regex", "pattern": "[0-9]+/a"}]}, ["yes", "12/a"], ["12", "no"]),
    ({"type": "grammar", "grammar": 'root ::= "q" [a-c]'}, ["qa"], ["qd"]),
    ({"type": "optional", "content": text("a")}, ["", "a"], ["aa"]),
    ({"type": "plus", "content": text("a")}, ["a", "aaa"], ["", "ab"]),
    ({"type": "star", "content": text("a")}, ["", "aaa"], ["ab"]),
    ({"type": "repeat", "min": 1, "max": 2, "content": text("ab")}, ["ab", "abab"], ["", "ababab"]),
    ({"type": "repeat", "min": 2, "max": -1, "content": text("ab")}, ["abab", "ab" * 9], ["ab"]),
    ({"type": "sequence", "elements": [text("a"), {"type": "repeat", "min": 0, "max": 0, "content": text("b")}]},
     ["a"], ["", "ab"]),
    ({"type": "regex", "pattern": "a\\\nb/"}, ["a\nb/"], ["a\\\nb/", "ab/"]),
    ({"type": "or", "elements": [{**FLAG, "end": ["", "."]}, text("so")]}, ["<f=x>true", "<f=x>true.", "so"], ["so."]),
    ({"type": "tag", "begin": "", "content": {"type": "any_text", "max_chars": 3, "excludes": ["x"]}, "end": "."},
     ["ab.", "abé.", "."], ["abcd.", "ax."]),
    ({"type": "dispatch", "rules": [["A:", text("1")], ["B:", FLAG]]}, ["a A:1 b", "B:<f=x>true</f>"], ["A:2", "A:"]),
    ({"type": "dispatch", "rules": [["A:", text("1")]], "loop": False}, ["a A:1", "a"], ["A:1 b"]),
    ({"type": "qwen_xml_parameter", "json_schema": PARAMETERS},
     ["<parameter=city>\nBern\n</parameter>\n<parameter=days>3</parameter>", "<parameter=city>B</parameter>"
      "<parameter=unit>F</parameter>"], ["<parameter=days>3</parameter>", "<parameter=city>B</parameter>"
                                         "<parameter=days>x</parameter>"]),
    ({"type": "json_schema", "json_schema": PARAMETERS, "style": "qwen_xml"}, ["<parameter=city>B</parameter>"], ["{}"]),
])
def test_each_part_of_a_structural_tag_takes_its_texts_alone(grammars, part, taken, not_taken):
    assert [said for said in taken if not takes(grammars, part, said)] == []
    assert [said for said in not_taken if takes(grammars, part, said)] == []


def test_answers_by_a_newer_structural_tag_hold(grammars):
    answer = {"format": {"type": "sequence", "elements": [
        {"type": "tag", "begin": "<t>", "content": {"type": "any_text", "max_chars": 4}, "end": "</t>"},
        {**CALLS, "at_least_one": True}]}}
    said = texts(grammars, "structural_tag", json.dumps(answer), 40)
    assert said
    for one in said:
        calls = re.fullmatch(r"<t>.{0,4}</t>(<f=.*)", one, re.DOTALL)[1]
        assert all(re.match(r'(x>(true|false)|y>\{"a": 1\})</f>', call) for call in calls.split("<f=")[1:])


@pytest.mark.parametrize("part, why", [
    ({"type": "token", "token": 3}, "the part 'token' is not supported, want one of const_string, "),
    ({"type": "any_text", "max_chars": 10**12}, "'max_chars' of the part 'any_text' is 1000000000000, want a number from 0 "
                                                "to 2147483647"),
    ({"type": "repeat", "min": 0, "max": 2**31, "content": text("a")}, "'max' of the part 'repeat' is 2147483648, want a "
                                                                     "number from 0 to 2147483647, or -1 for no bound"),
    ({"type": "any_text", "max_tokens": 3}, "'max_tokens' of the part 'any_text' is not supported"),
    ({"type": "json_schema", "json_schema": {}, "any_order": True}, "'any_order' of the part 'json_schema'"),
    ({"type": "json_schema", "json_schema": {}, "style": "glm_xml"}, 'the style "glm_xml" is not supported'),
    ({"type": "json_schema", "json_schema": {"x-guidance": {}}}, "x-guidance"),
    ({"type": "json_schema", "json_schema": 3}, "type int"),
    ({"type": "sequence", "elements": [{"type": "any_text"}, text("a")]}, "has no end and is followed by more"),
    ({"type": "star", "content": CALLS}, "'triggered_tags' has no end and is followed by more"),
    ({"type": "sequence", "elements": []}, "'elements' of the part 'sequence' is \\[\\], want a list of at least one part"),
    ({"type": "const_string"}, "has no 'value'"),
    ({"type": "const_string", "value": 3}, "'value' of the part 'const_string' is 3, want a string"),
    ({"type": "const_string", "value": "a", "lazy": 1}, "'const_string' has 'lazy'"),
    ({"type": "repeat", "min": 2, "max": 1, "content": text("a")}, "'min' and 'max' are 2 and 1"),
    ({**FLAG, "begin": {"type": "token", "token": 3}}, "'begin' of the part 'tag' is .*, want a string"),
    ({**CALLS, "triggers": ["<g="]}, "'<f=x>' starts with none of the triggers"),
    ({**CALLS, "tags": [text("a")]}, "a part 'const_string', want parts 'tag'"),
    ({"type": "dispatch", "rules": [["", text("a")]]}, "a rule of 'dispatch'"),
    ({"type": "qwen_xml_parameter", "json_schema": {"$ref": "#/a"}}, "Qwen's parameters"),
    ({"type": "qwen_xml_parameter", "json_schema": {**PARAMETERS, "required": "city"}},
     "'required' of the schema of Qwen's parameters is \"city\", want a list of strings"),
    ({"type": "qwen_xml_parameter", "json_schema": {**PARAMETERS, "properties": None}},
     "'properties' of the schema of Qwen's parameters is null, want an object"),
    ({"type": "qwen_xml_parameter", "json_schema": {**PARAMETERS, "additionalProperties": True}},
     "'additionalProperties' of the schema of Qwen's parameters is true, want false"),
    ({**CALLS, "at_least_one": "false"}, "'at_least_one' of the part 'triggered_tags' is \"false\", want true or false"),
    ({**CALLS, "excludes": None}, "'excludes' of the part 'triggered_tags' is null, want a list of strings"),
    ({**FLAG, "end": []}, "'end' of the part 'tag' is \\[\\], want a string or a list of at least one"),
    ({"type": "json_schema", "json_schema": None}, "type null"),
    ({"type": "any_text", "max_chars": True}, "'max_chars' of the part 'any_text' is true, want a number from 0 to "),
    ({"type": "repeat", "min": 0, "max": 0, "content": text(3)}, "'value' of the part 'const_string' is 3"),
    ({"type": "regex", "pattern": "ab\\"}, r"'pattern' 'ab\\\\' ends in a backslash without what it escapes"),
    (3, "a part is 3, want an object"),
])
def test_a_part_that_is_not_supported_is_refused_by_its_name(grammars, part, why):
    with pytest.raises(helper_module.Refused, match=why) as refused:
        grammars.compile("structural_tag", json.dumps({"format": part}))
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("kind, text, why", [
    ("json", "{", "cannot be read"),
    ("json", "3", "type int"),
    ("json", '{"x-guidance": {"lenient": true}}', "x-guidance"),
    ("json", '{"properties": {"a": {"$id": "b"}}}', r"'\$id'"),
    ("json", '{"type": "nothing"}', "not supported"),
    ("json", "[" * 65 + "]" * 65, "65 deep"),
    pytest.param("json", '{"const": "' + "a" * (256 << 10) + '"}', "bytes", id="long"),
    ("regex", "(", "not supported"),
    ("choice", "[]", "0 choices"),
    ("choice", '["a", 1]', "list of texts"),
    ("grammar", "start: missing", "not supported"),
    ("grammar", "root ::= missing", "cannot be read: Rule 'missing' not found"),
    ("grammar", "", "cannot be read: No 'root' rule"),
    ("json", r'{"enum": ["a\ud83d"]}', r"a text has \\ud83d alone, half of a surrogate pair"),
    ("choice", r'["\ude00", "b"]', r"a text has \\ude00 alone, half of a surrogate pair"),
    ("structural_tag", r'{"format": {"type": "const_string", "value": "\ud83d"}}', "half of a surrogate pair"),
    ("regex", "[ab]\ud83d", r"a text has \\ud83d alone, half of a surrogate pair"),
    ("structural_tag", '{"structures": [], "triggers": []}', "no structures"),
    ("structural_tag", "{}", "no 'format', nor 'structures' and 'triggers'"),
    ("structural_tag", "[]", "want an object"),
    ("structural_tag", '{"structures": null, "triggers": []}', "'structures' is null, want a list"),
    ("structural_tag", '{"structures": [3], "triggers": []}', r"structures\[0\] is 3, want an object"),
    ("structural_tag", '{"structures": [{"schema": {}, "end": ""}], "triggers": ["a"]}', r"structures\[0\] has no 'begin'"),
    ("structural_tag", '{"structures": [{"begin": "a", "schema": {}, "end": 1}], "triggers": ["a"]}',
     r"'end' of structures\[0\] is 1, want a string"),
    ("structural_tag", '{"structures": [{"begin": "a", "schema": {}, "end": ""}], "triggers": ["b"]}', "triggers"),
])
def test_a_grammar_that_cannot_be_is_refused_in_one_line(grammars, kind, text, why):
    with pytest.raises(helper_module.Refused, match=why) as refused:
        grammars.compile(kind, text)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("kind, text", [("regex", "("), ("structural_tag", '{"format": {"type": "regex", "pattern": "("}}')])
def test_an_error_shows_nothing_that_the_client_has_not_written(grammars, kind, text):
    with pytest.raises(helper_module.Refused, match="unclosed group$"):
        grammars.compile(kind, text)
    with pytest.raises(helper_module.Refused, match="start: missing"):
        grammars.compile("grammar", "start: missing")


def grammar_of(part):
    schema = json.dumps({"format": part})
    return len(schema), len(helper_module.structural_grammar(schema))


def test_ends_are_written_once_for_all_branches():
    """So that the grammar is a small multiple of its tags: a rule's name and marks are 20 bytes for each part."""
    branches = {"type": "or", "elements": [text(str(i)) for i in range(1000)]}
    asked, made = grammar_of({"type": "tag", "begin": "<", "content": branches, "end": [f"end {i}" for i in range(1000)]})
    assert made < 3 * asked


def test_definitions_go_to_the_parameters_alone_that_refer_to_some():
    shared = {f"type {i}": {"type": "string", "description": "x" * 50} for i in range(100)}
    properties = {f"p{i}": {"type": "integer"} for i in range(200)}
    properties["last"] = {"type": "array", "items": {"$ref": "#/$defs/type 3"}}
    asked, made = grammar_of({"type": "qwen_xml_parameter", "json_schema": {
        "type": "object", "properties": properties, "$defs": shared}})
    # Each parameter has a rule, marks and the library's options, about 200 bytes beside its name.
    assert made < 3 * asked + 200 * len(properties)


def test_tags_that_become_a_huge_grammar_are_refused_before_it_is_made(grammars):
    shared = {"big": {"type": "string", "description": "x" * 100_000}}
    schema = {"type": "object", "$defs": shared, "properties": {f"p{i}": {"$ref": "#/$defs/big"} for i in range(2000)}}
    with pytest.raises(helper_module.Refused, match="stand for has more than 1048576 bytes; want fewer or smaller parts"):
        grammars.compile("structural_tag", json.dumps({"format": {"type": "qwen_xml_parameter", "json_schema": schema}}))


@pytest.fixture
def rows():
    return ctypes.create_string_buffer(4 * VOCABULARY // 8)


@pytest.fixture
def helper(rows):
    made = helper_module.Helper(ctypes.addressof(rows), 4)
    ask(made, open={"tokenizer": (DATA / "tokenizer.json").read_text(), "vocabulary": VOCABULARY, "eos_ids": [EOS]})
    return made


def ask(helper, **request):
    return json.loads(helper.handle(json.dumps(request)))


def row(rows, slot):
    size = VOCABULARY // 8
    return rows.raw[slot * size:(slot + 1) * size]


def test_sequences_move_on_apart_from_each_other(helper, rows):
    both = [[0, "regex", "ab"], [1, "regex", "ab"]]
    assert ask(helper, begin=both)["failed"] == {}
    assert row(rows, 0) == row(rows, 1)
    before = row(rows, 1)
    token = next(i for i in range(VOCABULARY) if helper.grammars.tokenizer.decode_bytes([i]) == b"a")
    assert ask(helper, take=[[0, token]])["failed"] == {}
    assert row(rows, 1) == before != row(rows, 0)


def test_one_that_fails_leaves_the_others_as_they_are(helper, rows):
    ask(helper, begin=[[0, "regex", "ab"], [1, "regex", "ab"]])
    token = next(i for i in range(VOCABULARY) if helper.grammars.tokenizer.decode_bytes([i]) == b"a")
    failed = ask(helper, take=[[0, EOS], [1, token]])["failed"]
    assert list(failed) == ["0"] and "cannot follow" in failed["0"]
    assert any(row(rows, 1))


def test_a_slot_that_ended_can_begin_again(helper):
    ask(helper, begin=[[0, "regex", "ab"]])
    assert ask(helper, end=[0], begin=[[0, "choice", '["c"]']])["failed"] == {}


@pytest.mark.parametrize("kind, text, why", [
    ("regex", "(([a-z]{1,60}){1,60}){1,60}", "too costly"),
    ("json", '{"not": {}}', "not supported"),
    ("json", '{"type": "array", "minItems": 2, "items": false}', ""),
    ("json", '{"$ref": "#"}', "allows no answer"),
    pytest.param("structural_tag", json.dumps({"format": {"type": "or", "elements": [
        {"type": "const_string", "value": str(i)} for i in range(3000)]}}), "too costly: .*max is 2000", id="wide"),
])
def test_a_check_refuses_grammars_that_cost_too_much_or_allow_nothing(grammars, kind, text, why):
    with pytest.raises(helper_module.Refused, match=why):
        grammars.check(kind, text)


def test_a_check_refuses_a_mask_that_costs_too_much(grammars, monkeypatch):
    monkeypatch.setattr(helper_module, "MAX_MASK_S", -1)
    with pytest.raises(helper_module.Refused, match="too costly to follow"):
        grammars.check("regex", "[a-z]+")


def test_a_check_counts_the_time_of_forced_tokens(grammars, monkeypatch):
    def slow(*_):
        began = time.process_time()
        while time.process_time() - began < 2 * helper_module.MAX_MASK_S:
            pass

    monkeypatch.setattr(grammars, "forced_of", slow)
    with pytest.raises(helper_module.Refused, match="too costly to follow"):
        grammars.check("regex", "[a-z]+")


def test_a_sequence_has_no_more_forced_tokens_than_it_can_use(helper, monkeypatch):
    monkeypatch.setattr(helper_module, "MAX_FORCED_S", 60)
    forced = ask(helper, begin=[[0, "regex", "a" * 200], [1, "regex", "a" * 200, 3]])["forced"]
    assert len(forced["0"]) > 3 and forced["1"] == forced["0"][:3]
    assert ask(helper, begin=[[0, "regex", "a" * 200, 0]]) == {"failed": {}, "forced": {}}


def test_a_check_spoils_nothing_for_later_sequences(grammars):
    for _ in range(2):
        grammars.check("choice", '["one", "two"]')
    assert set(texts(grammars, "choice", '["one", "two"]')) == {"one", "two"}


KEYS = json.dumps({"type": "object", "properties": {name: {"type": "boolean"} for name in ("a_key_of_some_length", "größe")},
                   "required": ["a_key_of_some_length", "größe"], "additionalProperties": False})


@pytest.mark.parametrize("kind, text", [("json", KEYS), ("regex", "[0-9]{2}-abcdefgh(x|y)ab"), ("regex", "a" * 200),
                                        ("choice", '["the quick fox", "the quick hare", "größer als alles"]')])
def test_forced_tokens_are_those_that_single_masks_would_give(helper, rows, kind, text):
    """Followed twice: row 0 takes runs at once, row 1 takes their tokens one by one."""
    rng = random.Random(3)
    answer = ask(helper, begin=[[0, kind, text], [1, kind, text]])
    longest = 0
    while True:
        run = answer["forced"].get("0", [])
        longest = max(longest, len(run))
        for token in run:
            assert int.from_bytes(row(rows, 1), "little") == 1 << token
            if token != EOS:
                ask(helper, take=[[1, token]])
        if EOS in run:
            break
        answer = ask(helper, take=[[0, *run]]) if run else {"forced": {}}
        assert row(rows, 0) == row(rows, 1)
        if not answer["forced"] and (token := helper.grammars.any_allowed(row(rows, 0), rng)) is not None:
            answer = ask(helper, take=[[0, token], [1, token]])
            assert answer["failed"] == {}
    assert 3 < longest <= helper_module.MAX_FORCED
