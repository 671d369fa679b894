"""GGUF files of encoders, embedders and rerankers, against the reference outputs of the checkpoints."""

import json
import struct

import numpy
import pytest

from gguf_encoders import BOOL, STRING, U32, write_encoder
from test_embed import FLAGS, ask, assert_near, embeddings_of, golden_of, read_lines, write_lines

EMBEDDERS = ["bert-cls", "bert-mean", "nomicbert", "xlmr"]


def unit(vectors):
    """Of length 1, as embeddings of GGUF files are."""
    return vectors / numpy.linalg.norm(vectors, axis=1, keepdims=True)


@pytest.fixture(scope="module")
def encoder_file(data, tmp_path_factory):
    """The file of a checkpoint, made once."""
    folder, made = tmp_path_factory.mktemp("encoders"), {}

    def of(name):
        if name not in made:
            made[name] = folder / f"{name}.gguf"
            write_encoder(data / "embedders" / name, made[name])
        return made[name]
    return of


def changed(path, *, entries=None, without=()):
    """What write_encoder is to change: values of keys (None: the key goes), and tensors that go."""
    def change(all_entries, tensors):
        for key, kind, value in entries or ():
            all_entries[:] = [entry for entry in all_entries if entry[0] != key]
            if value is not None:
                all_entries.append((key, kind, value))
        for name in without:
            del tensors[name]
    return change


@pytest.mark.parametrize("name", EMBEDDERS)
def test_embed_gives_the_references_embeddings(pinion, data, encoder_file, tmp_path, name):
    folder, golden = golden_of(data, name)
    lines = write_lines(tmp_path / "in.jsonl", [{"text": prompt["text"]} for prompt in golden["prompts"]])
    done = pinion("embed", encoder_file(name), *FLAGS, "--input", lines)
    assert done.returncode == 0, done.stderr
    assert_near([line["embedding"] for line in read_lines(done)], unit(embeddings_of(folder)))


@pytest.mark.parametrize("name", EMBEDDERS)
def test_texts_become_the_references_tokens(pinion, data, encoder_file, tmp_path, name):
    _, golden = golden_of(data, name)
    lines = write_lines(tmp_path / "in.jsonl", [{"text": case["text"]} for case in golden["tokenization"]])
    done = pinion("tokenize", encoder_file(name), "--input", lines)
    assert done.returncode == 0, done.stderr
    for line, case in zip(read_lines(done), golden["tokenization"], strict=True):
        assert line["ids"] == case["ids"], case["text"]


def test_rank_gives_the_references_scores(pinion, data, encoder_file, tmp_path):
    _, golden = golden_of(data, "xlmr-reranker")
    lines = write_lines(tmp_path / "in.jsonl", [{"query": query, "documents": [document]}
                                                for query, document in (p["text"] for p in golden["prompts"])])
    for flags, key in (((), "score"), (("--logits",), "logit")):
        done = pinion("rank", encoder_file("xlmr-reranker"), *FLAGS, *flags, "--input", lines)
        assert done.returncode == 0, done.stderr
        assert_near([line["scores"][0] for line in read_lines(done)], [p[key] for p in golden["prompts"]])
