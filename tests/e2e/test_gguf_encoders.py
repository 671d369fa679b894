"""GGUF files of encoders, embedders and rerankers, against the reference outputs of the checkpoints."""

import json
import shutil

import numpy
import pytest

from gguf_encoders import BOOL, NORMAL, STRING, U32, in_blocks, write_encoder
from test_embed import FLAGS, ask, assert_near, embeddings_of, golden_of, read_lines, write_lines

EMBEDDERS = ["bert-cls", "bert-mean", "nomicbert", "xlmr", "qwen3-embedding", "embeddinggemma", "modernbert"]


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


def altered(data, name, path, *, entries=(), tensors=None):
    """A file with other values of some keys (None: without the key), and other tensors."""
    def change(all_entries, all_tensors):
        keys = {key for key, _, _ in entries}
        all_entries[:] = [entry for entry in all_entries if entry[0] not in keys]
        all_entries += [entry for entry in entries if entry[2] is not None]
        if tensors:
            tensors(all_tensors)
    write_encoder(data / "embedders" / name, path, change)
    return path


def texts_of(golden, tmp_path):
    return write_lines(tmp_path / "in.jsonl", [{"text": prompt["text"]} for prompt in golden["prompts"]])


def pairs_of(golden, tmp_path):
    return write_lines(tmp_path / "in.jsonl", [{"query": query, "documents": [document]}
                                               for query, document in (p["text"] for p in golden["prompts"])])


def results_of(pinion, command, path, lines, *flags):
    """The embeddings or scores of all lines."""
    done = pinion(command, path, *FLAGS, *flags, "--input", lines)
    assert done.returncode == 0, done.stderr
    return [line["embedding" if command == "embed" else "scores"] for line in read_lines(done)]


@pytest.mark.parametrize("name", EMBEDDERS)
def test_embed_gives_the_references_embeddings(pinion, data, encoder_file, tmp_path, name):
    folder, golden = golden_of(data, name)
    found = results_of(pinion, "embed", encoder_file(name), texts_of(golden, tmp_path))
    assert_near(found, unit(embeddings_of(folder)))


@pytest.mark.parametrize("name", EMBEDDERS)
def test_texts_become_the_references_tokens(pinion, data, encoder_file, tmp_path, name):
    _, golden = golden_of(data, name)
    lines = write_lines(tmp_path / "in.jsonl", [{"text": case["text"]} for case in golden["tokenization"]])
    done = pinion("tokenize", encoder_file(name), "--input", lines)
    assert done.returncode == 0, done.stderr
    for line, case in zip(read_lines(done), golden["tokenization"], strict=True):
        assert line["ids"] == case["ids"], case["text"]


@pytest.mark.parametrize("name", ["xlmr-reranker", "modernbert-reranker"])
def test_rank_gives_the_references_scores(pinion, data, encoder_file, tmp_path, name):
    _, golden = golden_of(data, name)
    lines = pairs_of(golden, tmp_path)
    for flags, key in (((), "score"), (("--logits",), "logit")):
        found = results_of(pinion, "rank", encoder_file(name), lines, *flags)
        assert_near([scores[0] for scores in found], [prompt[key] for prompt in golden["prompts"]])


def yes_or_no(data, path, factor=1, change=lambda entries, tensors: None):
    """As llama.cpp's converter writes Qwen3-Reranker: with the head's rows of two tokens, times a factor here."""
    tokens = json.loads((data / "embedders/qwen3-reranker/golden.json").read_text())["yes_no_ids"]

    def answers(entries, tensors):
        (_, width), raw, kind = tensors["token_embd.weight"]
        rows = numpy.frombuffer(raw, "<f4").reshape(-1, width)[tokens] * numpy.float32(factor)
        tensors["cls.output.weight"] = [2, width], rows.tobytes(), kind
        entries += [("qwen3.pooling_type", U32, 4), ("qwen3.classifier.output_labels", [STRING], ["yes", "no"])]
        change(entries, tensors)
    write_encoder(data / "embedders" / "qwen3-reranker", path, answers)
    return path


@pytest.mark.parametrize("factor", [1, 2])
def test_a_generative_reranker_scores_by_the_two_rows_of_its_file(pinion, data, tmp_path, factor):
    """Which are its own if those of the embedding are not the head's."""
    _, golden = golden_of(data, "qwen3-reranker")
    questions = [prompt["text"].split("<Query>: ", 1)[1].split("\n<Document>: ", 1) for prompt in golden["prompts"]]
    lines = write_lines(tmp_path / "in.jsonl", [{"query": query, "documents": [rest.split("<|im_end|>", 1)[0]]}
                                                for query, rest in questions])
    found = results_of(pinion, "rank", yes_or_no(data, tmp_path / "r.gguf", factor), lines, "--logits")
    assert_near([scores[0] for scores in found], [factor * prompt["logit"] for prompt in golden["prompts"]])


