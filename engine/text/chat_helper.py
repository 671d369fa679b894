"""Renders chat templates as transformers does; runs inside the helper process (see README.md).

`handle` takes one request as JSON text and returns one answer as JSON text.
"""

import datetime
import functools
import json

import jinja2
import jinja2.exceptions
import jinja2.ext
import jinja2.nodes
import jinja2.sandbox
import jinja2.utils

REASONING_KEYS = ("reasoning_content", "thinking", "reasoning")
# Marks where the final message ends, so that what the template adds after it can be cut off.
CONTINUE_TAG = "CONTINUE_FINAL_MESSAGE_TAG "
MAX_CACHED_TEMPLATES = 64
# The text of a message by which a template shows what contents it writes.
PROBE = "PROBED CONTENT"
INSTRUCTING_ROLES = ("system", "developer")


class GenerationTag(jinja2.ext.Extension):
    """{% generation %}...{% endgeneration %}: marks the assistant's text for training; gives its body."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        call = self.call_method("_body")
        return jinja2.nodes.CallBlock(call, [], [], body).set_lineno(line)

    def _body(self, caller):
        return caller()


class Namespace(jinja2.utils.Namespace):
    """namespace(), without attributes that begin with an underscore."""

    def __init__(*args, **kwargs):
        self = args[0]
        fields = dict(*args[1:], **kwargs)
        for name in fields:
            refuse_underscore(name)
        jinja2.utils.Namespace.__init__(self, fields)

    def __setitem__(self, name, value):
        refuse_underscore(name)
        super().__setitem__(name, value)


def refuse_underscore(name):
    if str(name).startswith("_"):
        raise jinja2.exceptions.SecurityError(
            "Chat templates cannot store underscore-prefixed attributes on a namespace, "
            f"but got {name!r}. Please rename the attribute."
        )


class DictFunction:
    """dict(...) and dict.fromkeys(...), nothing else of the class."""

    __slots__ = ()

    def __call__(self, *args, **kwargs):
        return dict(*args, **kwargs)

    def fromkeys(self, keys, value=None):
        return dict.fromkeys(keys, value)


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(
        value,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
    )


class Clock:
    """The time that strftime_now returns; `fixed` is an ISO time or None for the real one."""

    fixed = None

    @classmethod
    def strftime(cls, pattern):
        now = datetime.datetime.fromisoformat(cls.fixed) if cls.fixed else datetime.datetime.now()
        return now.strftime(pattern)


class Blank(jinja2.ChainableUndefined):
    """A variable that a probed template does not know, such as a special token: nothing, to which texts can be added."""

    def __add__(self, other):
        return other

    __radd__ = __add__


def make_environment(undefined=jinja2.Undefined):
    environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
        undefined=undefined,
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=[GenerationTag, jinja2.ext.loopcontrols],
    )
    environment.filters["tojson"] = tojson
    environment.globals["raise_exception"] = raise_exception
    environment.globals["strftime_now"] = Clock.strftime
    environment.globals["namespace"] = Namespace
    environment.globals["dict"] = DictFunction()
    return environment


ENVIRONMENT = make_environment()
PROBES = make_environment(Blank)


@functools.lru_cache(maxsize=MAX_CACHED_TEMPLATES)
def compiled(source):
    return ENVIRONMENT.from_string(source)


def with_reasoning_aliases(message):
    """Templates read the reasoning under one of two names: give it under both."""
    if not isinstance(message, dict):
        raise TypeError(f"Each message must be a dict, but got {type(message).__name__}.")
    for key in REASONING_KEYS:
        if message.get(key) is not None:
            value = message[key]
            return {"thinking": value, **message, "reasoning_content": value}
    return message


@functools.lru_cache(maxsize=MAX_CACHED_TEMPLATES)
def compiled_probe(source):
    return PROBES.from_string(source)


def probed(source, messages):
    """The text that a template makes of a conversation of ours."""
    variables = {"messages": messages, "tools": None, "documents": None, "add_generation_prompt": True}
    try:
        return compiled_probe(source).render(variables)
    except Exception:  # it has its say when it gets the true messages
        return ""


def writes(source, content):
    """Whether the template writes the text of this content. One that writes the whole part, as Python or JSON has it, does not."""
    text = probed(source, [{"role": "user", "content": content}])
    return PROBE in text and f"'{PROBE}'" not in text and f'"{PROBE}"' not in text


@functools.lru_cache(maxsize=MAX_CACHED_TEMPLATES)
def takes_strings(source):
    return writes(source, PROBE)


@functools.lru_cache(maxsize=MAX_CACHED_TEMPLATES)
def takes_parts(source):
    return writes(source, [{"type": "text", "text": PROBE}])


def takes_part(source, part):
    """As takes_parts, for a template that wants other members as well: these are a client's, so the answer is not kept."""
    has_more = part.keys() > {"type", "text"}
    return takes_parts(source) or (has_more and writes(source, [{**part, "text": PROBE}]))


@functools.lru_cache(maxsize=MAX_CACHED_TEMPLATES)
def drops_second_part(source, system):
    """Whether the template writes only the first part of a content, in a message of the system or another."""
    content = [{"type": "text", "text": f"{PROBE} {number}"} for number in range(2)]
    user = {"role": "user", "content": content[:1] if system else content}
    text = probed(source, [{"role": "system", "content": content}, user] if system else [user])
    return f"{PROBE} 0" in text and f"{PROBE} 1" not in text


