"""/openapi.json: what it says of each server's endpoints and fields is what that server does."""

import http.client
import json
import pathlib

import jsonschema
import openapi_spec_validator
import pytest

from test_llama_server import filling  # noqa: F401: a fixture

MODEL = "m"
GRAMMAR = 'root ::= "a"'
# What a field's value may be, where one made from its schema alone would ask for something else; of several the first
# that the schema allows. A dict of fields: they go together.
EXAMPLES = {
    "allowed_token_ids": [[5]], "bad_words": [["x"]], "continue_final_message": [False],
    "documents": [[{"text": "x"}]], "embd_normalize": [2], "embedding_types": [["binary"]],
    "grammar": [GRAMMAR], "guided_choice": [["a", "b"]], "guided_grammar": [GRAMMAR],
    "guided_json": [{"type": "object"}], "guided_regex": ["a"], "include": [[]], "input_extra": [["x"]],
    "input_type": ["search_query"], "instruction": [""],
    "json_schema": [{"type": "object"}], "logit_bias": [{"5": 1}], "logprobs": [True],
    "messages": [[{"role": "user", "content": "x"}]], "modalities": [["text"]], "model": [MODEL], "priority": [0],
    "response_format": [{"type": "text"}], "samplers": [["top_k"]], "stop": ["x"], "stop_sequences": [["x"]],
    "structured_outputs": [{"regex": "a"}], "suffix": [""], "system": ["x"], "task": ["embed"],
    "text": [{"format": {"type": "text"}}], "texts": [["x"]], "thinking": [{"type": "disabled"}],
    "thinking_token_budget": [-1], "timeout": [60], "tokens": [[5]],
    "tool_choice": ["auto", {"type": "auto"}], "tools": [[]], "adaptive_target": [-1], "top_n_sigma": [-1], "truncate": ["END"],
    **{name: [0] for name in ("dry_multiplier", "dynatemp_range", "mirostat", "xtc_probability")},
}
TOGETHER = {"top_logprobs": {"logprobs": True, "top_logprobs": 1}, "stream_options": {"stream": True, "stream_options": {}}}
# A second name of one thing, or another way to say it: not with the first.
INSTEAD_OF = {"text_1": "queries", "text_2": "documents", "data_1": "queries", "data_2": "documents", "items": "documents",
              "prompt": "messages", "content": "messages", "input": "messages", "max_tokens": "n_predict"}
NEEDS_GRAMMARS = ("grammar", "guided_choice", "guided_grammar", "guided_json", "guided_regex", "json_schema",
                  "structured_outputs")
FEW = {"max_tokens": 1, "max_output_tokens": 1, "n_predict": 1}  # in every body that has one of them
ANY_TYPE = [True, 7, "x", [], {}]


class Api:
    """A server with its document."""

    def __init__(self, server):
        self.server = server
        self.connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
        self.document = json.loads(self.ask("GET", "/openapi.json")[1])

    def ask(self, method, path, body=None):
        """On one connection, which the server closes if another's turn takes longer than it waits for the next request."""
        headers = {} if body is None else {"Content-Type": "application/json"}
        for last in (False, True):
            try:
                self.connection.request(method, path, None if body is None else json.dumps(body), headers)
                answer = self.connection.getresponse()
                return answer.status, answer.read().decode()
            except (ConnectionError, http.client.RemoteDisconnected):
                self.connection.close()
                if last:
                    raise

    def operations(self):
        return [(method.upper(), path, operation) for path, item in self.document["paths"].items()
                for method, operation in item.items()]

    def bodies(self):
        """(path, the schema of its body) of each operation that reads one of one kind."""
        schemas = self.document["components"]["schemas"]
        return [(path, schemas[kinds[0]]) for path, kinds in self.kinds() if len(kinds) == 1]

    def kinds(self):
        """(path, the names of the schemas of its bodies) of each operation that reads one."""
        asked = [(path, operation["requestBody"]["content"]["application/json"]["schema"])
                 for _, path, operation in self.operations() if "requestBody" in operation]
        return [(path, [one["$ref"].rsplit("/", 1)[1] for one in schema.get("anyOf", [schema])]) for path, schema in asked]


