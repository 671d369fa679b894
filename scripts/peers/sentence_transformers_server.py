"""Serves sentence-transformers as it embeds a batch: GET /health and POST /v1/embeddings, with vectors in base64.

  sentence_transformers_server.py MODEL --dtype TYPE --threads N --batch-size N --port PORT

It runs in the environment into which bench-peers installs the library.
"""

import argparse
import array
import base64
import http.server
import json

import sentence_transformers
import torch


def base64_of(vector):
    """float32, little-endian, as OpenAI's API has it."""
    return base64.b64encode(array.array("f", vector.tolist()).tobytes()).decode()


def answer(model, texts, batch_size):
    vectors = model.encode(texts, batch_size=batch_size, show_progress_bar=False)
    tokens = int(model.preprocess(texts)["attention_mask"].sum())
    return {"object": "list", "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
            "data": [{"object": "embedding", "index": index, "embedding": base64_of(vector)}
                     for index, vector in enumerate(vectors)]}


def handler(model, batch_size):
    class Handler(http.server.BaseHTTPRequestHandler):
        def reply(self, document):
            body = json.dumps(document).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_GET(self):
            self.reply({"status": "ok"})

        def do_POST(self):
            request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            self.reply(answer(model, request["input"], batch_size))

        def log_message(self, *_):
            pass

    return Handler


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("model")
    parser.add_argument("--dtype", default="bfloat16", choices=("bfloat16", "float32"))
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--batch-size", type=int, required=True, help="texts that are computed at once")
    parser.add_argument("--port", type=int, required=True)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    model = sentence_transformers.SentenceTransformer(options.model, device="cpu",
                                                      model_kwargs={"dtype": getattr(torch, options.dtype)})
    # Of a made-up tokenizer, the library would put the chat template around each text, and miss a token to pad with: any
    # will do, because the mask hides it.
    model[0].modality_config.pop("message", None)
    if model.tokenizer.pad_token is None:
        model.tokenizer.pad_token = model.tokenizer.convert_ids_to_tokens(0)
    http.server.HTTPServer(("127.0.0.1", options.port), handler(model, options.batch_size)).serve_forever()


if __name__ == "__main__":
    main()
