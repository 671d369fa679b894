"""scripts/check_names: which definitions of two files cannot be compiled together."""

import importlib.machinery
import importlib.util
import pathlib
import sys
import unittest

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "scripts/check_names"
loader = importlib.machinery.SourceFileLoader("check_names", str(SCRIPT))
check = importlib.util.module_from_spec(importlib.util.spec_from_loader("check_names", loader))
sys.dont_write_bytecode = True
loader.exec_module(check)


def unnamed(body):
    return f"namespace pinion {{\nnamespace {{\n\n{body}\n\n}}  // namespace\n}}  // namespace pinion\n"


def twice(first, second, apart=()):
    return [(kind, name) for kind, name, _, _ in
            check.defined_twice({"a.cc": unnamed(first), "b.cc": unnamed(second)}, apart)]


class Names(unittest.TestCase):
    def test_constants_types_and_functions_are_defined_once(self):
        for body, want in (("constexpr size_t kMost = 4;", ("constant", "kMost")),
                           ('constexpr const char* kNames[] = {"a"};', ("constant", "kNames")),
                           ("struct Point {\n  int x;\n};", ("type", "Point")),
                           ("std::vector<int> Joined(const Json& a,\n                        int b) {\n}",
                            ("function", "Joined(const Json&, int)"))):
            self.assertEqual(twice(body, body), [want])
            self.assertEqual(twice(body, "int Other() { return 1; }"), [])
            self.assertEqual(twice(body, body, apart={"b.cc"}), [])

    def test_functions_of_other_parameters_are_others(self):
        self.assertEqual(twice("int Size(int a) {\n}", "int Size(const Json& a) {\n}"), [])
        self.assertEqual(twice("int Size(int a) {\n}", "int Size(int b = 3) {\n}"), [("function", "Size(int)")])

    def test_an_alias_may_be_repeated_but_not_changed(self):
        self.assertEqual(twice("using Row = A::Row;", "using Row = A::Row;"), [])
        self.assertEqual(twice("using Row = A::Row;", "using Row = B::Row;"), [("alias", "Row")])

    def test_a_type_of_a_header_does_not_name_something_else(self):
        header = {"a.h": "struct FillIn {\n  int x;\n};\nclass Channel;\nstruct Part : Whole {\n};\n"}
        for body, want in (("void FillIn(Json& a) {\n}", [("function", "FillIn(Json&)")]),
                           ("struct Part {\n};", [("type", "Part")]), ("int Channel() {\n}", [])):
            found = check.hides_a_type({"b.cc": unnamed(body)}, header, ())
            self.assertEqual([(kind, name) for kind, name, _, _ in found], want)

    def test_names_of_members_and_of_named_namespaces_do_not_count(self):
        member = "struct {} {{\n  int Size(int a) {{\n  }}\n}};"
        self.assertEqual(twice(member.format("A"), member.format("B")), [])
        named = "namespace pinion {\nint Size(int a) {\n}\n}  // namespace pinion\n"
        self.assertEqual(list(check.defined_twice({"a.cc": named, "b.cc": named}, ())), [])


if __name__ == "__main__":
    unittest.main()
