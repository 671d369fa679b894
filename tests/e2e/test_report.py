"""The files of a sweep: valid, self-contained, and launchable."""

import csv
import html
import html.parser
import json
import os
import re
import shlex
import shutil
import sqlite3
import subprocess

import jsonschema
import pytest

from conftest import REAL_SWEEP


@pytest.fixture(scope="module")
def sweep(real_sweep):
    return real_sweep


@pytest.fixture(scope="module")
def results(sweep):
    return json.loads((sweep / "results.json").read_text())


class Loads(html.parser.HTMLParser):
    """Collects what a browser would fetch by itself, and the scripts by type."""

    def __init__(self):
        super().__init__()
        self.fetched = []
        self.scripts = []

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        if tag == "script":
            self.scripts.append(attributes.get("type", "text/javascript"))
        # A link is followed only if a person clicks on it.
        self.fetched += [value for name, value in attributes.items()
                         if tag != "a" and name in ("src", "href", "srcset", "action", "data", "poster")]


def test_report_is_one_file_that_loads_nothing(sweep):
    page = (sweep / "report.html").read_text()
    place = r"( on the server.{1,6}s CPUs|(, in \d+ of \d+ trials)? on CPUs that neither engine nor front end use)"
    assert re.search(rf"a process of its own{place}, took at most [0-9.]+ % of a core\.", page)
    loads = Loads()
    loads.feed(page)
    assert loads.fetched == []
    assert loads.scripts == ["application/json", "text/javascript", "text/javascript"]
    assert "default-src 'none'" in page


def test_results_name_every_candidate_and_why_one_was_not_measured(results):
    infeasible = [one for one in results["candidates"] if one["status"] == "infeasible"]
    assert infeasible
    assert all(one["reason"] for one in infeasible)
    measured = [one for one in results["candidates"] if one["series"]]
    assert measured
    assert results["finished"]
    assert {one["objective"] for one in results["verdicts"]} == set(REAL_SWEEP["objectives"])


def validate(document, top, schema):
    jsonschema.validate(document, json.loads((top / "profiles" / schema).read_text()))


def test_written_files_follow_the_schemas(sweep, results, top):
    validate(results, top, "results.schema.json")
    validate(results["definition"], top, "sweep.schema.json")


def test_results_and_profiles_name_the_version_that_measured(sweep, results, version):
    assert results["version"] == version
    profile = json.loads((sweep / "profiles" / "throughput.json").read_text())
    assert profile["evidence"]["version"] == version


