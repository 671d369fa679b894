"""Every parameter that the clients' own methods have, and every field that vLLM reads: taken, ignored, or refused with
what to do instead, but never called unknown."""

import json
import urllib.error

import pytest
from anthropic.types import message_count_tokens_params, message_create_params
from anthropic.types.beta import message_count_tokens_params as beta_message_count_tokens_params
from anthropic.types.beta import message_create_params as beta_message_create_params
from openai.types import completion_create_params, embedding_create_params
from openai.types.chat import completion_create_params as chat_create_params
from openai.types.responses import response_create_params

OF_CLIENTS = {
    "/v1/completions": [completion_create_params.CompletionCreateParamsNonStreaming],
    "/v1/chat/completions": [chat_create_params.CompletionCreateParamsNonStreaming],
    "/v1/responses": [response_create_params.ResponseCreateParamsNonStreaming],
    "/v1/embeddings": [embedding_create_params.EmbeddingCreateParams],
    "/v1/messages": [message_create_params.MessageCreateParamsNonStreaming,
                     beta_message_create_params.MessageCreateParamsNonStreaming],
    "/v1/messages/count_tokens": [message_count_tokens_params.MessageCountTokensParams,
                                  beta_message_count_tokens_params.MessageCountTokensParams],
}
# Those of vLLM 0.33 that no client sends.
OF_VLLM_SAMPLING = """add_special_tokens allowed_token_ids bad_words cache_salt ec_transfer_params ignore_eos
    include_stop_str_in_output kv_transfer_params length_penalty logprob_token_ids min_p min_tokens priority prompt_logprobs
    repetition_detection repetition_penalty request_id return_mm_kwargs return_token_ids return_token_offsets
    return_tokens_as_token_ids return_weight_versions routed_experts_prompt_start session_id skip_special_tokens spaces_between_special_tokens
    stop_token_ids stream_interval structured_outputs thinking_token_budget top_k truncate_prompt_tokens truncation_side
    use_beam_search vllm_xargs watermarking"""
OF_VLLM = {
    "/v1/completions": OF_VLLM_SAMPLING + " prompt_embeds response_format",
    "/v1/chat/completions": OF_VLLM_SAMPLING + """ add_generation_prompt chat_template chat_template_kwargs
        continue_final_message documents echo include_reasoning media_io_kwargs mm_processor_kwargs return_prompt_text""",
    "/v1/responses": """cache_salt chat_template_kwargs ec_transfer_params enable_response_messages frequency_penalty
        ignore_eos include_reasoning include_stop_str_in_output kv_transfer_params logit_bias media_io_kwargs min_p
        mm_processor_kwargs presence_penalty previous_input_messages priority repetition_penalty request_id seed session_id
        skip_special_tokens stop stop_token_ids structured_outputs top_k vllm_xargs watermarking""",
    "/v1/messages": "cache_salt chat_template_kwargs ec_transfer_params kv_transfer_params vllm_xargs watermarking",
    "/v1/messages/count_tokens": "chat_template_kwargs",
    "/v1/embeddings": """add_generation_prompt add_special_tokens cache_salt chat_template chat_template_kwargs
        continue_final_message embed_dtype endianness messages normalize padding priority request_id truncate_prompt_tokens
        truncation_side use_activation""",
    "/score": """cache_salt data_1 data_2 documents instruction items max_tokens_per_doc max_tokens_per_query padding priority
        queries request_id text_1 text_2 truncate_prompt_tokens truncation_side use_activation user""",
    "/rerank": """cache_salt documents instruction max_tokens_per_doc max_tokens_per_query padding priority query request_id
        top_n truncate_prompt_tokens truncation_side use_activation user""",
    "/tokenize": """add_generation_prompt add_special_tokens chat_template chat_template_kwargs continue_final_message
        media_io_kwargs messages mm_processor_kwargs model prompt return_token_strs tools""",
    "/detokenize": "model tokens",
}


@pytest.fixture(scope="module")
def servers(start_server, data):
    """By what they answer."""
    generator = start_server(data / "models/tiny-trained", "--stand-in", 10000, "--trust-request-chat-template")
    embedder = start_server(data / "embedders/qwen3-embedding", "--kv-cache-space", "64MiB")
    return {"/v1/embeddings": embedder, "/score": embedder, "/rerank": embedder, None: generator}


def unknown(server, path, names):
    """Those of the fields that the server has no word for. Their values are wrong, so that nothing is computed."""
    found = []
    for name in names:
        try:
            server.post(path, {name: {"wrong": ["value"]}})
        except urllib.error.HTTPError as refused:
            if "is not a field of this endpoint" in json.loads(refused.read())["error"]["message"]:
                found.append(name)
    return found


@pytest.mark.parametrize("path", OF_CLIENTS)
def test_no_parameter_of_a_client_is_unknown(servers, path):
    names = sorted({name for params in OF_CLIENTS[path] for name in params.__annotations__})
    assert len(names) > 4 and "model" in names
    assert unknown(servers.get(path, servers[None]), path, names) == []


@pytest.mark.parametrize("path", OF_VLLM)
def test_no_field_of_vllm_is_unknown(servers, path):
    assert unknown(servers.get(path, servers[None]), path, OF_VLLM[path].split()) == []


def test_made_up_fields_are_unknown(servers):
    for path in {**OF_CLIENTS, **OF_VLLM}:
        assert unknown(servers.get(path, servers[None]), path, ["colour"]) == ["colour"], path
