"""Rules that hold for every command."""

import pytest


def test_version_goes_to_standard_output(pinion):
    done = pinion("--version")
    assert done.returncode == 0
    assert done.stdout.startswith("pinion ")


def test_help_lists_commands_and_succeeds(pinion):
    done = pinion("--help")
    assert done.returncode == 0
    assert "Usage" in done.stdout


@pytest.mark.parametrize("arguments", [(), ("no-such-command",), ("--no-such-flag",)])
def test_bad_usage_is_exit_code_2_with_clean_standard_output(pinion, arguments):
    done = pinion(*arguments)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr
