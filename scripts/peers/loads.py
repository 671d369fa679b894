"""Loads of a running server: texts to continue, sent by `pinion load`, and texts to embed, sent from here.

A load has a task, a line that describes it, and run(job, server, url, seed), which returns what was measured.
"""

import array
import base64
import dataclasses
import functools
import http.client
import json
import math
import operator
import random
import re
import shlex
import time
import urllib.error
import urllib.request

from peers.engines import Failed, checkpoint
from peers.runs import loaded

LIMIT_S = 600  # of one request


@dataclasses.dataclass(frozen=True)
class Generation:
    """What `pinion load` sends with these options."""

    options: tuple
    task = "generate"

    def text(self):
        return shlex.join(("pinion", "load", "URL", *self.options))

    def run(self, job, server, url, seed):
        return loaded(job.pinion, server, url, self.options, seed)


@dataclasses.dataclass(frozen=True)
class Embedding:
    """Batches of texts, one after the other, after one that is not measured. No text is sent twice."""

    texts: int
    tokens: int  # of each text
    batches: int
    task = "embed"

    def text(self):
        return (f"POST URL/v1/embeddings of {self.texts} texts of {self.tokens} tokens, {1 + self.batches} times; "
                "the first one is not measured")

    def run(self, job, server, url, seed, clock=time.monotonic):
        """The vectors are those of the last batch."""
        source, words = random.Random(seed), vocabulary_words(checkpoint(job, job.format().scheme))
        measured_s = 0.0
        for batch in range(1 + self.batches):
            texts = [text_of(source, words, self.tokens) for _ in range(self.texts)]
            start = clock()
            answer = posted(server, url, texts)
            took_s = clock() - start
            measured_s += took_s if batch else 0
            read = answer["usage"]["prompt_tokens"]
            if read != self.texts * self.tokens:
                raise Failed(f"{server.name} reads {read} tokens in {self.texts} texts of {self.tokens}")
        vectors = [decoded(item["embedding"]) for item in sorted(answer["data"], key=lambda item: item["index"])]
        return {"texts_per_s": self.batches * self.texts / measured_s,
                "tokens_per_s": self.batches * self.texts * self.tokens / measured_s, "vectors": vectors}


# ---- Texts ---------------------------------------------------------------------------------------


@functools.cache
def vocabulary_words(folder):
    """The words of a made-up vocabulary that are one token after a blank: merges build them from the left, before all
    others. The vocabulary's other words have no merges, and come apart in a text."""
    merges = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))["model"]["merges"]
    tokens = (merge.replace(" ", "") for merge in merges)
    return [" " + token[1:] for token in tokens if re.fullmatch("Ġ[a-z]+", token)]


def text_of(source, words, tokens):
    """A random text; it begins with a letter because sentence-transformers strips blanks."""
    return "a" + "".join(source.choices(words, k=tokens - 1))


# ---- One request ---------------------------------------------------------------------------------


def posted(server, url, texts):
    """The answer of the embedding endpoint; base64 is the form that costs a server least."""
    body = json.dumps({"input": texts, "encoding_format": "base64"}).encode()
    request = urllib.request.Request(f"{url}/v1/embeddings", body, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=LIMIT_S) as reply:
            return json.load(reply)
    except urllib.error.HTTPError as reason:
        error = reason.read(1000).decode(errors="replace")
        raise Failed(f"{server.name} does not embed: HTTP {reason.code}: {error}") from None
    except (OSError, http.client.HTTPException) as reason:
        raise Failed(f"{server.name} does not embed: {reason}") from None


def decoded(embedding):
    """The values of a vector in base64: float32, little-endian."""
    return array.array("f", base64.b64decode(embedding))


# ---- Do two engines compute the same? ------------------------------------------------------------


def dot(a, b):
    return sum(map(operator.mul, a, b))


def unit(vector):
    """In its direction; zeros, which have none, stay zeros."""
    length = math.sqrt(dot(vector, vector)) or 1
    return [value / length for value in vector]


def differences(vectors):
    """Each direction less the mean of all of them. Made-up models embed all texts in nearly the same one: the cosine of
    two texts is 0.997, and only what sets a text apart shows whether it was read at all."""
    units = [unit(vector) for vector in vectors]
    mean = [sum(values) / len(units) for values in zip(*units)]
    return [list(map(operator.sub, one, mean)) for one in units]


def mean_cosine(ours, peer):
    """Of the differences between the texts, as two engines see them."""
    pairs = zip(differences(ours), differences(peer), strict=True)
    return sum(dot(unit(a), unit(b)) for a, b in pairs) / len(ours)
