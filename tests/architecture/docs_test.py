#!/usr/bin/env python3
"""Documents name what exists: links lead to files, and environment variables are documented in docs/environment.md."""

import re
import unittest
from pathlib import Path

import arrows

ROOT = Path(__file__).resolve().parents[2]
LINK = re.compile(r"\]\((?!\w+:)([^)#\s]+)(?:#[^)]*)?\)")
# A variable that is read or set; CMake's variables of that prefix are not quoted.
VARIABLE = re.compile(r'"(SLUICE_[A-Z_]+)=?"')


def files(*suffixes):
    return [path for path in arrows.files_under(ROOT) if path.suffix in suffixes]


def broken_links(path):
    return [target for target in LINK.findall(path.read_text()) if not (path.parent / target).exists()]


class Documents(unittest.TestCase):
    def test_links_lead_somewhere(self):
        for path in files(".md"):
            with self.subTest(str(path.relative_to(ROOT))):
                self.assertEqual([], broken_links(path))

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


if __name__ == "__main__":
    unittest.main()
