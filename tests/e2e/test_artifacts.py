"""Output of `pinion launch --emit KIND`: files for Kubernetes, its stacks, vLLM's recipes and Grafana."""

import json
import os
import re
import shutil
import subprocess

import jsonschema
import pytest

from test_launch_files import HOSTILE, changed, objects_of, printed  # noqa: F401 -- a fixture

yaml = pytest.importorskip("yaml")

KINDS = ["k8s", "kubelet", "production-stack", "llm-d", "recipe", "grafana"]
OF_PODS = ["k8s", "production-stack", "llm-d"]

# Two nodes with two L3 domains of two cores each, whose second hardware threads are 8 to 15.
MACHINE = {"cpu_model": "A CPU", "cores": 8, "cpus": 16,
           "nodes": [{"id": node, "cpus": 8, "cpu_list": f"{4 * node}-{4 * node + 3},{4 * node + 8}-{4 * node + 11}",
                      "memory_bytes": 64_000_000_000} for node in range(2)],
           "cores_by_l3": [f"{cpu},{cpu + 8}|{cpu + 1},{cpu + 9}" for cpu in (0, 2, 4, 6)]}
EXPECTED = [{"metric": "peak_rss_bytes", "unit": "bytes", "concurrency": 0, "n": 6, "median": 3e9, "interval": None},
            {"metric": "ttft_s", "unit": "s", "concurrency": 8, "n": 6, "median": 0.25,
             "interval": {"low": 0.24, "high": 0.26, "coverage": 0.97}},
            {"metric": "output_tokens_per_s", "unit": "tokens/s", "concurrency": 0, "rate": 2.5, "n": 6,
             "median": 40.5, "interval": None}]
PROFILE = {"format": 2, "objective": "throughput", "model": "some-org/A.Model_1B",
           "configuration": {"threads_bind": "0-1|2-3", "tensor_parallel": 2, "max_num_seqs": 8, "kv_cache_space": 0.25},
           "machine": MACHINE, "cpus": list(range(16)), "expected": EXPECTED,
           "evidence": {"plan": {"ranks": [{"cpus": [0, 1]}, {"cpus": [2]}], "frontend_cpus": [3]},
                        "version": "1.2.3", "updated_at": "2026-11-20T18:08:20Z",
                        "model_facts": {"parameters": 1_235_814_400, "active_parameters": 1_235_814_400,
                                        "context_length": 131072, "weight_bytes": 2_471_628_800}}}


@pytest.fixture
def profile(tmp_path):
    file = tmp_path / "profile.json"
    file.write_text(json.dumps(PROFILE))
    return file


def emitted(pinion, profile, kind, *flags):
    return yaml.safe_load(printed(pinion, profile, "--emit", kind, *flags))


# ---- The kubelet

QUANTITY = {"type": "string", "pattern": "^[0-9]+(Mi|Gi)?$"}
SWITCHES = {"type": "object", "additionalProperties": {"enum": ["true", "false"]}}
# The fields of kubelet.config.k8s.io/v1beta1 that may be in the file, with the values that are known.
KUBELET = {
    "type": "object", "additionalProperties": False, "required": ["apiVersion", "kind"],
    "properties": {
        "apiVersion": {"const": "kubelet.config.k8s.io/v1beta1"},
        "kind": {"const": "KubeletConfiguration"},
        "cpuManagerPolicy": {"enum": ["none", "static"]},
        "cpuManagerPolicyOptions": {**SWITCHES, "propertyNames": {"enum": [
            "full-pcpus-only", "prefer-align-cpus-by-uncorecache", "distribute-cpus-across-numa"]}},
        "reservedSystemCPUs": {"type": "string", "pattern": r"^\d+(-\d+)?(,\d+(-\d+)?)*$"},
        "topologyManagerPolicy": {"enum": ["none", "best-effort", "restricted", "single-numa-node"]},
        "memoryManagerPolicy": {"enum": ["None", "Static"]},
        "systemReserved": {"type": "object", "additionalProperties": QUANTITY},
        "reservedMemory": {"type": "array", "items": {
            "type": "object", "additionalProperties": False, "required": ["numaNode", "limits"],
            "properties": {"numaNode": {"type": "integer"},
                           "limits": {"type": "object", "additionalProperties": QUANTITY}}}}}}


