"""The processes below one of ours."""

import contextlib
import pathlib


def children_of(pid):
    """Process ids; none if it, or a thread of it, has just ended."""
    try:
        return [int(child) for path in pathlib.Path(f"/proc/{pid}/task").glob("*/children")
                for child in path.read_text().split()]
    except OSError:
        return []


def descendants_of(pid):
    return [each for child in children_of(pid) for each in (child, *descendants_of(child))]


def is_engine(pid):
    with contextlib.suppress(OSError):
        return b"engine-worker" in pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()
    return False


def engines_of(server):
    """The engine processes of a server, also of one behind mpirun, in the order in which they were started."""
    def below(pid):
        return [each for child in children_of(pid) for each in ([child] if is_engine(child) else below(child))]
    return sorted(below(server.process.pid))


def engine_of(server):
    """The first of them; None between two of them."""
    return next(iter(engines_of(server)), None)
