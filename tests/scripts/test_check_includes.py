"""scripts/check_includes: which folders are rooms, and what a file may include."""

import importlib.machinery
import importlib.util
import pathlib
import sys
import unittest

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "scripts/check_includes"
loader = importlib.machinery.SourceFileLoader("check_includes", str(SCRIPT))
check = importlib.util.module_from_spec(importlib.util.spec_from_loader("check_includes", loader))
sys.dont_write_bytecode = True
loader.exec_module(check)


class Rooms(unittest.TestCase):
    def test_a_folder_below_a_room_is_not_a_room_unless_it_is_listed(self):
        self.assertEqual(check.unknown_rooms(["engine/exec/cpu/a.h", "engine/exec/npu/a.h", "kernels/impl/a.h",
                                              "tests/engine/exec/npu/a.cc"]), ["engine/exec/npu"])

    def test_includes_point_one_way(self):
        self.assertEqual(list(check.offences("engine/exec/cpu/a.h", '#include "engine/exec/executor.h"\n')), [])
        self.assertEqual(list(check.offences("engine/exec/a.h", '#include "engine/exec/cpu/cpu_executor.h"\n')),
                         ["engine/exec/a.h: includes engine/exec/cpu/cpu_executor.h, but engine/exec must not know "
                          "engine/exec/cpu"])


if __name__ == "__main__":
    unittest.main()