def test_a_kubelet_gets_the_policies_that_the_profile_needs(pinion, profile):
    settings = emitted(pinion, profile, "kubelet")
    jsonschema.validate(settings, KUBELET)
    assert settings["cpuManagerPolicy"] == "static"
    assert settings["cpuManagerPolicyOptions"] == {"full-pcpus-only": "true",
                                                   "prefer-align-cpus-by-uncorecache": "true"}
    assert settings["topologyManagerPolicy"] == "single-numa-node"
    assert settings["reservedSystemCPUs"] == "4,12"
    # The static memory manager must keep as much as the kubelet, with its threshold of 100Mi.
    kept = sum(int(one["limits"]["memory"].removesuffix("Mi")) for one in settings["reservedMemory"])
    assert kept == int(settings["systemReserved"]["memory"].removesuffix("Mi")) + 100


def test_threads_that_are_not_pinned_need_no_policies(pinion, profile):
    settings = emitted(pinion, changed(profile, configuration={"threads_bind": "nobind"}), "kubelet")
    jsonschema.validate(settings, KUBELET)
    assert settings.keys() == {"apiVersion", "kind"}


# ---- vLLM's production stack

TEXT, LIST, COUNT = {"type": "string"}, {"type": "array"}, {"type": "integer"}


def only(**properties):
    return {"type": "object", "additionalProperties": False, "required": list(properties), "properties": properties}


# The values that the file may set, with the types that the chart's own schema gives them.
VALUES = only(
    servingEngineSpec=only(
        strategy={"type": "object"}, containerPort=COUNT,
        startupProbe=only(initialDelaySeconds=COUNT, periodSeconds=COUNT, failureThreshold=COUNT,
                          httpGet=only(path=TEXT, port=COUNT)),
        modelSpec={"type": "array", "items": only(
            name=TEXT, repository=TEXT, tag=TEXT, modelURL=TEXT, replicaCount=COUNT, requestCPU=COUNT, limitCPU=COUNT,
            requestMemory=TEXT, limitMemory=TEXT, runtimeClassName=TEXT, extraVolumeMounts=LIST, extraVolumes=LIST)}),
    extraObjects=LIST)


def spec_of(values):
    spec, = values["servingEngineSpec"]["modelSpec"]
    return spec


def test_values_fit_the_charts_schema(pinion, profile, objects_of):  # noqa: F811
    text = printed(pinion, profile, "--emit", "production-stack", "--image", "registry:5000/x/pinion:1.2")
    values = yaml.safe_load(text)
    jsonschema.validate(values, VALUES)
    spec = spec_of(values)
    assert (spec["repository"], spec["tag"]) == ("registry:5000/x/pinion", "1.2")
    assert spec["modelURL"] == PROFILE["model"]
    # Whole cores of four, and a quarter more than the peak.
    assert spec["requestCPU"] == spec["limitCPU"] == 8
    assert spec["requestMemory"] == spec["limitMemory"] == "4Gi"
    # "vllm-NAME-engine-service" is a label.
    assert len(f"release-{spec['name']}-engine-service") <= 63
    mapped, = objects_of(yaml.safe_dump(values["extraObjects"][0]))
    assert json.loads(mapped["data"]["profile.json"])["model"] == PROFILE["model"]
    volumes = {volume["name"]: volume for volume in spec["extraVolumes"]}
    assert {mount["name"] for mount in spec["extraVolumeMounts"]} == set(volumes)
    assert volumes["command"]["configMap"] == {"name": mapped["metadata"]["name"], "defaultMode": 0o755}


@pytest.mark.parametrize("image, parts", [
    ("pinion", ("pinion", "latest")), ("a:5000/pinion", ("a:5000/pinion", "latest")),
    ("pinion@sha256:01ab", ("pinion@sha256", "01ab"))])
def test_an_image_is_split_into_the_charts_repository_and_tag(pinion, profile, image, parts):
    spec = spec_of(emitted(pinion, profile, "production-stack", "--image", image))
    assert (spec["repository"], spec["tag"]) == parts


# The chart's containers run `vllm serve MODEL ...`, and Helm takes extra objects for templates.
@pytest.mark.parametrize("name", ["a model", "{{ .Values }}", "it's {{{{", "a\nb"])
def test_the_charts_command_launches_the_profile(pinion, profile, tmp_path, name):
    values = emitted(pinion, profile, "production-stack", "--served-model-name", name)
    data = values["extraObjects"][0]["data"]
    assert "{{" not in data["vllm"] + data["profile.json"]
    (tmp_path / "vllm").write_text(data["vllm"])
    program = tmp_path / "pinion"
    program.write_text('#!/bin/sh\nprintf "%s\\0" "${HF_HOME-none}" "$@"\n')
    for file in ("pinion", "vllm"):
        (tmp_path / file).chmod(0o755)
    done = subprocess.run([tmp_path / "vllm", "serve", "x", "--host", "0.0.0.0"], capture_output=True, text=True,
                          env={"PATH": f"{tmp_path}:{os.environ['PATH']}", "HF_HOME": "/tmp"})
    assert done.stdout.split("\0")[:-1] == [
        "none", "launch", "/etc/pinion/profile.json", "--host", "0.0.0.0", "--port", "8000", "--allowed-hosts", "*",
        "--served-model-name", name]


