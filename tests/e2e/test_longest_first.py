"""The order in which files of tests begin."""

import os
import subprocess
import sys

from longest_first import LONGEST

CONFTEST = """
from conftest import pytest_xdist_make_scheduler
import longest_first
longest_first.LongestFirst.longest = ["test_longest.py", "test_long.py", "test_gone.py"]
"""
TESTS = {"test_many.py": 9, "test_some.py": 4, "test_long.py": 3, "test_longest.py": 3}


def test_every_file_of_the_list_is_there_once(top):
    assert len(LONGEST) == len(set(LONGEST)) > 0
    assert not [name for name in LONGEST if not (top / "tests/e2e" / name).exists()]


def test_files_of_the_list_begin_in_its_order_and_before_those_with_more_tests(top, tmp_path):
    for name, count in TESTS.items():
        tests = "".join(f"def test_{i}():\n    pass\n" for i in range(count))
        (tmp_path / name).write_text(tests)
    (tmp_path / "order.py").write_text(CONFTEST)
    words = [sys.executable, "-m", "pytest", "-v", "-n", "1", "--dist", "loadfile", "-p", "order"]
    done = subprocess.run([*words, "-p", "no:cacheprovider", "--rootdir", tmp_path, tmp_path], capture_output=True,
                          text=True, timeout=120, cwd=tmp_path,
                          env={**os.environ, "PYTHONPATH": f"{tmp_path}:{top / 'tests/e2e'}"})
    assert done.returncode == 0, done.stdout + done.stderr
    begun = [line.split("PASSED ")[1].split("::")[0] for line in done.stdout.splitlines() if "PASSED " in line]
    assert list(dict.fromkeys(begun)) == ["test_longest.py", "test_long.py", "test_many.py", "test_some.py"]
