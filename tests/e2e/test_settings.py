"""Every setting goes from its flag to the server, from there into a profile, and from the profile to the server that
is launched. There is no list of settings here: the rows come from the registry, so that a new one walks along."""

import json
import os
import pathlib

import pytest

MODEL = "preset:tiny"
# Values for settings whose schema gives none that differs from the default and works on every machine.
VALUES = {"threads_bind": "nobind", "gemm_kernel": "scalar", "kv_cache_space": 0.125, "isa": "scalar",
          "reserved_cpus": 0, "tensor_parallel": 1, "pipeline_parallel": 1, "max_model_len": 256, "replicas": 2,
          "prefill_replicas": 1}
NOT_WITH_NOBIND = {"smt", "reserved_cpus"}  # they act under auto only
NOT_WITHOUT_PREFIXES = {"prefill_replicas"}  # and prefix_caching is off among the others
# These walk by themselves. More ranks than CPUs need threads that are not pinned.
BY_THEMSELVES = [{"replicas": 2, "prefill_replicas": 1}, {"reserved_cpus": 1},
                 {"threads_bind": "nobind", "tensor_parallel": 2}, {"threads_bind": "nobind", "pipeline_parallel": 2}]
SMT = pathlib.Path("/sys/devices/system/cpu/smt/active")
if SMT.exists() and SMT.read_text().strip() == "1":
    BY_THEMSELVES.append({"smt": "on"})
# Of the process, without a flag: {key: (its default, another value, what the server then tells, what a machine needs)}.
LIBRARIES = pathlib.Path("/usr/lib/x86_64-linux-gnu"), pathlib.Path("/usr/lib/llvm-14/lib")
PAGES = pathlib.Path("/sys/kernel/mm/transparent_hugepage/enabled")
OF_THE_PROCESS = {
    "allocator": ("system", "tcmalloc", "tcmalloc", lambda: has_library("libtcmalloc_minimal.so.4")),
    "openmp": ("system", "libomp", "libomp", lambda: has_library("libomp.so.5")),
    "huge_pages": ("on", "off", "off", lambda: PAGES.exists() and "[never]" not in PAGES.read_text())}


def has_library(name):
    return any((folder / name).exists() for folder in LIBRARIES)


@pytest.fixture(scope="module")
def registry(pinion_json):
    return pinion_json("describe-registries")


def another(key, schema):
    """An allowed value that is not the default."""
    if key in VALUES:
        return VALUES[key]
    schema = next(one for one in schema.get("anyOf", [schema]) if one.get("type") != "null")
    if "enum" in schema:
        return schema["enum"][1]
    if schema["type"] == "boolean":
        return False
    return schema.get("minimum", 0) + 2 * schema.get("multipleOf", 1)


def flags_of(registry):
    """{key: its flags} of the settings that have one."""
    rows = [line.strip("| ").split(" | ") for line in registry["settings_table"].splitlines()[2:]]
    return {row[0].strip("`"): [flag.strip("`") for flag in row[1].split(", ")] for row in rows if row[1] != "none"}


def words(flags, value):
    if len(flags) == 2:  # --on, --no-on
        return [flags[0 if value else 1]]
    return [flags[0], int(value) if isinstance(value, bool) else value]


@pytest.fixture(scope="module")
def wanted(registry):
    flags, schemas = flags_of(registry), registry["settings"]["properties"]
    return {key: another(key, schemas[key]) for key in flags
            if key not in NOT_WITH_NOBIND | NOT_WITHOUT_PREFIXES}


def options_of(server):
    info = json.loads(server.get("/server_info"))
    engines = info.get("replicas", [info])
    roles = [one["prefill"]["role"] for one in engines if "prefill" in one]
    return {**info["options"], "replicas": len(engines), "prefill_replicas": roles.count("prefill")}