def example(name, schema):
    schema = schema["anyOf"][0] if {"type": "null"} in schema.get("anyOf", []) else schema
    candidates = [*EXAMPLES.get(name, []), 1, True, "x", ["x"], [1], [{}], {}, *schema.get("enum", [])]
    return next(value for value in candidates if jsonschema.Draft202012Validator(schema).is_valid(value))


def whole_body(path, schema):
    """The least that the endpoint answers."""
    names = [*schema.get("required", []), *(name for name in FEW if name in schema["properties"])]
    if path.endswith("/score"):
        names += ["queries", "documents"]
    if "messages" in schema["properties"]:  # instead of a text, so that fields of conversations have one
        names += ["messages"]
    return {name: FEW.get(name) or example(name, schema["properties"][name]) for name in names}


def is_read(schema):
    return "description" not in schema


@pytest.fixture(scope="module")
def generator(start_server, filling):  # noqa: F811
    return Api(start_server(filling, "--stand-in", "10000", "--served-model-name", MODEL, "--trust-request-chat-template"))


@pytest.fixture(scope="module")
def embedder(start_server, data):
    return Api(start_server(data / "embedders" / "qwen3-embedding", "--dtype", "float32", "--kv-cache-space", "64MiB",
                            "--served-model-name", MODEL))


@pytest.fixture(scope="module")
def scorer(start_server, data):
    return Api(start_server(data / "embedders" / "bert-reranker", "--dtype", "float32", "--served-model-name", MODEL,
                            "--enable-sleep-mode", "--enable-cache-reset", "--no-ui", "--ignore-unknown-fields"))


@pytest.fixture(params=["generator", "embedder", "scorer"])
def api(request):
    return request.getfixturevalue(request.param)


@pytest.fixture
def strict(generator, embedder):
    """The servers that refuse unknown fields."""
    return generator, embedder


def test_the_document_is_valid(api):
    assert api.document["openapi"].startswith("3.1")
    openapi_spec_validator.validate(api.document)


def test_every_endpoint_in_it_answers_and_no_other(api):
    for method, path, _ in api.operations():
        if method == "GET":
            status, _ = api.ask(method, path.replace("{model}", MODEL))
            assert status == 200, path
    _, refusal = api.ask("GET", "/nowhere")
    listed = json.loads(refusal)["error"]["message"].split("this server answers ")[1].split(", ")
    assert listed == list(api.document["paths"])


OF_ALL = {"/health", "/v1/health", "/ping", "/load", "/version", "/metrics", "/server_info", "/openapi.json", "/v1/models",
          "/models", "/v1/models/{model}", "/tokenizer_info", "/props", "/slots", "/tokenize", "/detokenize",
          "/apply-template", "/invocations", "/v1/messages/count_tokens"}
OF_TEXTS = {"/v1/completions", "/v1/chat/completions", "/v1/responses", "/v1/messages", "/completion", "/completions", "/infill"}
OF_VECTORS = {"/v1/embeddings", "/v2/embed", "/embedding", "/embeddings"}
OF_SCORES = {"/score", "/v1/score", "/rerank", "/reranking", "/v1/rerank", "/v1/reranking", "/v2/rerank"}


def test_a_model_offers_what_it_can_answer(generator, embedder, scorer):
    offered = [set(api.document["paths"]) for api in (generator, embedder, scorer)]
    assert offered[0] == OF_ALL | OF_TEXTS | {"/"}
    assert offered[1] == OF_ALL | OF_VECTORS | OF_SCORES | {"/pooling", "/"}
    assert offered[2] == OF_ALL | OF_SCORES | {"/pooling", "/classify", "/sleep", "/wake_up", "/is_sleeping",
                                               "/reset_prefix_cache"}
    parameters = [item for api in (generator, scorer) for _, _, operation in api.operations()
                  for item in operation.get("parameters", [])]
    assert {(item["name"], item["in"]) for item in parameters} == {("model", "path"), ("fail_on_no_slot", "query"),
                                                                   ("level", "query")}


def test_templates_are_a_field_where_clients_are_trusted(generator, embedder):
    assert "chat_template" in generator.document["components"]["schemas"]["ChatCompletion"]["properties"]
    assert "chat_template" not in embedder.document["components"]["schemas"]["Embedding"]["properties"]


