#!/usr/bin/python3
"""A stand-in for an engine and for `pinion` in tests of scripts/bench-peers and bench-serving: it reports
scripted figures.

  NAME.py ... --port PORT    serves /health, /figures and /v1/embeddings
  NAME.py load URL ...       prints what the server at URL reports, as `pinion load` does
  NAME.py model make DIR     makes a folder that passes for a checkpoint
  NAME.py --version

STAND_IN is a folder: NAME.json there lists the figures of each start, and each start adds its NAME to `starts`. A
start without figures fails. Figures with a key "by" are those of several loads: by["WORD"] is that of a load with WORD
among its options. Figures of an embedder are its `vectors`, of which texts get one after the other, and the `tokens` that it reads in a text.
"""

import array
import base64
import http.server
import itertools
import json
import os
import pathlib
import sys
import urllib.request

FOLDER = pathlib.Path(os.environ.get("STAND_IN", "."))
NAME = pathlib.Path(sys.argv[0]).stem


def serve(port):
    starts = FOLDER / "starts"
    begun = starts.read_text().split() if starts.exists() else []
    figures = json.loads((FOLDER / f"{NAME}.json").read_text())[begun.count(NAME)]
    starts.write_text("\n".join([*begun, NAME]))

    class Handler(http.server.BaseHTTPRequestHandler):
        def reply(self, status, document):
            self.send_response(status)
            self.end_headers()
            self.wfile.write(json.dumps(document).encode())

        def do_GET(self):
            self.reply(200, figures)

        def do_POST(self):
            texts = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["input"]
            if "vectors" not in figures:
                self.reply(400, {"error": "it embeds nothing"})
                return
            embeddings = itertools.cycle(base64.b64encode(array.array("f", vector).tobytes()).decode()
                                         for vector in figures["vectors"])
            self.reply(200, {"usage": {"prompt_tokens": len(texts) * figures["tokens"]},
                             "data": [{"index": i, "embedding": next(embeddings)} for i in range(len(texts))]})

        def log_message(self, *_):
            pass

    http.server.HTTPServer(("127.0.0.1", port), Handler).serve_forever()


def main():
    words = sys.argv[1:]
    if words[0] == "--version":
        print(f"{NAME} 9.9")
    elif words[0] == "model":
        folder = pathlib.Path(words[-1])
        folder.mkdir(parents=True)
        (folder / "config.json").write_text("{}")
        (folder / "tokenizer.json").write_text('{"model": {"merges": ["Ġ o", "Ġo f", "Ġ a", "Ġa n"]}}')
    elif words[0] == "load":
        with urllib.request.urlopen(words[1] + "/figures") as reply:
            figures = json.load(reply)
        figures = next((of for word, of in figures.get("by", {}).items() if word in " ".join(words)), figures)
        print(json.dumps(figures))
        sys.exit(0 if "completed" in figures or figures.get("pass") else 1)
    else:
        serve(int(words[words.index("--port") + 1]))


if __name__ == "__main__":
    main()
