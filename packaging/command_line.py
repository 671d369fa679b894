"""Reads the output of `pinion describe-commands`, for man pages and completions."""

import dataclasses
import json
import re


@dataclasses.dataclass(frozen=True)
class Option:
    names: list
    positional: bool
    group: str
    value: str  # "TEXT"; empty for a flag
    choices: list  # every value it may have, where the parser knows them
    default: str
    required: bool
    repeated: bool
    description: str

    @property
    def is_path(self):
        return self.value in ("FILE", "DIR")


@dataclasses.dataclass(frozen=True)
class Command:
    path: tuple  # ("pinion", "model", "make")
    description: str
    footer: str
    options: list
    commands: list

    @property
    def flags(self):
        return [option for option in self.options if not option.positional]

    @property
    def positionals(self):
        return [option for option in self.options if option.positional]

    @property
    def takes_model(self):
        return any(option.names == ["MODEL"] for option in self.positionals)

    def walk(self):
        """This command and all below it."""
        yield self
        for command in self.commands:
            yield from command.walk()


def read_option(described):
    # "TEXT:{off,on}", "INT:INT in [1 - 256]", "TEXT:FILE": a type, then the check of its value.
    value, _, check = described["type"].partition(":")
    choices = re.fullmatch(r"\{(.*)\}", check)
    return Option(names=described["names"], positional=described["positional"], group=described["group"],
                  value=check if check in ("FILE", "DIR") else value,
                  choices=choices.group(1).split(",") if choices else [],
                  default=described["default"], required=described["required"],
                  repeated=described["repeated"], description=described["description"])


def read_command(described, parents=()):
    path = (*parents, described["name"])
    return Command(path=path, description=described["description"], footer=described["footer"],
                   options=[read_option(option) for option in described["options"]],
                   commands=[read_command(command, path) for command in described["commands"]])


def read(path):
    """(the program, its version, the names of its presets)."""
    described = json.loads(path.read_text())
    return read_command(described), described["version"].split()[-1], described["presets"]