def test_a_template_in_a_model_is_not_a_template(pinion, profile):
    model = "/models/{{ .Release.Name }}"
    data = emitted(pinion, changed(profile, model=model), "production-stack")["extraObjects"][0]["data"]
    assert "{{" not in data["profile.json"] and json.loads(data["profile.json"])["model"] == model


# ---- llm-d

# As a guide's overlay makes it: a Deployment "...decode" with variables of its own model.
GUIDE = {
    "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "guide-decode"},
    "spec": {"replicas": 2, "selector": {"matchLabels": {"guide": "g"}}, "template": {
        "metadata": {"labels": {"guide": "g"}},
        "spec": {"volumes": [{"name": "dshm", "emptyDir": {"medium": "Memory"}}], "containers": [{
            "name": "modelserver", "image": "vllm", "command": ["vllm", "serve"], "args": ["another/model"],
            "env": [{"name": "VLLM_CPU_KVCACHE_SPACE", "value": "32"}, {"name": "HF_TOKEN", "value": "x"}],
            "resources": {"limits": {"cpu": "64"}, "requests": {"cpu": "64"}},
            "ports": [{"containerPort": 8000, "name": "modelserver"}],
            "volumeMounts": [{"name": "dshm", "mountPath": "/dev/shm"}]}]}}}}


