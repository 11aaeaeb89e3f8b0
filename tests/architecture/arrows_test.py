#!/usr/bin/env python3
"""The tree obeys its arrows, and arrows.py finds each kind of violation when one is planted."""

import contextlib
import io
import tempfile
import unittest
from pathlib import Path

import arrows


class RealTree(unittest.TestCase):
    def test_obeys_the_arrows(self):
        self.assertEqual([], arrows.check_tree(Path(__file__).resolve().parents[2]))

    def test_has_no_circle(self):
        for room, targets in arrows.ARROWS.items():
            for target in targets:
                self.assertNotIn(room, arrows.reachable(target), f"{room} -> {target} -> {room}")


class PlantedViolation(unittest.TestCase):
    """Each test starts from a small tree without faults and plants one."""

    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.root = Path(scratch.name)
        for room in arrows.ARROWS:
            public = f"sluice/base/{room}.h" if room == "base" else arrows.PUBLIC_HEADERS.get(room, f"sluice/{room}.h")
            self.write(f"{room}/include/{public}", "#pragma once\n")
            self.write(f"{room}/{room}.cc", f'#include "{public}"\n')
            deps = " ".join(arrows.ARROWS[room])
            self.write(f"{room}/CMakeLists.txt", f"sluice_room({room} SOURCES {room}.cc DEPS {deps} PUBLIC_LIBS fmt::fmt)\n")
        self.assertEqual([], arrows.check_tree(self.root))

    def write(self, path, text):
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)

    def expect(self, *words):
        faults = arrows.check_tree(self.root)
        self.assertEqual(1, len(faults), faults)
        for word in words:
            self.assertIn(word, faults[0])

    def test_upward_include(self):
        self.write("policy/policy.cc", '#include "sluice/board.h"\n')
        self.expect("policy/policy.cc", "policy may not use board")

    def test_sideways_include_from_a_header(self):
        self.write("emulator/include/sluice/emulator.h", '#pragma once\n#include "sluice/board.h"\n')
        self.expect("emulator may not use board")

    def test_transitive_use_is_allowed(self):
        self.write("shim/shim.cc", '#include "sluice/base/base.h"\n#include "sluice/cuda_abi/entries.inc"\n')
        self.assertEqual([], arrows.check_tree(self.root))

    def test_unknown_room(self):
        self.write("cli/cli.cc", '#include "sluice/bored.h"\n')
        self.expect("no room is called bored")

    def test_private_header_of_another_room(self):
        self.write("board/layout.h", "#pragma once\n")
        self.write("daemon/daemon.cc", '#include "board/layout.h"\n')
        self.expect("private to board")

    def test_private_header_by_a_relative_path(self):
        self.write("board/layout.h", "#pragma once\n")
        self.write("tests/x/CMakeLists.txt", "sluice_test(x SOURCES x.cc)\n")
        self.write("tests/x/x.cc", '#include "../../board/layout.h"\n')
        self.expect("tests/x/x.cc", "private to board")

    def test_own_private_header_is_allowed(self):
        self.write("board/layout.h", "#pragma once\n")
        self.write("board/board.cc", '#include "layout.h"\n#include "board/layout.h"\n')
        self.assertEqual([], arrows.check_tree(self.root))

    def test_upward_link(self):
        self.write("policy/CMakeLists.txt", "sluice_room(policy SOURCES policy.cc DEPS base daemon PUBLIC_LIBS x)\n")
        self.expect("policy may not link daemon")

    def test_second_public_header(self):
        self.write("health/include/sluice/nvml.h", "#pragma once\n")
        self.expect("health/include/sluice/nvml.h", "one public header")

    def test_missing_public_header(self):
        (self.root / "health/include/sluice/health.h").unlink()
        self.write("health/health.cc", "")
        self.expect("health", "is missing")

    def test_long_file(self):
        self.write("cli/cli.cc", "\n" * (arrows.MAX_LINES + 1))
        self.expect("cli/cli.cc", "501 lines")

    def test_missing_pragma_once(self):
        self.write("cli/table.h", "")
        self.expect("cli/table.h", "#pragma once")

    def test_source_that_is_not_built(self):
        self.write("cli/forgotten.cc", "")
        self.expect("cli/forgotten.cc", "no CMakeLists.txt names it")

    def test_exit_code(self):
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            self.assertEqual(0, arrows.main([str(self.root)]))
            self.write("cli/forgotten.cc", "")
            self.assertEqual(1, arrows.main([str(self.root)]))
        self.assertIn("arrows: cli/forgotten.cc", printed.getvalue())


if __name__ == "__main__":
    unittest.main()
