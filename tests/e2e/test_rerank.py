"""The prompts of rerankers: a query, its documents and an instruction."""

import json
import shutil

import pytest

from test_embed import FLAGS, ask, embedder, read_lines, reranker, write_lines  # noqa: F401 (embedder, reranker: fixtures)

UNKNOWN = "a \U0001f9ff"


def test_queries_are_cut_to_the_requested_length(embedder, reranker):  # noqa: F811
    begin = "The cat sat on the mat"
    for server in (embedder, reranker):
        size = len(ask(server, "/tokenize", {"prompt": begin, "add_special_tokens": False})[1]["tokens"])
        body = {"documents": ["a dog", "a mat"], "query": begin}
        _, wanted = ask(server, "/rerank", body)
        long = {**body, "query": begin + " and looked at the dog" * 300}
        assert ask(server, "/rerank", long)[1]["error"]["code"] == "context_length_exceeded"
        _, cut = ask(server, "/rerank", {**long, "max_tokens_per_query": size, "max_tokens_per_doc": 0})
        assert cut["results"] == wanted["results"]


def test_a_score_follows_the_models_config(start_server, pinion, data, tmp_path):
    """Most cross-encoders of sentence-transformers ask for no activation: a score is then the logit."""
    folder = tmp_path / "reranker"
    shutil.copytree(data / "embedders" / "bert-reranker", folder)
    line = {"query": "a cat", "documents": ["a dog", "a mat"]}
    lines = write_lines(tmp_path / "in.jsonl", [line])
    logits = read_lines(pinion("rank", folder, *FLAGS, "--logits", "--input", lines))[0]["scores"]
    config = json.loads((folder / "config.json").read_text())
    config["sentence_transformers"]["activation_fn"] = "torch.nn.modules.linear.Identity"
    (folder / "config.json").write_text(json.dumps(config))
    assert read_lines(pinion("rank", folder, *FLAGS, "--input", lines))[0]["scores"] == pytest.approx(logits, rel=1e-5)
    server = start_server(folder, *FLAGS)
    _, answer = ask(server, "/score", {"queries": line["query"], "documents": line["documents"]})
    assert [item["score"] for item in answer["data"]] == pytest.approx(logits, rel=1e-5)
    _, ranking = ask(server, "/rerank", line)
    assert sorted(item["relevance_score"] for item in ranking["results"]) == pytest.approx(sorted(logits), rel=1e-5)


def test_an_instruction_is_part_of_a_generative_rerankers_question(start_server, pinion, data, tmp_path):
    """As a line of `pinion rank` has it."""
    folder = data / "embedders" / "qwen3-reranker"
    server = start_server(folder, *FLAGS, "--task", "score")
    line = {"query": "a cat", "documents": ["a dog", "a mat"], "instruction": "Find what is soft"}
    ranked = read_lines(pinion("rank", folder, *FLAGS, "--input", write_lines(tmp_path / "in.jsonl", [line])))[0]["scores"]

    def scores(**fields):
        status, answer = ask(server, "/score", {"queries": line["query"], "documents": line["documents"], **fields})
        assert status == 200, answer
        return [item["score"] for item in answer["data"]]

    assert scores(instruction=line["instruction"]) == pytest.approx(ranked, rel=1e-5)
    assert scores() == scores(instruction="") != scores(instruction=line["instruction"])
    _, ranking = ask(server, "/rerank", line)
    assert sorted(item["relevance_score"] for item in ranking["results"]) == pytest.approx(sorted(ranked), rel=1e-5)


def test_an_instruction_for_any_other_model_is_refused(embedder, reranker):  # noqa: F811
    for server in (embedder, reranker):
        status, answer = ask(server, "/score", {"queries": "a", "documents": "b", "instruction": "Find it"})
        assert status == 400 and answer["error"]["param"] == "instruction", answer


def test_a_long_query_is_not_read_for_every_document(reranker):  # noqa: F811
    """Its text would be cut, but only once it has been read."""
    body = {"query": "cat " * 100_000, "documents": ["a"] * 400, "truncate_prompt_tokens": -1}
    status, answer = ask(reranker, "/rerank", body)
    assert status == 400 and answer["error"]["param"] == "documents"
    assert "the texts of all 400 pairs make 160000400 bytes, want at most 67108864" in answer["error"]["message"]
    assert ask(reranker, "/rerank", {**body, "documents": ["a"]})[0] == 200


def test_an_error_names_the_text_that_cannot_be_read(start_server, data, tmp_path):
    """A tokenizer without an unknown token cannot write every character."""
    folder = tmp_path / "reranker"
    shutil.copytree(data / "embedders" / "xlmr-reranker", folder)
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    tokenizer["model"]["unk_id"] = None
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    server = start_server(folder, *FLAGS)
    cut = {"max_tokens_per_query": 4, "max_tokens_per_doc": 4}
    for path, first, second in (("/rerank", "query", "documents"), ("/score", "queries", "documents"),
                                ("/score", "text_1", "text_2")):
        for body, param in (({first: UNKNOWN, second: ["a cat"]}, first), ({first: "a cat", second: [UNKNOWN]}, second)):
            status, answer = ask(server, path, {**body, **cut})
            assert status == 400 and answer["error"]["param"] == param, answer
            assert "no token for" in answer["error"]["message"]