def walk(flags, wanted, start_server, tmp_path):
    """The options of a server without them, of one with them, and of one launched by the second one's profile."""
    before = options_of(start_server(MODEL))
    after = options_of(start_server(MODEL, *(word for key, value in wanted.items() for word in words(flags[key], value))))
    for key, value in wanted.items():
        assert after[key] == value, key
    profile = tmp_path / "profile.json"
    profile.write_text(json.dumps({
        "format": 2, "objective": "throughput", "model": MODEL, "machine": {}, "cpus": [],
        "configuration": {key: after[key] for key in wanted}}))
    launched = options_of(start_server(profile, command="launch"))
    assert {key: launched[key] for key in wanted} == {key: after[key] for key in wanted}
    return before, after


def test_a_setting_walks_from_its_flag_into_a_profile_and_to_the_launched_server(
        registry, wanted, start_server, tmp_path):
    assert len(wanted) > 12, "the registry's table has changed its form"
    before, after = walk(flags_of(registry), wanted, start_server, tmp_path)
    changed = {key for key in wanted if before[key] != after[key]}
    # The defaults: with two replicas there would be more ranks than a small machine has time for.
    assert changed >= set(wanted) - {"tensor_parallel", "pipeline_parallel"}


@pytest.mark.parametrize("wanted", BY_THEMSELVES, ids=lambda wanted: list(wanted)[-1])
def test_settings_that_do_not_go_with_the_others_walk_as_well(registry, wanted, start_server, tmp_path):
    if "reserved_cpus" in wanted and len(os.sched_getaffinity(0)) < 2:
        pytest.skip("a reserved core needs another one to compute")
    before, after = walk(flags_of(registry), wanted, start_server, tmp_path)
    assert all(before[key] != after[key] for key in wanted), (before, after)


def test_every_flag_of_serve_is_made_from_its_row(registry, pinion_json):
    serve = next(one for one in pinion_json("describe-commands")["commands"] if one["name"] == "serve")
    told = {name: option["description"] for option in serve["options"] for name in option["names"]}
    rows = [line.strip("| ").split(" | ") for line in registry["settings_table"].splitlines()[2:]]
    for row in rows:
        for flag in row[1].split(", ") if row[1] != "none" else []:
            assert row[-1].replace("\\|", "|") in told[flag.strip("`")], flag


def test_no_setting_stays_behind(registry, wanted):
    walked = {*wanted, *OF_THE_PROCESS, *(key for one in BY_THEMSELVES for key in one)}
    assert set(registry["settings"]["properties"]) - walked <= {"smt"}, "without hardware threads it has one value"


@pytest.mark.parametrize("key", OF_THE_PROCESS)
def test_a_setting_of_the_process_walks_from_a_profile_to_the_launched_server(start_server, tmp_path, key):
    usual, other, told, is_here = OF_THE_PROCESS[key]
    if not is_here():
        pytest.skip(f"{other} cannot be had on this machine")
    profile = tmp_path / "profile.json"
    found = []
    for value in (usual, other):
        profile.write_text(json.dumps({"format": 2, "objective": "throughput", "model": MODEL, "machine": {},
                                       "cpus": [], "configuration": {key: value}}))
        found.append(json.loads(start_server(profile, command="launch").get("/server_info"))[key])
    assert told not in found[0] and told in found[1], found


def test_a_setting_is_read_from_its_variable(registry, wanted, pinion_json):
    rows = [line.strip("| ").split(" | ") for line in registry["settings_table"].splitlines()[2:]]
    variables = {row[0].strip("`"): row[2].strip("`") for row in rows if row[2] != "none"}
    assert "kv_cache_space" in variables
    for key, variable in variables.items():
        value = wanted.get(key, 0)  # reserved_cpus
        text = str(int(value) if isinstance(value, bool) else value)
        found = pinion_json("bench", MODEL, "--json", "--prompt-len", 4, "--output-len", 2, "--batch", 1, "--rounds", 1,
                            "--isa", "scalar", env={variable: text})
        assert found["config"][key] == value, key
