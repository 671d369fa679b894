"""scripts/check_docs on texts that mention scripts."""

import importlib.machinery
import importlib.util
import pathlib
import sys
import unittest
from unittest import mock


def load_check_docs():
    path = str(pathlib.Path(__file__).resolve().parents[2] / "scripts" / "check_docs")
    loader = importlib.machinery.SourceFileLoader("check_docs", path)
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("check_docs", loader))
    with mock.patch.object(sys, "dont_write_bytecode", True):
        loader.exec_module(module)
    return module


check_docs = load_check_docs()
FILES = ["scripts/build", "scripts/common.sh", "tests/scripts/test_tally.py"]


def missing(text):
    return list(check_docs.missing_scripts("page.md", text, FILES))


class MissingScripts(unittest.TestCase):
    def test_a_missing_script_is_named_with_its_line(self):
        # Put together, so that the check of the tree does not find it here.
        self.assertEqual(missing("Run scripts/build.\nThen run scripts/" + "bild."),
                         ["page.md:2: there is no scripts/" + "bild"])

    def test_scripts_that_exist_are_accepted_with_and_without_extension(self):
        self.assertEqual(missing("$ scripts/build --help\n# scripts/common.sh, scripts/common"), [])

    def test_placeholders_and_other_folders_are_accepted(self):
        self.assertEqual(missing("scripts/NAME, tests/scripts/none.py, ${TOP}/scripts/none"), [])


if __name__ == "__main__":
    unittest.main()