def joined(parts):
    return "\n".join(part["text"] for part in parts)


def fit_parts(one, source):
    """Parts behind the first one join it where the template would drop them."""
    if len(one["content"]) > 1 and drops_second_part(source, one.get("role") in INSTRUCTING_ROLES):
        one["content"] = [{**one["content"][0], "text": joined(one["content"])}]


def fit_contents(messages, source):
    """Contents in parts become strings unless the template writes parts; strings become parts if it writes nothing else."""
    in_parts = [one for one in messages if isinstance(one.get("content"), list)]
    first = next((one["content"][0] for one in in_parts if one["content"]), None)
    if first is not None:
        writes_parts = takes_part(source, first)
        for one in in_parts:
            if writes_parts:
                fit_parts(one, source)
            else:
                one["content"] = joined(one["content"])
    elif '"type"' in source or "'type'" in source or ".type" in source:
        if not takes_strings(source) and takes_parts(source):
            for one in messages:
                if isinstance(one.get("content"), str):
                    one["content"] = [{"type": "text", "text": one["content"]}]


@functools.lru_cache(maxsize=MAX_CACHED_TEMPLATES)
def takes_later_instructions(source):
    """Whether the template writes a message of the system behind others."""
    roles = ("system", "user", "system", "user")
    return f"{PROBE} 2" in probed(source, [{"role": role, "content": f"{PROBE} {number}"}
                                           for number, role in enumerate(roles)])


def as_one(message, later):
    """Neighbours of one role as one message."""
    both = {**message, **later}
    for name in ("content", *REASONING_KEYS):
        texts = [one[name] for one in (message, later) if one.get(name)]
        if texts:
            both[name] = "\n".join(texts)
    return both


def move_instructions(messages):
    """All messages of the system become the first one. Neighbours of one role then are one message, as the server
    joins them, but for calls: no text is put in front of one."""
    texts = [one["content"] for one in messages if one["role"] == "system"]
    moved = [{"role": "system", "content": "\n".join(texts)}]
    for one in messages:
        before = moved[-1]
        if one["role"] in ("user", "assistant") and one["role"] == before["role"] and not before.get("tool_calls"):
            moved[-1] = as_one(before, one)
        elif one["role"] != "system":
            moved.append(one)
    return moved


def tag_final_message(messages):
    """Appends the tag to the last text of the last message; returns that text without it."""
    if not messages:
        raise ValueError("continue_final_message is set but there are no messages")
    content = messages[-1].get("content")
    if isinstance(content, list):
        for part in reversed(content):
            if isinstance(part, dict) and isinstance(part.get("text"), str):
                text = part["text"]
                part["text"] = text + CONTINUE_TAG
                return text
    if not isinstance(content, str):
        raise ValueError(
            "continue_final_message is set but we could not find any text to continue "
            "in the final message!"
        )
    messages[-1]["content"] = content + CONTINUE_TAG
    return content


def cut_after_final_message(rendered, final):
    bare_tag = CONTINUE_TAG.strip()
    if final.strip() not in rendered or bare_tag not in rendered:
        raise ValueError(
            "continue_final_message is set but the final message does not appear in the chat "
            "after applying the chat template! This can happen if the chat template deletes "
            "portions of the final message. Please verify the chat template and final message "
            "in your chat to ensure they are compatible."
            f"Final message to continue: {final}\nRendered chat:\n{rendered}"
        )
    end = rendered.rindex(bare_tag)
    kept = rendered[:end]
    # If the template trimmed the tag's own space, it trimmed the message's too.
    return kept if rendered.startswith(CONTINUE_TAG, end) else kept.rstrip()


def render(request):
    Clock.fixed = request.get("now")
    variables = {"messages": [], "tools": None, "documents": None, "add_generation_prompt": False}
    variables.update(request.get("kwargs") or {})
    variables["messages"] = [with_reasoning_aliases(m) for m in request["messages"]]
    later = any(one.get("role") == "system" for one in request["messages"][1:])
    if request.get("moves_instructions") and later and not takes_later_instructions(request["template"]):
        variables["messages"] = move_instructions(variables["messages"])
    if request.get("fits_contents"):
        fit_contents(variables["messages"], request["template"])
    variables["tools"] = request.get("tools")
    template = compiled(request["template"])
    if not request.get("continue_final_message"):
        return template.render(variables)
    final = tag_final_message(variables["messages"])
    return cut_after_final_message(template.render(variables), final)


def describe(error):
    # A syntax error's str() adds the line; its message alone is what transformers' users see.
    message = error.message if isinstance(error, jinja2.exceptions.TemplateError) else str(error)
    return f"{type(error).__name__}: {message or ''}"


def handle(request_text):
    try:
        answer = {"rendered": render(json.loads(request_text))}
    except Exception as error:  # whatever a template does is its own error, never the helper's
        answer = {"error": describe(error)}
    # Half a surrogate pair cannot leave as UTF-8.
    text = json.dumps(answer, ensure_ascii=False)
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
