"""A library shows exactly the functions that the header declares, or those of them whose names match."""
import re
import subprocess
import sys
import unittest

HEADER, MAP, LIBRARY = sys.argv[1:4]
NAMES = sys.argv[4] if len(sys.argv) > 4 else "sluice_"


class Exports(unittest.TestCase):
    def setUp(self):
        with open(HEADER, encoding="utf-8") as file:
            declared = re.findall(r"^SLUICE_API .*?\b(sluice_\w+)\(", file.read(), re.MULTILINE)
        self.assertIn("sluice_session_run", declared)
        self.declared = {name for name in declared if re.match(NAMES, name)}
        self.assertIn("sluice_version", self.declared)

    def test_map_lists_the_header(self):
        with open(MAP, encoding="utf-8") as file:
            self.assertEqual(self.declared, set(re.findall(r"\b(sluice_\w+);", file.read())))

    def test_library_shows_the_header(self):
        listed = subprocess.run(["nm", "-D", "--defined-only", LIBRARY], check=True, capture_output=True, text=True)
        names = {line.split()[2].split("@")[0] for line in listed.stdout.splitlines() if line.split()[1] != "A"}
        self.assertEqual(self.declared, names)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