def test_a_generative_reranker_only_scores(pinion, data, start_server, tmp_path):
    path = yes_or_no(data, tmp_path / "r.gguf")
    done = pinion("run", path, *FLAGS, "--prompt", "a")
    assert done.returncode == 1 and "this command wants a model that generates" in done.stderr
    done = pinion("embed", path, *FLAGS, "--input", write_lines(tmp_path / "in.jsonl", [{"text": "a"}]))
    assert done.returncode == 2 and "it scores them; use 'pinion rank'" in done.stderr
    status, answer = ask(start_server(path, *FLAGS), "/rerank", {"query": "a cat", "documents": ["a dog", "a mat"]})
    assert status == 200 and len(answer["results"]) == 2, answer


def copied(data, name, folder, **fields):
    """A copy of a checkpoint with other values of some fields of config.json."""
    shutil.copytree(data / "embedders" / name, folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | fields))
    return folder


def test_the_head_takes_the_mean_or_the_first_token_as_the_file_says(pinion, data, tmp_path):
    _, golden = golden_of(data, "modernbert-reranker")
    lines = pairs_of(golden, tmp_path)
    of_first = results_of(pinion, "rank", copied(data, "modernbert-reranker", tmp_path / "first",
                                                 classifier_pooling="cls"), lines)
    of_mean = [[prompt["score"]] for prompt in golden["prompts"]]
    for value, wanted in ((None, of_mean), (1, of_mean), (2, of_first)):
        path = altered(data, "modernbert-reranker", tmp_path / f"{value}.gguf",
                       entries=[("modern-bert.classifier.pooling_type", U32, value)])
        assert_near(results_of(pinion, "rank", path, lines), wanted)


def roberta(data, folder):
    """RoBERTa: XLM-RoBERTa's weights behind a byte-level tokenizer, whose pieces are those of another checkpoint."""
    copied(data, "xlmr-reranker", folder)
    pieces = json.loads((data / "embedders/qwen3-embedding/tokenizer.json").read_text())
    marks = ["<s>", "<pad>", "</s>", "<unk>"]
    others = {token["content"] for token in pieces["added_tokens"]}
    texts = [text for text in sorted(pieces["model"]["vocab"], key=pieces["model"]["vocab"].get) if text not in others]
    added = {**pieces["added_tokens"][0], "special": True}
    (folder / "tokenizer.json").write_text(json.dumps(pieces | {
        "added_tokens": [added | {"id": i, "content": mark} for i, mark in enumerate(marks)],
        "normalizer": None,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
        "post_processor": {"type": "RobertaProcessing", "cls": ["<s>", 0], "sep": ["</s>", 2], "trim_offsets": True,
                           "add_prefix_space": False},
        "model": pieces["model"] | {"vocab": {text: i for i, text in enumerate([*marks, *texts])}}}))
    return folder


def test_robertas_byte_level_tokens_and_pairs_are_those_of_its_folder(pinion, data, tmp_path):
    folder, path = roberta(data, tmp_path / "roberta"), tmp_path / "roberta.gguf"
    write_encoder(folder, path)
    texts = ["", " ", "Hello, it's 2026!", "don\u2019t\n\n  indent", "na\u00efve \u4f60\u597d \U0001f600", "<s> and <mask>"]
    lines = write_lines(tmp_path / "texts.jsonl", [{"text": text} for text in texts])
    answers = [pinion("tokenize", model, "--input", lines) for model in (folder, path)]
    assert [done.returncode for done in answers] == [0, 0], answers
    of_folder, of_file = ([line["ids"] for line in read_lines(done)] for done in answers)
    assert of_file == of_folder
    assert of_file[0] == [0, 2] and all(len(ids) > 2 for ids in of_file[1:])
    _, golden = golden_of(data, "xlmr-reranker")
    pairs = pairs_of(golden, tmp_path)
    assert_near(*(results_of(pinion, "rank", model, pairs) for model in (path, folder)))


def test_the_server_embeds_as_the_reference_does(start_server, data, encoder_file):
    folder, golden = golden_of(data, "nomicbert")
    server = start_server(encoder_file("nomicbert"), *FLAGS)
    status, answer = ask(server, "/v1/embeddings", {"input": [prompt["text"] for prompt in golden["prompts"]]})
    assert status == 200, answer
    assert_near([item["embedding"] for item in answer["data"]], unit(embeddings_of(folder)))


