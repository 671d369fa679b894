"""The life of a helper process (see README.md): runs the modules that it is sent first, then answers requests by them."""

import json
import sys
import types

# Below what a thread's stack of 8 MiB holds, so that deep recursion is a Python error.
RECURSION_LIMIT = 1000

requests, answers = open(3, "rb"), open(4, "wb")


def read_frame():
    """The text of the next message; None at the end of the input."""
    header = requests.read(4)
    size = int.from_bytes(header, "little")
    body = requests.read(size)
    return body.decode() if len(header) == 4 and len(body) == size else None


def write_frame(text):
    body = text.encode()
    answers.write(len(body).to_bytes(4, "little") + body)
    answers.flush()


def load(modules, packages):
    """Runs modules, names and sources in the order of their imports; returns what answers requests, the last one's."""
    sys.path[:0] = packages
    for name, source in modules:
        module = sys.modules[name] = types.ModuleType(name)
        exec(compile(source, f"{name}.py", "exec"), module.__dict__)
    return module.handle


def serve():
    try:
        handle = load(**json.loads(read_frame()))
    except Exception as problem:
        write_frame(json.dumps({"error": f"{type(problem).__name__}: {problem}"}))
        while read_frame() is not None:  # if it ended here, a request on its way would hide the reason
            pass
        return
    while (request := read_frame()) is not None:
        write_frame(handle(request))


sys.setrecursionlimit(RECURSION_LIMIT)
try:
    serve()
except ConnectionError:
    pass  # the engine is gone
except Exception as problem:
    sys.exit(f"pinion: the {sys.argv[1]} failed: {type(problem).__name__}: {problem}")
