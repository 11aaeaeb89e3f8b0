#!/usr/bin/env python3
"""The documents, the manual pages made from them and the programs' own help say the same. manuals_test.py BUILD"""
import pathlib
import re
import shutil
import sys
import tempfile
import unittest

import release_support as support
from release_support import BUILD, ROOT, call

sys.path.insert(0, str(ROOT / "packaging"))
import manuals  # noqa: E402
import roff  # noqa: E402

OPTION = re.compile(r"(?<![\w-])--?[a-zA-Z][\w-]*")


def options_of_help(text):
    """Every name of an option that a --help lists, but --help itself."""
    lines = re.findall(r"^ {2}(-\S+)", text, re.MULTILINE)
    return {name for line in lines for name in line.split(",") if name not in ("-h", "--help")}


def options_of_tables(markdown, head="option"):
    """Every name in the first column of the tables that are headed so."""
    found = set()
    for table in re.findall(rf"^\| {head} \|.*\n\|[ |:-]+\n((?:\|.*\n?)+)", markdown, re.MULTILINE):
        for row in table.splitlines():
            found |= set(OPTION.findall(" ".join(re.findall(r"`([^`]*)`", roff.cells(row)[0]))))
    return found - {"-h", "--help"}


def plain(page):
    """A page without its marks and line ends, for looking a name up."""
    return re.sub(r"\s+", " ", re.sub(r"\\f[BIR]|\\%", "", page).replace("\\-", "-").replace("\\(aq", "'"))


class Manuals(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.pages = dict(manuals.Manual("1.2.3", "2020-02-02").pages())
        cls.cli = (ROOT / "docs/cli.md").read_text()

    def help_of(self, *words):
        done = call(*words, "--help")
        self.assertEqual(0, done.returncode, done.stderr)
        return done.stdout

    def test_the_verbs_are_those_of_the_program(self):
        listed = dict(re.findall(r"^ {2}(\w+) {2,}(\S.*)$", self.help_of(BUILD / "bin/sluice"), re.MULTILINE))
        self.assertEqual(listed, manuals.verbs(self.cli))
        self.assertEqual({f"man1/sluice-{verb}.1" for verb in listed} | {"man1/sluice.1"},
                         {name for name in self.pages if name.startswith("man1/")})

    def test_options_of_the_verbs(self):
        for verb in manuals.verbs(self.cli):
            with self.subTest(verb):
                document = ROOT / f"docs/{verb}.md"
                text = document.read_text() if document.exists() else manuals.section(self.cli, verb)
                offered = options_of_help(self.help_of(BUILD / "bin/sluice", verb))
                self.assertEqual(offered, options_of_tables(text))
                page = plain(self.pages[f"man1/sluice-{verb}.1"])
                self.assertEqual(set(), {name for name in offered if not re.search(rf"(?<![\w-]){name}(?![\w-])", page)})

    def test_options_of_doctors_topics(self):
        text = (ROOT / "docs/doctor.md").read_text()
        for topic in re.findall(r"^## sluice doctor (\w+)$", text, re.MULTILINE):
            with self.subTest(topic):
                self.assertEqual(options_of_help(self.help_of(BUILD / "bin/sluice", "doctor", topic)),
                                 options_of_tables(text, f"option of `{topic}`"))

    def test_options_of_the_daemon(self):
        text = (ROOT / "docs/control.md").read_text()
        self.assertEqual(options_of_help(self.help_of(BUILD / "bin/sluiced")), options_of_tables(text))
        self.assertEqual(set(), {name for name in options_of_tables(text) if name not in plain(self.pages["man8/sluiced.8"])})

    def test_keys_of_the_job_file(self):
        source = (ROOT / "cli/job_file.cc").read_text()
        keys = set(re.findall(r'"(\w+)"', re.search(r"job_keys\(\) \{.*?\};", source, re.DOTALL)[0]))
        self.assertEqual(keys, set(re.findall(r"^\| `(\w+)` \|", (ROOT / "docs/jobs.md").read_text(), re.MULTILINE)))
        self.assertEqual(set(), {key for key in keys if f"{key} " not in plain(self.pages["man5/sluice-jobs.5"])})

    def test_pages_render_without_a_warning(self):
        checks = {"mandoc": ("-T", "lint", "-W", "warning"), "groff": ("-man", "-ww", "-Kutf8", "-Tutf8", "-z")}
        found = {tool: options for tool, options in checks.items() if shutil.which(tool)}
        if not found:
            self.skipTest("neither mandoc nor groff is installed")
        with tempfile.TemporaryDirectory() as folder:
            paths = []
            for name, text in self.pages.items():
                paths.append(pathlib.Path(folder, name.replace("/", "-")))
                paths[-1].write_text(text)
            for tool, options in found.items():
                done = call(tool, *options, *paths)
                self.assertEqual((0, "", ""), (done.returncode, done.stdout, done.stderr), tool)

    def test_a_missing_section_is_named(self):
        with self.assertRaisesRegex(SystemExit, "## walk"):
            manuals.section(self.cli, "walk")


class Roff(unittest.TestCase):
    def expect(self, markdown, *lines):
        self.assertEqual(list(lines), roff.convert(markdown).splitlines())

    def test_marks(self):
        self.expect("Use `a-b` or **c d**, *e* and [f](g.md).", "Use \\fB\\%a\\-b\\fR or \\fBc d\\fR, \\fIe\\fR and f.")

    def test_text_is_never_a_request(self):
        self.expect(".so x\n'br\na\\nb", "\\&.so x", "\\&'br", "a\\enb")

    def test_stars_that_are_no_marks(self):
        self.expect("2 * 3 * 4", "2 * 3 * 4")

    def test_other_letters(self):
        self.expect("10 \u2264 n", "10 \\[u2264] n")

    def test_headings(self):
        self.expect("## One\ntext\n### Two\ntext", ".SH ONE", "text", ".SS Two", "text")
        self.expect('### "a" `b`', ".SS \\(dqa\\(dq b")

    def test_a_table_is_a_list(self):
        self.expect("| option | meaning |\n| --- | --- |\n| `-a` | `x\\|y` or `p|q` |", ".TP", "\\fB\\%\\-a\\fR", "\\fB\\%x|y\\fR or \\fB\\%p|q\\fR")
        self.expect("| name | set by | meaning |\n| --- | --- | --- |\n| A | you | b |", ".TP", "A", "Set by: you.", "b")

    def test_code(self):
        self.expect("a\n```sh\n.x -y\n```\nb", "a", ".PP", ".RS 4", ".nf", "\\&.x \\-y", ".fi", ".RE", ".PP", "b")

    def test_lists(self):
        self.expect("- one\n  more\n- two\n\n1. first", ".IP \\(bu 2", "one", "more", ".IP \\(bu 2", "two", '.IP "1." 4', "first")


if __name__ == "__main__":
    support.main()
