"""Weights that are NaN: the request that meets them gets an error, and all others their answers."""

import concurrent.futures
import json
import shutil

import httpx2
import pytest

from test_run import write_lines

BROKEN = 77  # a token whose embedding is NaN
ERROR = ("weights of the model are NaN or infinite, or values were too large for float32; "
         "check the checkpoint's files")
FLAGS = ("--dtype", "float32", "--kv-cache-space", "64MiB")


def broken_copy(original, folder, embedding, row=BROKEN):
    """A copy of a checkpoint in which that row of a tensor, or all of them (None), is NaN."""
    model = shutil.copytree(original, folder)
    path = model / "model.safetensors"
    content = bytearray(path.read_bytes())
    header_bytes = int.from_bytes(content[:8], "little")
    entry = json.loads(content[8:8 + header_bytes])[embedding]
    begin, end = (8 + header_bytes + offset for offset in entry["data_offsets"])
    if row is not None:
        row_bytes = (end - begin) // entry["shape"][0]
        begin, end = begin + row * row_bytes, begin + (row + 1) * row_bytes
    content[begin:end] = b"\xff" * (end - begin)
    path.write_bytes(content)
    return model


@pytest.fixture(scope="module")
def model(data, tmp_path_factory):
    return broken_copy(data / "models" / "llama2", tmp_path_factory.mktemp("broken") / "llama2",
                       "model.embed_tokens.weight")


@pytest.fixture(scope="module")
def embedder(data, tmp_path_factory):
    return broken_copy(data / "embedders" / "bert-mean", tmp_path_factory.mktemp("broken") / "bert",
                       "embeddings.word_embeddings.weight")


@pytest.fixture(scope="module")
def reranker(data, tmp_path_factory):
    return broken_copy(data / "embedders" / "bert-reranker", tmp_path_factory.mktemp("broken") / "bert",
                       "bert.embeddings.word_embeddings.weight", row=None)


@pytest.fixture(scope="module")
def server(start_server, model):
    return start_server(model, *FLAGS)


def complete(server, prompt, **fields):
    return httpx2.post(f"{server.url}/v1/completions", timeout=60,
                       json={"prompt": prompt, "max_tokens": 8, "temperature": 0, **fields})


def test_run_and_score_name_it_in_the_line_of_the_prompt(pinion, model, tmp_path):
    path = write_lines(tmp_path / "in.jsonl", [{"input_ids": [5, 6, BROKEN]}, {"input_ids": [5, 6]}])
    for command, output in (("run", "output_ids"), ("score", "token_logprobs")):
        done = pinion(command, model, "--input", path, *FLAGS)
        assert done.returncode == 1
        first, second = map(json.loads, done.stdout.splitlines())
        assert first == {"error": f"the logits are not finite: {ERROR}"}
        assert len(second[output]) > 1


def test_embed_and_rank_name_it_in_the_line_of_the_text(pinion, embedder, reranker, tmp_path):
    path = write_lines(tmp_path / "in.jsonl", [{"input_ids": [5, BROKEN]}, {"input_ids": [5, 6]}])
    done = pinion("embed", embedder, "--input", path, *FLAGS)
    assert done.returncode == 1
    first, second = map(json.loads, done.stdout.splitlines())
    assert first == {"error": f"line 1: the embedding is not finite: {ERROR}"}
    assert len(second["embedding"]) > 1
    path = write_lines(tmp_path / "pairs.jsonl", [{"query": "a", "documents": ["b", "c"]}])
    done = pinion("rank", reranker, "--input", path, *FLAGS)
    assert done.returncode == 1
    assert json.loads(done.stdout) == {
        "error": f"line 1: 'documents', number 1: the text's scores are not finite: {ERROR}"}


def test_bench_measures_no_nonsense(pinion, data, tmp_path):
    model = broken_copy(data / "models" / "llama2", tmp_path / "model", "model.norm.weight", row=None)
    done = pinion("bench", model, "--prompt-len", 8, "--output-len", 4, *FLAGS)
    assert done.returncode == 1
    assert f"the logits are not finite: {ERROR}" in done.stderr


def test_the_request_fails_and_others_of_its_steps_do_not(server):
    sound = [[5 + i, 6, 7, 8] for i in range(6)]
    alone = [complete(server, prompt).json()["choices"][0]["text"] for prompt in sound]
    with concurrent.futures.ThreadPoolExecutor() as pool:
        broken = [pool.submit(complete, server, [9, BROKEN, i]) for i in range(6)]
        together = [pool.submit(complete, server, prompt) for prompt in sound]
        for answer in broken:
            assert answer.result().status_code == 500
            assert answer.result().json()["error"] == {
                "message": f"the logits are not finite: {ERROR}", "type": "server_error",
                "param": None, "code": None}
        assert [answer.result().json()["choices"][0]["text"] for answer in together] == alone
    assert 'vllm:num_requests_running{' in server.get("/metrics")
    assert complete(server, [5, 6, 7, 8]).status_code == 200


def test_a_stream_ends_with_an_error_event(server):
    # The third token is the broken one, so the stream has begun when its logits are NaN.
    answer = complete(server, [5, 6, 7], stream=True, ignore_eos=True,
                      allowed_token_ids=[BROKEN])
    assert answer.status_code == 200
    events = [line[len("data: "):] for line in answer.text.splitlines() if line]
    assert "choices" in json.loads(events[0])
    error = json.loads(events[-1] if events[-1] != "[DONE]" else events[-2])["error"]
    assert error["message"] == f"the logits are not finite: {ERROR}"
    assert complete(server, [5, 6, 7, 8]).status_code == 200


def test_a_search_and_rated_prompts_fail_alike(server):
    for fields in ({"use_beam_search": True, "n": 2}, {"prompt_logprobs": 1}, {"logprobs": 2},
                   {"n": 3, "temperature": 1}, {"echo": True, "logprobs": 1, "max_tokens": 0}):
        answer = complete(server, [5, BROKEN, 7, 8], **fields)
        assert answer.status_code == 500, fields
        assert answer.json()["error"]["message"] == f"the logits are not finite: {ERROR}", fields


def test_embeddings_fail_alike(start_server, embedder):
    server = start_server(embedder, *FLAGS)

    def embed(ids):
        return httpx2.post(f"{server.url}/v1/embeddings", json={"input": ids}, timeout=60)

    assert embed([5, BROKEN]).status_code == 500
    assert embed([5, BROKEN]).json()["error"]["message"] == f"the embedding is not finite: {ERROR}"
    assert embed([5, 6]).status_code == 200