@pytest.mark.parametrize("name, command", [("bert-mean", "embed"), ("nomicbert", "embed"), ("xlmr-reranker", "rank"),
                                           ("embeddinggemma", "embed")])
def test_matrices_in_q8_0_give_the_results_of_their_values(pinion, data, tmp_path, name, command):
    _, golden = golden_of(data, name)
    lines = (texts_of if command == "embed" else pairs_of)(golden, tmp_path)
    found = [results_of(pinion, command, altered(data, name, tmp_path / f"{which}.gguf",
                                                 tensors=lambda all_of, which=which: all_of.update(
                                                     in_blocks(all_of)[which])), lines)
             for which in (0, 1)]
    assert_near(*found)


@pytest.mark.parametrize("name, command, tensor", [("xlmr", "embed", "token_types.weight"),
                                                   ("xlmr-reranker", "rank", "cls.output.weight")])
def test_a_matrix_of_one_row_may_be_a_vector(pinion, data, encoder_file, tmp_path, name, command, tensor):
    def flatten(tensors):
        (rows, columns), *rest = tensors[tensor]
        assert rows == 1
        tensors[tensor] = [columns], *rest
    _, golden = golden_of(data, name)
    lines = (texts_of if command == "embed" else pairs_of)(golden, tmp_path)
    flat = altered(data, name, tmp_path / "flat.gguf", tensors=flatten)
    assert results_of(pinion, command, flat, lines) == results_of(pinion, command, encoder_file(name), lines)


@pytest.mark.parametrize("ids", [{"cls": 2}, {}])
def test_files_of_other_years_name_fewer_special_tokens(pinion, data, tmp_path, ids):
    entries = [(f"tokenizer.ggml.{role}_token_id", U32, ids.get(role))
               for role in ("bos", "eos", "cls", "seperator", "unknown")]
    entries += [(f"tokenizer.ggml.add_{role}_token", BOOL, None) for role in ("bos", "eos", "sep")]
    path = altered(data, "bert-cls", tmp_path / "old.gguf", entries=entries)
    _, golden = golden_of(data, "bert-cls")
    case = golden["tokenization"][-1]
    done = pinion("tokenize", path, "--input", write_lines(tmp_path / "in.jsonl", [{"text": case["text"]}]))
    assert done.returncode == 0, done.stderr
    assert read_lines(done)[0]["ids"] == case["ids"]


def test_a_vocabulary_with_capitals_keeps_those_of_a_text(pinion, data, tmp_path):
    marks = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    vocabulary = [*marks, "\u2581the", "\u2581The"]
    kinds = [3] * len(marks) + [NORMAL, NORMAL]
    path = altered(data, "bert-cls", tmp_path / "cased.gguf",
                   entries=[("tokenizer.ggml.tokens", [STRING], vocabulary), ("tokenizer.ggml.token_type", [5], kinds)])
    done = pinion("tokenize", path, "--input", write_lines(tmp_path / "in.jsonl", [{"text": "The the"}]))
    assert done.returncode == 0, done.stderr
    assert read_lines(done)[0]["ids"] == [2, 6, 5, 3]


def test_tokens_that_fill_the_vocabulary_up_change_nothing(pinion, data, tmp_path):
    filling = {"tokenizer.ggml.tokens": "[PAD600]", "tokenizer.ggml.scores": -10000.0, "tokenizer.ggml.token_type": 5}

    def change(entries, _):
        for key, _, values in entries:
            if key in filling:
                values.append(filling[key])
    folder, golden = golden_of(data, "xlmr")
    write_encoder(folder, tmp_path / "filled.gguf", change)
    texts = ["[PAD600]", *(case["text"] for case in golden["tokenization"])]
    lines = write_lines(tmp_path / "in.jsonl", [{"text": text} for text in texts])
    done = pinion("tokenize", tmp_path / "filled.gguf", "--input", lines)
    assert done.returncode == 0, done.stderr
    literal, *others = (line["ids"] for line in read_lines(done))
    assert 600 not in literal
    assert others == [case["ids"] for case in golden["tokenization"]]


def test_spaces_around_a_text_are_left_out_if_the_file_says_so(pinion, data, tmp_path):
    path = altered(data, "xlmr", tmp_path / "trimmed.gguf",
                   entries=[("tokenizer.ggml.remove_extra_whitespaces", BOOL, True)])
    lines = write_lines(tmp_path / "in.jsonl", [{"text": "a  word"}, {"text": "  a word "}, {"text": " "}])
    done = pinion("tokenize", path, "--input", lines)
    assert done.returncode == 0, done.stderr
    plain, spaced, empty = (line["ids"] for line in read_lines(done))
    assert plain == spaced
    assert empty == [0, 2]


