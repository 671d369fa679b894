"""Rules that hold for every command."""

import subprocess

import pytest


def test_version_is_that_of_the_build_on_standard_output(pinion, version):
    done = pinion("--version")
    assert done.returncode == 0
    assert done.stdout == f"pinion {version}\n"


def test_libraries_are_not_taken_from_the_working_folder(pinion, binary, tmp_path):
    linked = subprocess.run(["ldd", binary], capture_output=True, text=True, check=True).stdout
    names = [line.split()[0] for line in linked.splitlines() if "=> /" in line]
    assert len(names) > 10
    for name in names:
        (tmp_path / name).touch()  # no library: to load it is an error
    done = pinion("--version", cwd=tmp_path)
    assert done.returncode == 0, done.stderr


def test_help_lists_commands_and_succeeds(pinion):
    done = pinion("--help")
    assert done.returncode == 0
    assert "Usage" in done.stdout


def test_examples_of_the_program_are_in_its_own_help_alone(pinion):
    assert "pinion sweep preset:tiny" in pinion("--help").stdout
    for command in (("probe",), ("model", "info")):
        assert "pinion sweep preset:tiny" not in pinion(*command, "--help").stdout


@pytest.mark.parametrize("arguments", [(), ("no-such-command",), ("--no-such-flag",)])
def test_bad_usage_is_exit_code_2_with_clean_standard_output(pinion, arguments):
    done = pinion(*arguments)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr
