"""scripts/check_tree: what it refuses in a file."""

import importlib.machinery
import importlib.util
import pathlib
import sys
import unittest

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "scripts/check_tree"
loader = importlib.machinery.SourceFileLoader("check_tree", str(SCRIPT))
check = importlib.util.module_from_spec(importlib.util.spec_from_loader("check_tree", loader))
sys.dont_write_bytecode = True
loader.exec_module(check)


def lines(path, text):
    return [offence.split(":")[1] for offence in check.offences(path, text)]


class Tree(unittest.TestCase):
    def test_code_outside_the_spec_names_no_architecture(self):
        text = '\nif (name == "SeedOssForCausalLM") {\n}\n'
        self.assertEqual(lines("engine/decoder/forward.cc", text), ["2"])
        self.assertEqual(lines("harness/bench/rows.cc", text), ["2"])
        for path in ("engine/spec/arch_seed_oss.cc", "engine/checkpoint/gguf_architectures.cc", "tests/e2e/a.py"):
            self.assertEqual(lines(path, text), [], path)

    def test_a_file_has_at_most_600_lines(self):
        self.assertEqual(lines("a.cc", "\n" * 600), [])
        self.assertEqual(lines("a.cc", "\n" * 601), [" 601 lines, at most 600; move a concept out of it"])


if __name__ == "__main__":
    unittest.main()
