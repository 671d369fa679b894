"""What rerankers read of a query, its documents and an instruction."""

import pytest

from test_embed import FLAGS, ask, embedder, read_lines, reranker, write_lines  # noqa: F401 (embedder, reranker: fixtures)


def test_queries_are_cut_to_what_is_asked_of_them(embedder, reranker):  # noqa: F811
    begin = "The cat sat on the mat"
    for server in (embedder, reranker):
        size = len(ask(server, "/tokenize", {"prompt": begin, "add_special_tokens": False})[1]["tokens"])
        body = {"documents": ["a dog", "a mat"], "query": begin}
        _, wanted = ask(server, "/rerank", body)
        long = {**body, "query": begin + " and looked at the dog" * 300}
        assert ask(server, "/rerank", long)[1]["error"]["code"] == "context_length_exceeded"
        _, cut = ask(server, "/rerank", {**long, "max_tokens_per_query": size, "max_tokens_per_doc": 0})
        assert cut["results"] == wanted["results"]


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
    assert "the query with each of the 400 documents makes 160000400 bytes, want at most 67108864" in answer["error"]["message"]
    assert ask(reranker, "/rerank", {**body, "documents": ["a"]})[0] == 200
