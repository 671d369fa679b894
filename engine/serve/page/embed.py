#!/usr/bin/python3
"""Writes the page as C++: embed.py FOLDER OUTPUT. FOLDER has page.html, page.css and scripts.

The page is one document. Its policy names the style and the script by their hashes, so that a browser runs these
and nothing else, whatever text a model writes into the page.
"""

import base64
import hashlib
import pathlib
import sys

POLICY = ("default-src 'none'; script-src {script}; style-src {style}; connect-src 'self'; img-src data:; "
          "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'")
SOURCE = """// Made by engine/serve/page/embed.py.

#include <string_view>

namespace pinion {{

extern const std::string_view kPageText, kPagePolicy;
const std::string_view kPageText = {page};
const std::string_view kPagePolicy = {policy};

}}  // namespace pinion
"""


def digest(text):
    return "'sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() + "'"


def literal(text):
    assert ')page"' not in text
    return f'R"page({text})page"'


def main():
    folder, output = map(pathlib.Path, sys.argv[1:])
    style = (folder / "page.css").read_text(encoding="utf-8")
    scripts = sorted(folder.glob("*.js"))
    script = '"use strict";\n' + "".join(one.read_text(encoding="utf-8") for one in scripts)
    page = (folder / "page.html").read_text(encoding="utf-8")
    page = page.replace("{{style}}", style).replace("{{script}}", script)
    policy = POLICY.format(script=digest(script), style=digest(style))
    output.write_text(SOURCE.format(page=literal(page), policy=literal(policy)), encoding="utf-8")


if __name__ == "__main__":
    main()