def test_a_body_of_the_required_fields_alone_is_answered(strict):
    for api in strict:
        for path, schema in api.bodies():
            body = whole_body(path, schema)
            status, answer = api.ask("POST", path, body)
            assert status == 200, (path, body, answer)
            for name in schema.get("required", []):
                rest = {key: value for key, value in body.items() if key != name}
                status, answer = api.ask("POST", path, rest)
                assert status == 400 and json.loads(answer)["error"].get("param", name) == name, (path, name, answer)


def test_every_field_in_it_is_taken(strict, binary):
    without = () if (pathlib.Path(binary).parent / "grammar-env").exists() else NEEDS_GRAMMARS
    for api in strict:
        for path, schema in api.bodies():
            for name, own in schema["properties"].items():
                if name in without:
                    continue
                body = {key: value for key, value in whole_body(path, schema).items() if key != INSTEAD_OF.get(name)}
                together = {name: ["any", 7]} if not is_read(own) else TOGETHER.get(name, {name: example(name, own)})
                body.update((key, value) for key, value in together.items() if key in schema["properties"])
                status, answer = api.ask("POST", path, body)
                assert status == 200, (path, body, answer)
                if name not in (least := whole_body(path, schema)):
                    status, answer = api.ask("POST", path, {**least, name: None})
                    assert status == 200, (path, name, answer)


def test_invocations_take_the_bodies_of_other_endpoints(generator, embedder, scorer):
    for api, kinds in ((generator, ["ChatCompletion", "Completion"]), (embedder, ["Embedding", "Rerank", "Score"]),
                       (scorer, ["Classification", "Rerank", "Score"])):
        assert dict(api.kinds())["/invocations"] == kinds
        for path, schema in api.bodies():
            if api is not scorer and any(schema is api.document["components"]["schemas"][kind] for kind in kinds):
                status, answer = api.ask("POST", "/invocations", whole_body(path, schema))
                assert status == 200, (path, answer)


def test_integers_may_have_a_point(strict):
    """To JSON Schema, 1.0 is one."""
    for api in strict:
        for path, schema in api.bodies():
            for name, own in schema["properties"].items():
                whole = TOGETHER.get(name, {name: example(name, own)}) if is_read(own) else {}
                if type(whole.get(name)) is not int or not jsonschema.Draft202012Validator(own).is_valid(float(whole[name])):
                    continue
                body = {key: value for key, value in whole_body(path, schema).items() if key != INSTEAD_OF.get(name)}
                body.update((key, value) for key, value in whole.items() if key in schema["properties"])
                status, answer = api.ask("POST", path, {**body, name: float(whole[name])})
                assert status == 200, (path, name, answer)


def test_a_value_of_another_type_is_refused(strict):
    for api in strict:
        for path, schema in api.bodies():
            for name, own in schema["properties"].items():
                body = {key: value for key, value in whole_body(path, schema).items() if key != INSTEAD_OF.get(name)}
                for value in ANY_TYPE:
                    if jsonschema.Draft202012Validator(own).is_valid(value):
                        continue
                    status, answer = api.ask("POST", path, {**body, name: value})
                    assert status == 400, (path, name, value, answer)
                    assert name in json.loads(answer)["error"]["message"] or path == "/infill", (path, name, answer)


def test_a_field_that_is_not_in_it_is_refused(strict):
    every = {name for api in strict for _, schema in api.bodies() for name in schema["properties"]} | {"watermarking"}
    for api in strict:
        error = api.document["components"]["responses"]["Error"]["content"]["application/json"]["schema"]
        jsonschema.Draft202012Validator.check_schema(error)
        error = jsonschema.Draft202012Validator(error)
        for path, schema in api.bodies():
            assert schema["additionalProperties"] is False
            least = whole_body(path, schema)
            for name in every - set(schema["properties"]):
                status, answer = api.ask("POST", path, {**least, name: 1})
                assert status == 400 and f"'{name}' is not " in answer, (path, name, answer)
                error.validate(json.loads(answer))


def test_a_server_that_ignores_unknown_fields_says_so(scorer):
    for path, schema in scorer.bodies():
        assert "additionalProperties" not in schema
    assert scorer.ask("POST", "/classify", {"input": "x", "watermarking": 1})[0] == 200
