"""The chat helper's Python, called here as its process calls it."""

import importlib.util
import json
import pathlib
import sys
import unittest
from unittest import mock

sys.dont_write_bytecode = True
PATH = pathlib.Path(__file__).resolve().parents[3] / "engine/text/chat_helper.py"
spec = importlib.util.spec_from_file_location("chat_helper", PATH)
helper = importlib.util.module_from_spec(spec)
spec.loader.exec_module(helper)


def render(template, part):
    messages = [{"role": "user", "content": [part]}]
    answer = helper.handle(json.dumps({"template": template, "messages": messages, "fits_contents": True}))
    return json.loads(answer)["rendered"]


class Probes(unittest.TestCase):
    def test_no_member_of_a_client_costs_a_compilation_or_a_place(self):
        strings = "{% for m in messages %}<{{ m.content }}>{% endfor %}"
        kept = [helper.takes_strings, helper.takes_parts, helper.drops_second_part, helper.compiled_probe]
        with mock.patch.object(helper.PROBES, "from_string", wraps=helper.PROBES.from_string) as compiles:
            self.assertEqual(render(strings, {"type": "text", "text": "x"}), "<x>")
            places = [one.cache_info().currsize for one in kept]
            for number in range(3):
                self.assertEqual(render(strings, {"type": "text", "text": "x", "id": number}), "<x>")
        self.assertEqual(compiles.call_count, 1)
        self.assertEqual([one.cache_info().currsize for one in kept], places)


if __name__ == "__main__":
    unittest.main()
