#!/usr/bin/env python3
"""Documents name what exists: links lead to files and headings, commands have the verbs, options and targets that they
use, docs/README.md has every document, and environment variables are documented in docs/environment.md."""

import re
import shlex
import unittest
from pathlib import Path

import arrows

ROOT = Path(__file__).resolve().parents[2]
LINK = re.compile(r"\]\((?!\w+:)([^)#\s]*)(?:#([^)\s]*))?\)")
CODE_BLOCK = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
SHELL_BLOCK = re.compile(r"^```(?:sh|bash)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
# A variable that is read or set; CMake's variables of that prefix are not quoted.
VARIABLE = re.compile(r'"(SLUICE_[A-Z_]+)=?"')


def files(*suffixes):
    return [path for path in arrows.files_under(ROOT) if path.suffix in suffixes]


def anchors(text):
    """What headings may be linked as: as the web sites of repositories make it of their text."""
    titles = re.findall(r"^#+ +(.*)$", CODE_BLOCK.sub("", text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title).lower()).replace(" ", "-") for title in titles}


def broken_links(path):
    broken = []
    for target, anchor in LINK.findall(CODE_BLOCK.sub("", path.read_text())):
        to = path.parent / target if target else path
        if not to.exists() or (anchor and to.suffix == ".md" and anchor not in anchors(to.read_text())):
            broken.append(f"{target}#{anchor}" if anchor else target)
    return broken


def documented_options(verb):
    """Names in the first column of the tables of options, of a verb of docs/cli.md or of its own document."""
    page = ROOT / f"docs/{verb}.md"
    text = page.read_text() if page.exists() else re.search(rf"^## {verb}\n.*?(?=^## |\Z)", (ROOT / "docs/cli.md").read_text(),
                                                            re.MULTILINE | re.DOTALL)[0]
    return {"-h", "--help", *re.findall(r"--?[a-zA-Z][\w-]*", " ".join(re.findall(r"^\| (`-.*?) \|", text, re.MULTILINE)))}


def wrong_commands(text):
    """Lines of shell blocks that use a verb, an option, a target or a script that there is not."""
    verbs = set(re.findall(r"^\| \[`(\w+)`\]", (ROOT / "docs/cli.md").read_text(), re.MULTILINE))
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    wrong = []
    for line in re.sub(r"\\\n\s*", " ", "\n".join(SHELL_BLOCK.findall(text))).splitlines():
        words = shlex.split(line, comments=True)
        for at, word in enumerate(words):
            rest = [w for w in words[at + 1:] if not w.startswith("&")]
            if word == "sluice" and rest and rest[0] not in ("help", "--version"):
                until = rest.index("--") if "--" in rest else len(rest)
                used = {w.split("=")[0] for w in rest[1:until] if re.match(r"--?[a-zA-Z]", w)}
                if rest[0] not in verbs or not used <= documented_options(rest[0]):
                    wrong.append(line)
                break
            if word == "make" and at == 0 and rest and rest[0] not in targets:
                wrong.append(line)
            if re.match(r"(scripts|bench|examples|tests|cuda_abi)/", word) and not (ROOT / word).exists():
                wrong.append(line)
    return wrong


class Documents(unittest.TestCase):
    def test_links_lead_somewhere(self):
        for path in files(".md"):
            with self.subTest(str(path.relative_to(ROOT))):
                self.assertEqual([], broken_links(path))

    def test_commands_are_as_they_can_be_typed(self):
        for path in files(".md"):
            with self.subTest(str(path.relative_to(ROOT))):
                self.assertEqual([], wrong_commands(path.read_text()))

    def test_every_document_is_in_the_index(self):
        index = (ROOT / "docs/README.md").read_text()
        self.assertEqual([], [path.name for path in (ROOT / "docs").glob("*.md")
                              if path.name != "README.md" and f"]({path.name})" not in index])

    def test_variables_are_documented(self):
        documented = set(re.findall(r"`(SLUICE_[A-Z_]+)`", (ROOT / "docs/environment.md").read_text()))
        used = {}
        for path in files(".cc", ".h"):
            inside = path.relative_to(ROOT)
            if inside.parts[0] != "tests" and not re.search(r"_test$|^fake_", path.stem):
                for name in VARIABLE.findall(path.read_text()):
                    used.setdefault(name, str(inside))
        self.assertEqual({}, {name: where for name, where in used.items() if name not in documented})
        self.assertEqual(set(), documented - used.keys(), "documented, but nothing reads them")


class Checks(unittest.TestCase):
    """The checks find what is wrong."""

    def test_anchors(self):
        self.assertEqual({"--profile-filehtml", "a-b-c", "2-x"}, anchors("## --profile FILE.html\n# A, `b` [c](d)\n### 2. x\n```\n# no\n```"))

    def test_wrong_commands(self):
        for line in ("sluice rnu -- true", "sluice run --prioritty low -- true", "make cake", "scripts/none", "A=1 sluice top --all &"):
            self.assertEqual([line], wrong_commands(f"```sh\n{line}\n```"))
        for line in ("sluice run -p low -- x --banana  # as it is", "make build", "cd x && sluice ps --json", "sluice run \\\n  --name=a -- b"):
            self.assertEqual([], wrong_commands(f"```sh\n{line}\n```"))


if __name__ == "__main__":
    unittest.main()