@pytest.mark.parametrize("name, text, pooling, dense", [
    ("bert-cls", "the first token's state, normalised to length 1", "cls", []),
    ("embeddinggemma", "the mean of all tokens' states, dense to 96, dense to 64, normalised to length 1", "mean",
     [96, 64])])
def test_model_info_says_how_texts_become_embeddings(pinion, encoder_file, name, text, pooling, dense):
    done = pinion("model", "info", encoder_file(name))
    assert done.returncode == 0, done.stderr
    assert ["embedder", text] in [line.split(maxsplit=1) for line in done.stdout.splitlines()]
    found = json.loads(pinion("model", "info", encoder_file(name), "--json").stdout)["embedder"]
    assert found == {"pooling": pooling, "dense": dense, "normalises": True, "prompts": {}, "default_prompt": "",
                     "max_tokens": None}


REFUSALS = {
    "dense": ("bert-reranker", [], None, "it is a reranker without the tensor 'cls.weight', a part of its head"),
    "rank": ("bert-cls", [("bert.pooling_type", U32, 4)], None, "it is a reranker without the tensor 'cls.weight'"),
    "pooling": ("bert-cls", [("bert.pooling_type", U32, 5)], None,
                "'bert.pooling_type' is 5, want 0 (none), 1 (mean), 2 (first), 3 (last) or 4 (rank)"),
    "causal": ("bert-cls", [("bert.attention.causal", BOOL, True)], None,
               "'bert.attention.causal' is true, want false"),
    "both ways": ("qwen3-embedding", [("qwen3.attention.causal", BOOL, False)], None,
                  "'qwen3.attention.causal' is false, want true"),
    "first or mean": ("modernbert-reranker", [("modern-bert.classifier.pooling_type", U32, 3)], None,
                      "'modern-bert.classifier.pooling_type' is 3, want 1 (mean) or 2 (first)"),
    "heads by layer": ("qwen3-embedding", [("qwen3.attention.head_count_kv", [U32], [2, 1])], None,
                       "'attention.head_count_kv' holds 1, want the same number for all layers"),
    "first": ("xlmr-reranker", [("bert.classifier.pooling_type", U32, 1)], None,
              "'bert.classifier.pooling_type' is 1, want 2 (first)"),
    "late interaction": ("embeddinggemma", [("gemma-embedding.pooling_type", U32, 0)], None,
                         "'gemma-embedding.pooling_type' is 0, but there is a tensor 'dense_2.weight'"),
    "types": ("bert-cls", [], lambda tensors: tensors.pop("token_types.weight"),
              "there is no tensor 'token_types.weight'"),
    "architecture": ("bert-cls", [("general.architecture", STRING, "jina-bert-v2")], None,
                     "'general.architecture' is 'jina-bert-v2', want one of arcee, bert, cohere2,"),
    "labels": ("xlmr-reranker", [("bert.classifier.output_labels", [STRING], ["a", "b"])], None,
               "'bert.classifier.output_labels' has 2 labels, but the tensor 'cls.output.weight' has 1"),
}


@pytest.mark.parametrize("change, sentence", [
    (lambda entries, tensors: entries.__setitem__(-1, ("qwen3.classifier.output_labels", [STRING], ["no", "yes"])),
     """'qwen3.classifier.output_labels' is ["no","yes"], want ["yes","no"], of a reranker"""),
    (lambda entries, tensors: entries.pop(), "'qwen3.classifier.output_labels' is missing, want"),
    (lambda entries, tensors: tensors.update({"cls.output.weight": ([4, 32], bytes(4 * 4 * 32), 0)}),
     "tensor 'cls.output.weight' has shape [4, 32], want a row for each of the labels yes and no")])
def test_other_heads_of_generative_rerankers_are_refused(pinion, data, tmp_path, change, sentence):
    done = pinion("model", "info", yes_or_no(data, tmp_path / "odd.gguf", change=change))
    assert done.returncode == 1
    assert len(done.stderr.strip().splitlines()) == 1
    assert sentence in done.stderr


@pytest.mark.parametrize("which", REFUSALS)
def test_unsupported_models_are_refused_in_one_sentence(pinion, data, tmp_path, which):
    name, entries, tensors, sentence = REFUSALS[which]
    path = altered(data, name, tmp_path / "odd.gguf", entries=entries, tensors=tensors)
    done = pinion("model", "info", path)
    assert done.returncode == 1
    assert len(done.stderr.strip().splitlines()) == 1
    assert sentence in done.stderr
