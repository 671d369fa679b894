"""Output of `pinion launch` for others to start: proxies' configurations, Kubernetes' objects."""

import json
import os
import re
import shutil
import subprocess

import pytest

RECOMMENDED = "app.kubernetes.io/"
HOSTS = "127.0.0.1:8001,127.0.0.2,[::1]:9000"
KUBERNETES = "1.31"
# Models as a profile may name them: nothing in them may end a scalar of YAML.
HOSTILE = ["a: b", "a # b", "\"'`{{ x }}\\", "a\n---\nkind: Secret", "%YAML", "\u65e5\u672c/\U0001f600",
           "\x7f\x85\u2028\u2029\ufeff", "x" * 600, "*a/&b", "null", "~", "a\tb\rc"]


@pytest.fixture
def objects_of():
    """objects_of(text) -> the objects of a stream of YAML, each valid by the published schemas."""
    validator = pytest.importorskip("kubernetes_validate")
    yaml = pytest.importorskip("yaml")

    def read(text):
        objects = list(yaml.safe_load_all(text))
        for one in objects:
            validator.validate(one, KUBERNETES, strict=True)
        return objects

    return read


@pytest.fixture
def profile(tmp_path):
    file = tmp_path / "profile.json"
    file.write_text(json.dumps({
        "format": 2, "objective": "throughput", "model": "models/tiny",
        "configuration": {"max_num_seqs": 8, "kv_cache_space": 0.25, "replicas": 2},
        "machine": {"cores": 2, "cpus": 4}, "cpus": [0, 1, 2, 3],
        "expected": [{"metric": "peak_rss_bytes", "unit": "bytes", "median": 3e9}],
        "evidence": {"plan": {"ranks": [{"cpus": [0]}, {"cpus": [2]}], "frontend_cpus": []}}}))
    return file


def tool(name):
    """The program, which Debian keeps where only root looks for it."""
    path = shutil.which(name, path=os.environ["PATH"] + ":/usr/sbin:/usr/local/sbin")
    if path is None:
        pytest.skip(f"{name} is not installed")
    return path


def printed(pinion, profile, *flags):
    done = pinion("launch", profile, *flags)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_haproxy_takes_its_configuration(pinion, profile, tmp_path):
    program, file = tool("haproxy"), tmp_path / "haproxy.cfg"
    file.write_text(printed(pinion, profile, "--haproxy", HOSTS, "--host", "0.0.0.0", "--port", 9001))
    checked = subprocess.run([program, "-c", "-f", file], capture_output=True, text=True)
    assert checked.returncode == 0, checked.stderr
    assert "WARNING" not in checked.stderr


def test_nginx_takes_its_configuration(pinion, profile, tmp_path):
    program, file = tool("nginx"), tmp_path / "nginx.conf"
    # It tries whether it can write to its folders, which are Debian's, so only root can.
    folders = "  access_log off;\n" + "".join(f"  {kind}_temp_path {tmp_path}/{kind};\n"
                      for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
    file.write_text(printed(pinion, profile, "--nginx", HOSTS, "--port", 9001).replace(
        "http {\n", "http {\n" + folders, 1))
    checked = subprocess.run([program, "-t", "-c", file, "-g", f"pid {tmp_path}/pid; error_log stderr;"],
                             capture_output=True, text=True)
    assert checked.returncode == 0, checked.stderr
    assert "test is successful" in checked.stderr


@pytest.mark.parametrize("flags, says", [
    (("--haproxy", "one:x"), "'one:x' is not an address"),
    (("--nginx", "one,one"), "names one:8000 twice"),
    (("--haproxy", "one", "--nginx", "two"), "--nginx"),
    (("--k8s", "--dry-run"), "--dry-run"),
    (("--image", "x"), "--k8s"),
])
def test_bad_flags_are_refused_by_name(pinion, profile, flags, says):
    done = pinion("launch", profile, *flags)
    assert done.returncode == 2 and says in done.stderr and not done.stdout


def test_kubernetes_objects_fit_the_published_schemas(pinion, profile, objects_of):
    objects = objects_of(printed(pinion, profile, "--k8s", "--served-model-name", "tiny"))
    assert [one["kind"] for one in objects] == ["ConfigMap", "Deployment", "Service"]
    config, deployment, service = objects
    pod = deployment["spec"]["template"]
    container = pod["spec"]["containers"][0]
    # The pod gets the profile that was measured, and what it says of itself.
    inside, own = json.loads(config["data"]["profile.json"]), json.loads(profile.read_text())
    assert inside["configuration"].items() >= own["configuration"].items()
    assert inside["evidence"] == own["evidence"]
    assert container["args"][0] == "launch" and container["args"][-1] == "tiny"
    limits = container["resources"]["limits"]
    assert limits == container["resources"]["requests"]
    # Every hardware thread of two cores, and a quarter more than the peak.
    assert limits == {"cpu": "4", "memory": "4Gi"}
    assert service["spec"]["selector"].items() <= pod["metadata"]["labels"].items()
    assert deployment["spec"]["selector"]["matchLabels"] == service["spec"]["selector"]
    assert pod["spec"]["volumes"][0]["configMap"]["name"] == config["metadata"]["name"]
    for one in objects:
        name, labels = one["metadata"]["name"], one["metadata"]["labels"]
        assert re.fullmatch("pinion-tiny-throughput-[0-9a-f]{6}", name)
        assert labels == {RECOMMENDED + "name": "pinion", RECOMMENDED + "instance": name,
                          RECOMMENDED + "component": "model-server"}
    assert pod["metadata"]["labels"] == deployment["metadata"]["labels"]
    assert service["spec"]["ports"][0]["targetPort"] == container["ports"][0]["name"]


def names_of(objects):
    return {one["metadata"]["name"] for one in objects}


def changed(profile, **keys):
    profile.write_text(json.dumps({**json.loads(profile.read_text()), **keys}))
    return profile


def test_two_profiles_have_objects_of_their_own(pinion, profile, objects_of):
    first, = names_of(objects_of(printed(pinion, profile, "--k8s")))
    again, = names_of(objects_of(printed(pinion, profile, "--k8s", "--image", "other")))
    objective, = names_of(objects_of(printed(pinion, changed(profile, objective="latency"), "--k8s")))
    model, = names_of(objects_of(printed(pinion, changed(profile, model="other/tiny"), "--k8s")))
    assert first == again and len({first, objective, model}) == 3


@pytest.mark.parametrize("model", HOSTILE)
def test_a_hostile_model_is_only_a_text(pinion, profile, objects_of, model):
    objects = objects_of(printed(pinion, changed(profile, model=model), "--k8s"))
    assert json.loads(objects[0]["data"]["profile.json"])["model"] == model
    name, = names_of(objects)
    assert re.fullmatch("[a-z]([-a-z0-9]*[a-z0-9])?", name) and len(name) <= 63


def test_a_pods_arguments_are_those_of_launch(pinion, profile, objects_of, tmp_path):
    objects = objects_of(printed(pinion, profile, "--k8s"))
    file = tmp_path / "mounted.json"
    file.write_text(objects[0]["data"]["profile.json"].replace("models/tiny", "preset:tiny"))
    words = objects[1]["spec"]["template"]["spec"]["containers"][0]["args"]
    assert words[1] == "/etc/pinion/profile.json"
    done = pinion(words[0], file, *words[2:], "--dry-run")
    assert done.returncode == 0, done.stderr
    assert "--host 0.0.0.0 --port 8000 --allowed-hosts '*'" in done.stdout