@pytest.fixture
def patched(pinion, objects_of, tmp_path):  # noqa: F811
    """patched(profile) -> the ConfigMap and the Deployment of a guide with the profile's component."""
    if shutil.which("kubectl") is None:
        pytest.skip("kubectl is not installed")

    def build(profile, *flags):
        for folder in ("guide", "component", "own"):
            (tmp_path / folder).mkdir(exist_ok=True)
        (tmp_path / "guide/deployment.yaml").write_text(yaml.safe_dump(GUIDE))
        (tmp_path / "guide/kustomization.yaml").write_text("resources: [deployment.yaml]\n")
        (tmp_path / "component/kustomization.yaml").write_text(printed(pinion, profile, "--emit", "llm-d", *flags))
        (tmp_path / "own/kustomization.yaml").write_text("resources: [../guide]\ncomponents: [../component]\n")
        done = subprocess.run(["kubectl", "kustomize", tmp_path / "own"], capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        objects = {one["kind"]: one for one in objects_of(done.stdout)}
        return objects["ConfigMap"], objects["Deployment"]

    return build


def test_a_guides_model_server_launches_the_profile(pinion, profile, patched):
    mapped, deployment = patched(profile, "--image", "a/pinion:1", "--served-model-name", "a: b")
    pod = deployment["spec"]["template"]["spec"]
    container, = pod["containers"]
    assert json.loads(mapped["data"]["profile.json"])["configuration"].items() >= PROFILE["configuration"].items()
    assert container["image"] == "a/pinion:1" and container["args"][-1] == "a: b"
    assert container["resources"]["limits"] == container["resources"]["requests"] == {"cpu": "8", "memory": "4Gi"}
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    assert volumes["profile"]["configMap"]["name"] == mapped["metadata"]["name"]
    assert {mount["name"] for mount in container["volumeMounts"]} == set(volumes) == {"profile", "models", "dshm"}
    # The rest stays the guide's.
    assert deployment["spec"]["replicas"] == 2 and container["ports"] and container["env"] == GUIDE[
        "spec"]["template"]["spec"]["containers"][0]["env"]


def test_a_guides_variables_do_not_beat_the_profile(binary, profile):
    text = subprocess.run([binary, "launch", profile, "--emit", "llm-d"], capture_output=True, text=True).stdout
    patch = yaml.safe_load(yaml.safe_load(text)["patches"][0]["patch"])
    *command, program = patch["spec"]["template"]["spec"]["containers"][0]["command"]
    assert program == "pinion"
    changed(profile, model="preset:tiny", configuration={"kv_cache_space": 0.25})
    words = [*command, binary, "launch", profile, "--dry-run"]
    done = subprocess.run(words, capture_output=True, text=True,
                          env={**os.environ, "VLLM_CPU_KVCACHE_SPACE": "32", "VLLM_CPU_OMP_THREADS_BIND": "nobind"})
    assert done.returncode == 0, done.stderr
    assert "--kv-cache-space 0.25" in done.stdout and "the environment sets" not in done.stderr


# kustomize reads what it wrote itself, but for control characters.
@pytest.mark.parametrize("model", [model for model in HOSTILE if "\x7f" not in model])
def test_a_hostile_model_in_a_component_is_only_a_text(profile, patched, model):
    mapped, _ = patched(changed(profile, model=model))
    assert json.loads(mapped["data"]["profile.json"])["model"] == model


# ---- vLLM's recipes

RECIPE = only(
    meta=only(title=TEXT, slug=TEXT, provider=TEXT, description=TEXT, date_added={}, date_updated={},
              difficulty={"enum": ["beginner", "intermediate", "advanced"]},
              tasks={"type": "array", "items": {"enum": ["text", "multimodal", "omni", "embedding"]}},
              hardware={"type": "object"}),
    model=only(model_id=TEXT, min_vllm_version=TEXT, architecture={"enum": ["dense", "moe"]}, parameter_count=TEXT,
               active_parameters=TEXT, context_length=COUNT, base_args=LIST, base_env={"type": "object"}),
    features={"type": "object"}, opt_in_features=LIST,
    variants=only(default=only(precision=TEXT, vram_minimum_gb=COUNT, description=TEXT)),
    compatible_strategies=LIST,
    hardware_overrides=only(cpu=only(extra_args={"type": "array", "items": TEXT},
                                     extra_env={"type": "object", "additionalProperties": TEXT})),
    strategy_overrides=only(single_node_tp=only(tp=only(cpu=COUNT))), guide=TEXT)


def test_a_recipe_has_vllms_settings_for_cpus(pinion, profile):
    recipe = emitted(pinion, profile, "recipe")
    jsonschema.validate(recipe, RECIPE)
    assert recipe["model"]["model_id"] == PROFILE["model"]
    assert recipe["model"]["parameter_count"] == "1.2B" and recipe["model"]["architecture"] == "dense"
    assert recipe["variants"]["default"]["precision"] == "bf16"
    of_cpus = recipe["hardware_overrides"]["cpu"]
    assert recipe["strategy_overrides"]["single_node_tp"]["tp"] == {"cpu": 2} and "-tp" not in of_cpus["extra_args"]
    assert "--max-num-seqs" in of_cpus["extra_args"]
    # CPU numbers are of one machine.
    assert of_cpus["extra_env"]["VLLM_CPU_OMP_THREADS_BIND"] == "auto"
    assert recipe["meta"]["hardware"] == {}, "vLLM was not measured"
    assert "| ttft_s | 8 clients | 0.25 s | 0.24 to 0.26 s |" in recipe["guide"]


def test_experts_make_a_model_sparse(pinion, profile):
    facts = {**PROFILE["evidence"]["model_facts"], "parameters": 30_532_122_624, "active_parameters": 3_353_000_000}
    model = emitted(pinion, changed(profile, evidence={**PROFILE["evidence"], "model_facts": facts}), "recipe")["model"]
    assert (model["architecture"], model["parameter_count"], model["active_parameters"]) == ("moe", "30.5B", "3.4B")


@pytest.mark.parametrize("model", ["/models/x", "preset:tiny", "a/b/c", "../x", "a/..", "a/b.gguf", "a: b/c", *HOSTILE])
def test_only_models_of_the_hub_have_recipes(pinion, profile, model):
    done = pinion("launch", changed(profile, model=model), "--emit", "recipe")
    assert done.returncode == 1 and not done.stdout
    assert "ORG/REPO" in done.stderr and done.stderr.count("\n") == 1


def test_a_hostile_machine_does_not_end_a_recipes_guide(pinion, profile):
    machine = {**MACHINE, "cpu_model": "a\nb: c\x7f\u2028\ud7ff|"}
    recipe = emitted(pinion, changed(profile, machine=machine), "recipe")
    jsonschema.validate(recipe, RECIPE)
    assert "on a b: c\\u007f\\u2028\ud7ff|, 4 CPUs" in recipe["guide"]


# ---- Grafana


def expressions(dashboard):
    return [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]


def test_a_dashboard_asks_for_metrics_that_the_server_has(pinion, profile, start_server):
    server = start_server("preset:tiny", "--served-model-name", "tiny", "--kv-cache-space", "64MiB")
    server.post("/v1/completions", {"model": "tiny", "prompt": "a", "max_tokens": 3, "ignore_eos": True})
    lines = [line for line in server.get("/metrics").splitlines() if not line.startswith("#")]
    served = {re.match(r"[\w:]+", line)[0] for line in lines if 'model_name="tiny"' in line}
    dashboard = json.loads(printed(pinion, profile, "--emit", "grafana"))
    asked = set(re.findall(r"vllm:\w+", " ".join(expressions(dashboard))))
    variables = {one["name"]: one for one in dashboard["templating"]["list"]}
    asked |= set(re.findall(r"vllm:\w+", variables["model"]["query"]))
    assert len(asked) > 10 and asked <= served, asked - served
    assert all('{model_name="$model"}' in one for one in expressions(dashboard) if "vllm:" in one)


def test_a_dashboard_has_expected_values_beside_live_ones(pinion, profile):
    dashboard = json.loads(printed(pinion, profile, "--emit", "grafana"))
    assert len(dashboard["uid"]) <= 40 and PROFILE["model"] in dashboard["title"]
    panels = {panel["title"]: panel for panel in dashboard["panels"]}
    assert len({panel["id"] for panel in panels.values()}) == len(dashboard["panels"])
    places = {(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in panels.values()}
    assert len(places) == len(panels), "no two panels cover each other"
    first = {target["legendFormat"]: target["expr"] for target in panels["Time to the first token"]["targets"]}
    assert first.pop("expected median, 8 clients: 0.25 s (0.24 to 0.26 s)") == "vector(0.25)"
    assert set(first) == {"median", "95 %"}
    output = [target["legendFormat"] for target in panels["Output"]["targets"]]
    assert output == ["output", "expected output, 2.5 requests/s: 40.5 tokens/s"]
    for panel in panels.values():
        names = [target["refId"] for target in panel["targets"]]
        assert len(set(names)) == len(names)


# ---- All of them


@pytest.mark.parametrize("model", HOSTILE)
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in ("recipe", "llm-d")])
def test_hostile_models_are_only_texts(pinion, profile, kind, model):
    text = printed(pinion, changed(profile, model=model), "--emit", kind)
    for one in [json.loads(text)] if kind == "grafana" else yaml.safe_load_all(text):
        assert isinstance(one, dict)


