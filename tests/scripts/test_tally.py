"""scripts/tally on JUnit files as GoogleTest, ctest and pytest write them."""

import contextlib
import importlib.machinery
import importlib.util
import io
import pathlib
import sys
import tempfile
import unittest
from unittest import mock


def load_tally():
    path = str(pathlib.Path(__file__).resolve().parents[2] / "scripts" / "tally")
    loader = importlib.machinery.SourceFileLoader("tally", path)
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("tally", loader))
    with mock.patch.object(sys, "dont_write_bytecode", True):
        loader.exec_module(module)
    return module


tally = load_tally()


def case(name, inside="", seconds=0.0, classname="Suite", status=None):
    status = f' status="{status}"' if status else ""
    return (f'<testcase classname="{classname}" name="{name}" time="{seconds}"{status}>'
            f"{inside}</testcase>")


def ctest(name, status="run", inside=""):
    return case(name, inside, classname=name, status=status)


PASS, FAIL, SKIP = "", '<failure message="no"/>', '<skipped message="no AMX"/>'


class Tally(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.results = pathlib.Path(folder.name)

    def write(self, path, *cases):
        file = self.results / path
        file.parent.mkdir(exist_ok=True)
        file.write_text(f"<testsuites><testsuite>{''.join(cases)}</testsuite></testsuites>")

    def run_tally(self, *failed_stages):
        (self.results / "failed_stages").write_text("".join(f"{stage}\n" for stage in failed_stages))
        printed = io.StringIO()
        with mock.patch.object(sys, "argv", ["tally", str(self.results)]), \
                contextlib.redirect_stdout(printed):
            status = tally.main()
        self.lines = printed.getvalue().splitlines()
        return status

    def expect(self, passed, failed, skipped, failed_stages=()):
        status = self.run_tally(*failed_stages)
        self.assertEqual(self.lines[-1], f"== {passed} passed, {failed} failed, {skipped} skipped")
        self.assertEqual(status, 1 if failed else 0)

    def test_a_program_counts_by_its_cases_and_not_again_by_ctest(self):
        self.write("unit/kernels.xml", case("A"), case("B"))
        self.write("unit/ctest.xml", ctest("kernels"), ctest("check_weak_symbols"))
        self.expect(3, 0, 0)

    def test_one_program_run_under_two_names_counts_twice_its_cases(self):
        for name in ("engine_run", "engine_run_golden_scalar"):
            self.write(f"unit/{name}.xml", case("A"), case("B"))
        self.write("unit/ctest.xml", ctest("engine_run"), ctest("engine_run_golden_scalar"))
        self.expect(4, 0, 0)

    def test_a_program_that_skips_everything_does_not_pass(self):
        self.write("unit/golden_amx.xml", *(case(f"T{i}", SKIP) for i in range(264)))
        self.write("unit/ctest.xml", ctest("golden_amx"))
        self.expect(0, 0, 264)
        self.assertIn("   unit: golden_amx skipped all of its tests (264)", self.lines)

    def test_a_program_that_skips_some_is_not_named(self):
        self.write("unit/a.xml", case("A", SKIP), case("B"))
        self.expect(1, 0, 1)
        self.assertFalse([line for line in self.lines if "skipped all" in line])

    def test_disabled_tests_are_skipped(self):
        self.write("unit/a.xml", case("DISABLED_A", status="notrun"), case("B", status="run"))
        self.write("unit/ctest.xml", ctest("a"), ctest("off", "disabled"))
        self.expect(1, 0, 2)

    def test_a_crashed_program_fails_once(self):
        self.write("unit/ctest.xml", ctest("crashed", "fail", FAIL))
        self.expect(0, 1, 0, ["unit"])

    def test_a_crashed_program_fails_once_though_another_run_of_it_passed(self):
        self.write("unit/engine_run_golden_scalar.xml", case("A"))
        self.write("unit/ctest.xml", ctest("engine_run", "fail", FAIL),
                   ctest("engine_run_golden_scalar"))
        self.expect(1, 1, 0)

    def test_a_file_that_was_cut_off_is_one_failure(self):
        self.write("unit/ctest.xml", ctest("a", "fail", FAIL))
        (self.results / "unit/a.xml").write_text("<testsuites><testsu")
        self.expect(0, 1, 0)

    def test_a_pytest_file_that_was_cut_off_is_one_failure(self):
        (self.results / "end-to-end").mkdir()
        (self.results / "end-to-end/pytest.xml").write_text("")
        self.expect(0, 1, 0)

    def test_each_interrupted_test_of_pytest_is_one_failure(self):
        unnamed = '<testcase time="0.004" />'  # two workers were each in a test
        self.write("end-to-end/pytest.xml", case("t"), unnamed, case("u"), unnamed)
        self.expect(2, 2, 0, ["end-to-end"])
        interrupted = [line for line in self.lines if "interrupted test" in line]
        self.assertEqual(len(interrupted), 2)

    def test_a_failed_case_is_not_counted_again_as_a_failed_program(self):
        self.write("unit/a.xml", case("A", FAIL), case("B"))
        self.write("unit/ctest.xml", ctest("a", "fail", FAIL))
        self.expect(1, 1, 0, ["unit"])

    def test_a_program_that_fails_after_its_tests_is_one_failure(self):
        self.write("unit/a.xml", case("A"), case("B"))
        self.write("unit/ctest.xml", ctest("a", "fail", FAIL))
        self.expect(2, 1, 0)

    def test_a_program_that_ctest_could_not_start_has_failed(self):
        missing = '<skipped message="Unable to find executable"/>'
        self.write("unit/ctest.xml", ctest("missing", "notrun", missing))
        self.expect(0, 1, 0)

    def test_a_script_that_skips_by_its_exit_code_is_skipped(self):
        asked = '<skipped message="SKIP_RETURN_CODE=77"/>'
        self.write("structure/ctest.xml", ctest("check_tidy", "notrun", asked))
        self.expect(0, 0, 1)

    def test_a_test_whose_teardown_fails_as_well_counts_once(self):
        self.write("end-to-end/pytest.xml", case("t", FAIL), case("t", '<error message="too"/>'),
                   case("u"), case("u", '<error message="teardown"/>'),
                   case("v", FAIL), case("v"), case("t", classname="other"))
        self.expect(1, 3, 0)

    def test_a_failed_stage_without_a_failed_test_is_one_failure(self):
        (self.results / "sanitizers").mkdir()
        self.write("unit/a.xml", case("A"))
        self.expect(1, 1, 0, ["sanitizers"])

    def test_the_ten_slowest_tests_are_named_slowest_first(self):
        self.write("unit/a.xml", *(case(f"T{i}", seconds=i) for i in range(12)))
        self.expect(12, 0, 0)
        slow = [line.split()[-1] for line in self.lines if "unit: " in line]
        self.assertEqual(slow, [f"Suite.T{i}" for i in range(11, 1, -1)])

    def test_the_seconds_of_stages_are_printed(self):
        self.write("unit/a.xml", case("A"))
        (self.results / "stages.tsv").write_text("setup\t3\t1\nbuilding the unit tests\t208\t399\n")
        self.expect(1, 0, 0)
        self.assertIn("      208 s     399 s of CPU time    building the unit tests", self.lines)


if __name__ == "__main__":
    unittest.main()
