"""--memory-policy: what the kernel says of a server's memory, and a kernel that refuses to."""

import json
import pathlib
import re
import sys
import textwrap

import pytest

from conftest import Server

# As the kernel writes them in numa_maps.
IN_MAPS = {"local": "local", "strict": "bind:", "preferred": "prefer:", "interleave": "interleave:"}
FLAGS = ("--kv-cache-space", "64MiB", "--isa", "avx2", "--gemm-kernel", "avx2")


def policies_of(server):
    """{policy: resident pages} of the memory of a server's engine, its child, as the kernel says."""
    engine, = [int(child) for path in pathlib.Path(f"/proc/{server.process.pid}/task").glob("*/children")
               for child in path.read_text().split()]
    pages = {}
    for line in pathlib.Path(f"/proc/{engine}/numa_maps").read_text().splitlines():
        policy = line.split()[1]
        pages[policy] = pages.get(policy, 0) + sum(int(count) for count in re.findall(r" N\d+=(\d+)", line))
    return pages


def refusing(folder, binary, calls):
    """The binary under a filter that answers EPERM to these system calls, as container runtimes do."""
    script = folder / "refusing"
    script.write_text(f"#!{sys.executable}\nCALLS, BINARY = {list(calls)!r}, {str(binary)!r}\n" + textwrap.dedent("""
        import ctypes, os, struct, sys
        EPERM, LOAD, EQUAL, RETURN = 1, 0x20, 0x15, 0x06
        code = [(LOAD, 0, 0, 0)]
        for call in CALLS:
            code += [(EQUAL, 0, 1, call), (RETURN, 0, 0, 0x00050000 | EPERM)]
        code.append((RETURN, 0, 0, 0x7fff0000))
        filters = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *one) for one in code))
        program = ctypes.create_string_buffer(struct.pack("HxxxxxxQ", len(code), ctypes.addressof(filters)))
        libc = ctypes.CDLL(None, use_errno=True)
        assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, program) == 0, ctypes.get_errno()
        os.execv(BINARY, [BINARY, *sys.argv[1:]])
    """))
    script.chmod(0o755)
    return script


MBIND, MOVE_PAGES = 237, 279


@pytest.mark.parametrize("policy", IN_MAPS)
def test_the_kernel_has_the_policy_that_was_asked_for(binary, pinion, tmp_path, policy):
    server = Server(binary, tmp_path / "log", "preset:tiny", "--memory-policy", policy, *FLAGS)
    try:
        try:
            pages = policies_of(server)
        except FileNotFoundError:
            pytest.skip("this kernel has no numa_maps")
        info = json.loads(server.get("/server_info"))
        live = pinion("topo", "--live", server.url).stdout
    finally:
        server.stop()
    if info["memory_policy"]["refusal"]:
        pytest.skip(info["memory_policy"]["refusal"])
    assert info["memory_policy"] == {"asked": policy, "in_force": policy, "refusal": None}
    assert info["placement"][0]["policy"] == policy
    of_policy = sum(count for name, count in pages.items() if name.startswith(IN_MAPS[policy]))
    # Weights, scratch and the KV of the warm-up; everything else of the process has no policy.
    assert of_policy * 4096 >= info["weight_bytes"]
    assert set(pages) - {"default"} == {name for name in pages if name.startswith(IN_MAPS[policy])}
    assert f"memory policy {policy}" in live


def test_a_kernel_that_refuses_is_named_and_the_server_goes_on(binary, pinion, tmp_path):
    server = Server(refusing(tmp_path, binary, [MBIND, MOVE_PAGES]), tmp_path / "log", "preset:tiny",
                    "--memory-policy", "strict", *FLAGS)
    try:
        info = json.loads(server.get("/server_info"))
        live = " ".join(pinion("topo", "--live", server.url).stdout.split())
        answer = server.post("/v1/completions", {"model": "preset:tiny", "prompt": [1, 2, 3], "max_tokens": 2})
    finally:
        server.stop()
    assert answer["usage"]["completion_tokens"] == 2
    assert info["memory_policy"]["in_force"] == "local"
    said = info["memory_policy"]["refusal"]
    assert "--memory-policy strict is not in force: the kernel refuses mbind" in said and "CAP_SYS_NICE" in said
    log = (tmp_path / "log").read_text()
    assert log.count(said) == 1
    assert info["placement"][0]["unknown"] == "the kernel refuses move_pages (Operation not permitted)"
    for text in live, log:
        assert "unknown, because the kernel refuses move_pages" in text and "not written yet" not in text
    assert said in live


def test_a_strict_rank_that_does_not_fit_is_refused_with_the_way_out(pinion):
    """On a machine of two nodes: the other one's memory does not count, unless pages may spill."""
    def refusal(policy):
        topo = pinion("topo", "preset:tiny", "--machine", "numa:2(memory=8GiB) core:2 pu:1", "-tp", "2",
                      "--threads-bind", "0|1", "--kv-cache-space", "6GiB", "--memory-policy", policy, "--json")
        assert topo.returncode == 0, topo.stderr
        return json.loads(topo.stdout)["model"]["refusal"]

    said = refusal("strict")
    assert "ranks 0, 1 need 12.0 GiB on NUMA node 0, which has 8.0 GiB free" in said
    assert "or --memory-policy preferred" in said
    assert not refusal("preferred") and not refusal("interleave")


def test_an_unknown_policy_names_the_known_ones(pinion):
    done = pinion("topo", "preset:tiny", "--memory-policy", "near")
    assert done.returncode == 2
    assert "local, strict, preferred or interleave" in done.stderr


def test_a_sweep_may_vary_it(pinion, tmp_path):
    definition = tmp_path / "def.json"
    definition.write_text('{"axes": {"memory_policy": ["local", "strict", "interleave"]}}')
    done = pinion("sweep", "preset:tiny", "--plan", "--json", "--def", definition)
    assert done.returncode == 0, done.stderr
    assert [one["name"] for one in json.loads(done.stdout)["candidates"]] == [
        "default", "memory_policy=strict", "memory_policy=interleave"]
