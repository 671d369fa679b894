"""`pinion doctor` on this machine, and on folders that look like one: --root is what a container
has of its host."""

import json
import os
import pathlib
import shutil
import subprocess
import tempfile

import pytest

GOVERNOR = "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"
BOOST = "sys/devices/system/cpu/cpufreq/boost"
CHECKS = ["governor", "turbo", "smt", "numa_balancing", "zone_reclaim", "huge_pages", "reserved_pages",
          "allocator", "openmp", "quota", "cpuset", "mitigations", "load", "swap",
          "counter_kernel", "counter_numa", "counter_core", "counter_memory", "counter_energy",
          "counter_wall"]


@pytest.fixture
def root():
    """A machine with two settings to mend, readable for every user."""
    folder = pathlib.Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    for path, text in ((GOVERNOR, "powersave\n"), (BOOST, "0\n")):
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    yield folder
    shutil.rmtree(folder)


def test_says_every_check_in_words_and_in_json(pinion, pinion_json):
    found = pinion_json("doctor", "--json")
    assert [check["name"] for check in found["checks"]] == CHECKS
    for check in found["checks"]:
        assert check["state"] in ("ok", "warn", "not available")
        assert check["reason"]
        assert check["found"] or check["state"] == "not available"
    assert found["warnings"] == sum(check["state"] == "warn" for check in found["checks"])
    said = pinion("doctor")
    assert said.returncode == 0
    for check in found["checks"]:
        assert check["name"] in said.stdout
        if check["state"] == "not available":
            assert "not available, because " + check["reason"] in said.stdout


def test_strict_fails_if_there_is_a_warning(pinion, root):
    assert pinion("doctor", "--root", root).returncode == 0
    assert pinion("doctor", "--root", root, "--strict").returncode == 1


@pytest.mark.parametrize("flags, says", [
    (["--governor"], "--governor"),
    (["--apply", "humour"], "'humour' is not a check; these can be applied now: governor, turbo"),
    (["--apply", "swap"], "has no setting here that could be changed"),
    (["--", "true"], "name them with --apply"),
    (["--restore", "/no/such/file"], "/no/such/file"),
    (["--undo-file", "x"], "--apply"),
])
def test_bad_usage_is_told_in_a_sentence(pinion, root, flags, says):
    done = pinion("doctor", "--root", root, *flags)
    assert done.returncode == 2
    assert says in done.stderr


def test_applies_the_named_settings_and_restores_them(pinion, root, tmp_path):
    undo = tmp_path / "undo.json"
    done = pinion("doctor", "--root", root, "--apply", "governor", "--undo-file", undo)
    assert done.returncode == 0, done.stderr
    assert f"applied: /{GOVERNOR}: powersave -> performance" in done.stderr
    assert f"--restore {undo}" in done.stdout
    assert (root / GOVERNOR).read_text() == "performance"
    assert (root / BOOST).read_text() == "0\n"  # not named
    assert json.loads(undo.read_text())["changes"] == [
        {"path": "/" + GOVERNOR, "before": "powersave", "after": "performance"}]

    again = pinion("doctor", "--root", root, "--apply", "turbo", "--undo-file", undo)
    assert again.returncode == 2 and "were not undone yet" in again.stderr
    assert (root / BOOST).read_text() == "0\n"

    assert pinion("doctor", "--root", root, "--restore", undo).returncode == 0
    assert (root / GOVERNOR).read_text() == "powersave"
    assert not undo.exists()


def test_runs_a_command_under_changed_settings(pinion, root, tmp_path):
    seen = tmp_path / "seen"
    script = f"cat {root / GOVERNOR} > {seen}; exit 7"
    done = pinion("doctor", "--root", root, "--apply", "governor", "--undo-file", tmp_path / "undo",
                  "--", "sh", "-c", script)
    assert done.returncode == 7, done.stderr
    assert seen.read_text() == "performance"
    assert (root / GOVERNOR).read_text() == "powersave"
    assert not (tmp_path / "undo").exists()


def test_restore_keeps_settings_changed_meanwhile(pinion, root, tmp_path):
    undo = tmp_path / "undo.json"
    pinion("doctor", "--root", root, "--apply", "governor", "--undo-file", undo)
    (root / GOVERNOR).write_text("ondemand\n")
    done = pinion("doctor", "--root", root, "--restore", undo)
    assert done.returncode == 1
    assert "is 'ondemand' now" in done.stderr
    assert (root / GOVERNOR).read_text() == "ondemand\n"
    assert undo.exists()


def test_restore_writes_nothing_but_settings(pinion, root, tmp_path):
    undo = tmp_path / "undo.json"
    undo.write_text(json.dumps({"changes": [{"path": "/etc/x", "before": "0", "after": "1"}]}))
    done = pinion("doctor", "--root", root, "--restore", undo)
    assert done.returncode == 2
    assert "/etc/x is not a setting below /sys or /proc/sys" in done.stderr


def test_without_permission_it_says_so_and_changes_nothing(binary, root, tmp_path):
    (root / GOVERNOR).chmod(0o444)
    as_nobody = {"user": 65534, "group": 65534, "extra_groups": []} if os.geteuid() == 0 else {}
    folder = pathlib.Path(tempfile.mkdtemp())
    folder.chmod(0o777)
    undo = folder / "undo.json"
    # A copy: the folders above the binary may be closed to that user.
    program = shutil.copy(binary, folder)
    done = subprocess.run([program, "doctor", "--root", root, "--apply", "governor", "--undo-file",
                           undo], capture_output=True, text=True, **as_nobody)
    left = undo.exists()
    shutil.rmtree(folder)
    assert done.returncode == 1
    assert len(done.stderr.strip().splitlines()) == 1
    assert f"cannot write 'performance' to {root}/{GOVERNOR}: Permission denied; run as root" in (
        done.stderr)
    assert (root / GOVERNOR).read_text() == "powersave\n"
    assert not left
