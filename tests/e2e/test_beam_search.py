"""Beam search against a plain one, that asks the same server for one token at a time."""

import openai
import pytest

END = 2


@pytest.fixture(scope="module")
def server(start_server, data):
    # Steps of one sequence and of several round differently: in bfloat16 that could turn near ties over.
    return start_server(data / "models/tiny-trained", "--served-model-name", "tiny", "--max-model-len", "512",
                        "--dtype", "float32")


@pytest.fixture(scope="module")
def client(server):
    return openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0, timeout=120)


def searched(client, prompt, n, max_tokens, **more):
    return client.completions.create(model="tiny", prompt=prompt, n=n, max_tokens=max_tokens,
                                     extra_body={"use_beam_search": True, "return_token_ids": True, **more})


def behind(client, prompts, count):
    """For each list of ids the likeliest tokens behind it with their log-probabilities, best first."""
    answer = client.completions.create(model="tiny", prompt=prompts, max_tokens=1, temperature=0, logprobs=count,
                                       extra_body={"return_tokens_as_token_ids": True, "ignore_eos": True})
    found = []
    for choice in sorted(answer.choices, key=lambda choice: choice.index):
        top = choice.logprobs.top_logprobs[0]
        found.append([(int(name.split(":")[1]), value) for name, value in top.items()][:count])
    return found


def plain_search(client, prompt, width, max_tokens, penalty, ends):
    """[(score, ids)], best first."""
    beams, ended = [(0.0, [])], []
    for _ in range(max_tokens):
        candidates = []
        for (total, ids), top in zip(beams, behind(client, [prompt + ids for _, ids in beams], 2 * width)):
            for token, logprob in top:
                if token in ends:
                    ended.append(((total + logprob) / (len(prompt) + len(ids)) ** penalty, ids + [token]))
                else:
                    candidates.append((total + logprob, ids + [token]))
        beams = sorted(candidates, key=lambda one: -one[0])[:width]
    ended += [(total / (len(prompt) + len(ids)) ** penalty, ids) for total, ids in beams]
    return sorted(ended, key=lambda one: -one[0])[:width]


@pytest.mark.parametrize("width, max_tokens, penalty, ends", [(1, 8, 1, []), (2, 6, 1, []), (4, 12, 1, []), (3, 5, 0, []),
                                                              (4, 10, 2, [100, 200, 300])])
def test_it_finds_the_texts_of_a_plain_search(client, width, max_tokens, penalty, ends):
    prompt = searched(client, "The king said", 1, 1).choices[0].prompt_token_ids
    # The model seldom ends by itself: its likeliest first tokens end answers as well.
    ends = ends and [token for token, _ in behind(client, [prompt], 8)[0][2:]]
    wanted = plain_search(client, prompt, width, max_tokens, penalty, [END, *ends])
    answer = searched(client, prompt, width, max_tokens, length_penalty=penalty, stop_token_ids=ends)
    assert [choice.token_ids for choice in answer.choices] == [ids for _, ids in wanted]
    assert answer.usage.prompt_tokens == len(prompt)
    assert answer.usage.completion_tokens == sum(len(ids) for _, ids in wanted)
    for choice, (_, ids) in zip(answer.choices, wanted):
        assert choice.finish_reason == ("stop" if ids[-1] in (END, *ends) else "length")
        assert choice.stop_reason == (ids[-1] if ids[-1] in ends else None)
    if ends:
        assert any(ids[-1] in ends for _, ids in wanted)


def test_several_prompts_are_searched_each_by_itself(client):
    both = searched(client, ["The king", "A dog and a"], 2, 4).choices
    alone = [searched(client, text, 2, 4).choices for text in ("The king", "A dog and a")]
    assert [choice.text for choice in both] == [choice.text for choices in alone for choice in choices]


def test_chats_show_log_probabilities_of_the_found_texts(client):
    answer = client.chat.completions.create(
        model="tiny", messages=[{"role": "user", "content": "Hi"}], n=2, max_tokens=5, logprobs=True, top_logprobs=2,
        extra_body={"use_beam_search": True})
    totals = [sum(token.logprob for token in choice.logprobs.content) for choice in answer.choices]
    assert len(totals) == 2 and totals[0] >= totals[1]
    assert all(len(token.top_logprobs) == 2 for choice in answer.choices for token in choice.logprobs.content)


@pytest.mark.parametrize("fields, why", [
    ({"stream": True}, "'stream' and 'use_beam_search' cannot be combined"),
    ({"n": 11}, "'n' is 11, the width of a beam search that looks at 22 alternatives of each token, want at most 20"),
    ({"extra_body": {"use_beam_search": True, "length_penalty": 99}}, "'length_penalty' is 99, want -10 to 10"),
])
def test_impossible_searches_are_refused_in_one_sentence(client, fields, why):
    with pytest.raises(openai.BadRequestError, match=why):
        client.completions.create(**{"model": "tiny", "prompt": "a", "extra_body": {"use_beam_search": True}, **fields})
