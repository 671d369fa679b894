"""JSON Schema's own test suite, which the source archive of the package jsonschema carries: json_schema_suite.txt pins
it by its hash. Below build/json-schema-suite, fetched when a test first asks for it."""

import json
import pathlib
import shutil
import subprocess
import sys
import tarfile

import jsonschema

PINNED = pathlib.Path(__file__).with_name("json_schema_suite.txt")
FOLDER = pathlib.Path(__file__).resolve().parents[2] / "build/json-schema-suite"
DRAFTS = {"draft4": jsonschema.Draft4Validator, "draft6": jsonschema.Draft6Validator,
          "draft7": jsonschema.Draft7Validator, "draft2019-09": jsonschema.Draft201909Validator,
          "draft2020-12": jsonschema.Draft202012Validator}


def fetch():
    """The suite's folder."""
    fetched = FOLDER / PINNED.name
    if not fetched.exists() or fetched.read_text() != PINNED.read_text():
        shutil.rmtree(FOLDER, ignore_errors=True)
        done = subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps",
                               "--require-hashes", "--no-binary", "jsonschema", "--dest", FOLDER, "-r", PINNED],
                              stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr[-2000:]
        (archive,) = FOLDER.glob("*.tar.gz")
        with tarfile.open(archive) as members:
            members.extractall(FOLDER)  # its hash says that it is the one that was looked at
        shutil.copy(PINNED, fetched)
    (folder,) = FOLDER.glob("jsonschema-*/json")
    return folder


def groups(folder):
    """(name, validator, schema) of each group of tests."""
    for draft, validator in DRAFTS.items():
        for path in sorted((folder / "tests" / draft).glob("*.json")):
            for group in json.loads(path.read_text()):
                yield f"{draft}/{path.stem}: {group['description']}", validator, group["schema"]


def distinct(folder):
    """The same, each schema once: drafts share many, which mean the same in all of them or name their own."""
    seen = set()
    for name, validator, schema in groups(folder):
        text = json.dumps(schema, sort_keys=True)
        if text not in seen:
            seen.add(text)
            yield name, validator, schema
