#!/usr/bin/python3
"""Man pages, shell completions, the changelog: write_share.py COMMANDS.json CHANGELOG.md FOLDER

COMMANDS.json is the output of `pinion describe-commands`; FOLDER is installed as share/.
"""

import gzip
import pathlib
import shutil
import sys

import command_line
import completions
import man_pages


def write(path, data):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def compress(data):
    """As Debian wants pages and changelogs; without a time, so that the same text is the same file."""
    return gzip.compress(data, 9, mtime=0)


def main():
    commands, changelog, share = map(pathlib.Path, sys.argv[1:])
    program, version, presets = command_line.read(commands)
    shutil.rmtree(share, ignore_errors=True)  # no page stays behind of a command that is gone
    for name, text in man_pages.pages(program, version).items():
        write(share / f"man/man1/{name}.1.gz", compress(text.encode()))
    for file, shell in (("bash-completion/completions/pinion", completions.bash),
                        ("zsh/vendor-completions/_pinion", completions.zsh),
                        ("fish/vendor_completions.d/pinion.fish", completions.fish)):
        write(share / file, shell(program, presets).encode())
    write(share / "doc/pinion/changelog.gz", compress(changelog.read_bytes()))


if __name__ == "__main__":
    main()