@pytest.mark.parametrize("kind", ["kubelet", *OF_PODS])
def test_a_profile_that_names_no_size_is_refused_in_a_sentence(pinion, profile, kind):
    done = pinion("launch", changed(profile, expected=[]), "--emit", kind)
    assert done.returncode == 1 and not done.stdout
    assert "peak_rss_bytes" in done.stderr and done.stderr.count("\n") == 1


def test_k8s_is_short_for_emit_k8s(pinion, profile):
    assert printed(pinion, profile, "--k8s") == printed(pinion, profile, "--emit", "k8s")


@pytest.mark.parametrize("flags, says", [
    (("--emit", "x"), "kubelet,production-stack"), (("--emit", "k8s", "--k8s"), "--k8s"),
    (("--k8s", "--restart"), "--restart"), (("another.json", "--dry-run"), "'another.json' is one word too many"),
    (("--emit", "kubelet", "--dry-run"), "--dry-run"), (("--emit", "recipe", "--haproxy", "one"), "--haproxy")])
def test_bad_kinds_are_refused_by_name(pinion, profile, flags, says):
    done = pinion("launch", profile, *flags)
    assert done.returncode == 2 and says in done.stderr and not done.stdout


# ---- Beside a sweep's profiles


def test_a_report_links_to_the_files_that_it_wrote(pinion, real_sweep):
    page = (real_sweep / "report.html").read_text()
    links = re.findall(r'<a href="([^"]+)">', page)
    assert {link.split("/")[-1] for link in links} >= {"k8s.yaml", "kubelet.yaml", "production-stack.yaml",
                                                       "kustomization.yaml", "grafana.json"}
    for link in links:
        text = (real_sweep / link).read_text()
        kind = {"kustomization.yaml": "llm-d"}.get(link.split("/")[-1], link.split("/")[-1].split(".")[0])
        objective = link.split("/")[1]
        assert text == printed(pinion, real_sweep / f"profiles/{objective}.json", "--emit", kind)
    assert "<b>recipe</b>: none, because &quot;preset:tiny&quot; is no ORG/REPO of the Hugging Face hub" in page


def test_a_sweeps_profile_tells_the_needs_of_its_files(pinion, real_sweep):
    profile = json.loads((real_sweep / "profiles/throughput.json").read_text())
    assert {"parameters", "active_parameters", "context_length"} <= profile["evidence"]["model_facts"].keys()
    assert sum(len(cores.split("|")) for cores in profile["machine"]["cores_by_l3"]) == profile["machine"]["cores"]
    settings = emitted(pinion, real_sweep / "profiles/throughput.json", "kubelet")
    jsonschema.validate(settings, KUBELET)