def test_csv_agrees_with_json(sweep, results):
    with open(sweep / "results.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert {int(row["candidate"]) for row in rows} == {one["id"] for one in results["candidates"]}
    for candidate in results["candidates"]:
        for series in candidate["series"]:
            match = [row for row in rows if int(row["candidate"]) == candidate["id"]
                     and row["metric"] == series["metric"]
                     and int(row["concurrency"]) == series["concurrency"]]
            assert len(match) == 1
            assert float(match[0]["median"]) == pytest.approx(series["estimate"]["median"])


@pytest.mark.parametrize("objective", REAL_SWEEP["objectives"])
def test_profiles_are_valid_and_launchable(sweep, top, pinion, objective):
    file = sweep / "profiles" / f"{objective}.json"
    profile = json.loads(file.read_text())
    validate(profile, top, "profile.schema.json")
    assert profile["objective"] == objective
    assert profile["expected"]
    done = pinion("launch", file, "--dry-run")
    assert done.returncode == 0, done.stderr
    assert " serve preset:tiny" in done.stdout
    assert "not the machine" not in done.stderr


def test_report_writes_the_outputs_again_from_the_store(sweep, pinion, tmp_path):
    names = ("results.csv", "results.json", "report.md", "report.html")
    copy = tmp_path / "copy"
    copy.mkdir()
    shutil.copy(sweep / "results.db", copy)
    done = pinion("report", copy)
    assert done.returncode == 0, done.stderr
    for name in names:
        assert (copy / name).read_text().replace(str(copy), str(sweep)) == (sweep / name).read_text()


def test_report_on_a_folder_without_a_sweep_fails_plainly(pinion, tmp_path):
    done = pinion("report", tmp_path)
    assert done.returncode == 1
    assert str(tmp_path) in done.stderr


def test_a_sweep_is_named_by_its_folder_or_by_its_store(pinion, sweep, tmp_path):
    by_folder = pinion("report", sweep, "--format", "csv")
    by_store = pinion("report", "results.db", "--format", "csv", cwd=sweep)
    assert by_folder.returncode == by_store.returncode == 0, by_store.stderr
    assert by_store.stdout == by_folder.stdout
    other = pinion("report", sweep / "results.csv")
    assert other.returncode == 2
    assert other.stderr == (f"pinion: {sweep}/results.csv is not a sweep; give the folder that `pinion sweep` wrote, or its "
                            "results.db\n")
    gathered = pinion("report", "--gather", sweep / "results.db", sweep, "--out", tmp_path / "gathered")
    assert gathered.returncode == 2 and f"--gather names {sweep} twice" in gathered.stderr


def test_requests_are_judged_again_by_other_limits(pinion, sweep):
    """Nothing is measured again: the store has every request."""
    def goodput(*flags):
        done = pinion("report", sweep, "--json", *flags)
        assert done.returncode == 0, done.stderr
        series = json.loads(done.stdout)["candidates"][0]["series"]
        return {one["concurrency"]: [sample["value"] for sample in one["samples"]] for one in series
                if one["metric"] == "goodput"}

    assert goodput() == {}
    all_meet, none_meet = goodput("--slo", "ttft=1h,tpot=1h"), goodput("--slo", "ttft=0.001ms")
    assert all_meet.keys() == none_meet.keys() == {1, 2}
    assert all(value > 0 for values in all_meet.values() for value in values)
    assert all(value == 0 for values in none_meet.values() for value in values)
    bad = pinion("report", sweep, "--slo", "ttft=soon")
    assert bad.returncode == 2 and "soon" in bad.stderr


def test_the_stores_size_per_million_tokens_is_told(sweep, top, tmp_path):
    def told(folder):
        return subprocess.run([top / "scripts/store-size", folder], capture_output=True, text=True, timeout=60)

    done = told(sweep)
    assert done.returncode == 0, done.stderr
    with sqlite3.connect(sweep / "results.db") as database:
        requests, tokens = database.execute("select count(*), sum(output_tokens) from requests").fetchone()
        trials, = database.execute("select count(*) from trial").fetchone()
    found = re.fullmatch(r"([\d,]+) requests with ([\d,]+) tokens: ([\d.]+) MB per million tokens\n"
                         r"([\d,]+) trials: ([\d.]+) kB each beside that\n", done.stdout)
    assert [int(found[i].replace(",", "")) for i in (1, 2, 4)] == [requests, tokens, trials]
    whole = float(found[3]) * tokens + float(found[5]) * 1e3 * trials
    assert whole == pytest.approx((sweep / "results.db").stat().st_size, rel=0.05)
    (tmp_path / "a#b?c").symlink_to(sweep)
    assert told(tmp_path / "a#b?c").stdout == done.stdout, "the folder's name is not read as a URI"
    missing = told(tmp_path)
    assert missing.returncode == 1 and f"{tmp_path}/results.db does not exist" in missing.stderr


@pytest.fixture(scope="module")
def forms(sweep):
    """The ways to launch the first objective's choice, as the page offers them for copying."""
    page = (sweep / "report.html").read_text()
    rows = re.findall(r'<th scope="row">([^<]*)</th><td><div class="copyable"><pre class="command">([^<]*)</pre>', page)
    found = {title: html.unescape(text) for title, text in rows}
    assert {"vLLM", "systemd unit", "Container", "Slurm job"} <= set(found)
    first = re.search(r'<pre class="command">([^<]*)</pre>', page.split("<h2>Launch</h2>")[1])
    return {**found, "Pinion": html.unescape(first.group(1))}


def dry_run(words, top):
    return subprocess.run([*words, "--dry-run"], cwd=top, capture_output=True, text=True, timeout=60)


def test_the_launch_command_starts_the_stated_configuration(forms, top):
    done = dry_run(shlex.split(forms["Pinion"]), top)
    assert done.returncode == 0, done.stderr
    assert " serve preset:tiny" in done.stdout


def test_the_systemd_unit_is_one(forms, top, tmp_path):
    unit = tmp_path / "pinion.service"
    unit.write_text(forms["systemd unit"])
    command = next(line.removeprefix("ExecStart=") for line in unit.read_text().splitlines()
                   if line.startswith("ExecStart="))
    assert dry_run(shlex.split(command), "/").returncode == 0  # from anywhere
    if not shutil.which("systemd-analyze"):
        pytest.skip("systemd-analyze is not installed")
    done = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and "pinion.service" not in done.stderr, done.stderr


def test_the_slurm_job_is_a_script_that_starts_the_profile(forms, top, tmp_path):
    job = tmp_path / "job"
    job.write_text(forms["Slurm job"])
    srun = tmp_path / "srun"  # as the scheduler would: its own options, then the command
    srun.write_text('#!/bin/bash\nwhile [[ $1 == --* ]]; do shift; done\nexec "$@" --dry-run\n')
    srun.chmod(0o755)
    done = subprocess.run(["bash", job], cwd="/", capture_output=True, text=True, timeout=60,
                          env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"})
    assert done.returncode == 0, done.stderr
    assert " serve preset:tiny" in done.stdout
    options = " ".join(line.removeprefix("#SBATCH ") for line in job.read_text().splitlines()
                       if line.startswith("#SBATCH"))
    assert re.search(r"--cpus-per-task=\d+ --mem=\d+G", options)


def test_the_container_gets_the_profile_at_the_path_it_reads(forms, sweep, top):
    words = shlex.split(forms["Container"])
    assert words[:2] == ["podman", "run"]
    image = words.index("pinion")
    assert words[image + 1:] == ["launch", "/profile.json"]
    volumes = [word.removeprefix("--volume=").split(":") for word in words if word.startswith("--volume=")]
    source = next(source for source, target, mode in volumes if target == "/profile.json")
    assert dry_run([top / "build/pinion", "launch", source], top).returncode == 0


def test_two_sweeps_side_by_side(sweep, results, pinion, tmp_path):
    page = pinion("report", sweep, "--compare", sweep)
    assert page.returncode == 0, page.stderr
    assert page.stdout.strip() == f"{sweep}/comparison.html"
    loads = Loads()
    loads.feed((sweep / "comparison.html").read_text())
    assert loads.fetched == []
    answer = json.loads(pinion("report", sweep, "--compare", sweep, "--json").stdout)
    # Of a sweep to itself; how many rounds it had was its own choice.
    assert re.match(r"Nothing changed beyond noise|No verdict between the two: they have \d+ rounds in common "
                    r"and a verdict needs \d+ to decide", answer["answer"]), answer["answer"]
    assert answer["environment"] == []
    assert all(one["same"] for one in answer["recommended"])
    for figure in answer["figures"]:
        assert figure["a"] == figure["b"]
        candidate = next(one for one in results["candidates"] if figure["configuration"] in
                         (", ".join(f"{key}={value}" for key, value in one["settings"].items()), "the defaults"))
        assert figure["a"] in [one["estimate"] for one in candidate["series"]]
    text = pinion("report", sweep, "--compare", sweep, "--format", "md").stdout
    assert "## Recommendations" in text
    refused = pinion("report", sweep, "--compare", sweep, "--format", "csv")
    assert refused.returncode == 2
    assert "html, md, json" in refused.stderr
    nowhere = pinion("report", sweep, "--compare", tmp_path)
    assert nowhere.returncode == 1
    assert str(tmp_path) in nowhere.stderr


def test_a_sweep_records_the_data_of_the_report(results):
    measured = [one for one in results["candidates"] if one["status"] in ("ok", "dropped")]
    for candidate in measured:
        metrics = {(one["metric"], one["concurrency"]) for one in candidate["series"]}
        for metric in ("prefill_flops_per_s", "decode_bytes_per_s", "steal_share", "ceiling_flops_per_s"):
            assert (metric, 0) in metrics, metric
        assert {("preemptions", 1), ("preemptions", 2), ("generator_cpu_share", 0)} <= metrics
        assert len(candidate["distributions"]) == 4
    checks = {one["name"] for one in results["provenance"]["hygiene"]["checks"]}
    assert {"governor", "quota", "swap"} <= checks
