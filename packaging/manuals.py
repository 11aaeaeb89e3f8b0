#!/usr/bin/env python3
"""Writes the manual pages from the documents, so that what there is to say is said once.

    manuals.py --out DIR [--version 1.2.3]
"""

import argparse
import re
from pathlib import Path

import roff

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
# Documents that are a page as they are: name, section, one line of what it is.
PAGES = {
    "doctor.md": ("sluice-doctor", 1, None),
    "infer.md": ("sluice-infer", 1, None),  # the verbs' lines stand in cli.md
    "optimize.md": ("sluice-optimize", 1, None),
    "jobs.md": ("sluice-jobs", 5, "several jobs in one TOML file"),
    "environment.md": ("sluice-environment", 7, "variables that Sluice reads and sets"),
    "containers.md": ("sluice-containers", 7, "jobs in containers, on other machines, and with MPI"),
    "verify.md": ("sluice-verify", 7, "how to see that it works"),
    "limits.md": ("sluice-limits", 7, "what Sluice does not do and does not promise"),
    "concepts.md": ("sluice-concepts", 7, "what Sluice's words mean"),
    "troubleshooting.md": ("sluice-troubleshooting", 7, "what to do when something looks wrong, by symptom"),
    "control.md": ("sluiced", 8, "takes turns among Sluice's jobs of equal priority, and cleans up"),
}
SUMMARY = "many jobs share one NVIDIA GPU by priority"


def section(text, title):
    """The body of `## title`."""
    found = re.search(rf"^## {re.escape(title)}\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    if not found:
        raise SystemExit(f"manuals: docs/cli.md lists the verb {title}, but has no section '## {title}'")
    return found[1]


def verbs(cli):
    """name -> what it does, from the table of cli.md."""
    return dict(re.findall(r"^\| \[`(\w+)`\]\([^)]*\) \| (.*) \|$", cli, re.MULTILINE))


class Manual:
    def __init__(self, version, date):
        self.version, self.date = version, date
        self.cli = (DOCS / "cli.md").read_text()
        self.verbs = verbs(self.cli)
        self.links = {doc: f"**{name}**({number})" for doc, (name, number, _) in PAGES.items()}
        self.links["cli.md"] = "**sluice**(1)"
        self.seen = []

    def link(self, text, target):
        """A document that is a page is called so; another one is named by its file; the rest is only its text."""
        document, _, anchor = target.partition("#")
        page = self.links.get(document)
        if anchor in self.verbs and document in ("", "cli.md"):
            page = f"**sluice-{anchor}**(1)"
        if page:
            self.seen.append(page)
            plain = text.strip("`")
            return page if plain.endswith(".md") or plain == anchor or f"sluice-{plain}**" in page else f"{text} ({page})"
        return text if target.startswith(("#", "http")) or not text.endswith(".md") else f"*{text}*"

    def page(self, name, number, summary, body, see=(), level=2, after=""):
        """`body` may begin with a block of usage lines."""
        usage = re.match(r"\s*```(?:sh)?\n(.*?)```\n", body, re.DOTALL) if number in (1, 8) else None
        out = [f'.TH {name.upper()} {number} {self.date} "Sluice {self.version}" "Sluice\'s manual"',
               ".SH NAME", f"{name} \\- {roff.escape(summary)}"]
        self.seen = []
        if usage:
            out += [".SH SYNOPSIS", ".nf", *(f"\\fB{roff.escape(line, literal=True)}\\fR" for line in usage[1].splitlines()), ".fi"]
            body = body[usage.end():]
        out += [".SH DESCRIPTION", roff.convert(body.strip("\n"), level, self.link).rstrip("\n")]
        if after:
            out.append(roff.convert(after, 2, self.link).rstrip("\n"))
        this = f"**{name}**({number})"
        others = sorted({page for page in (*see, *self.seen) if page != this}, key=lambda p: (p[-2], p))
        out += [".SH SEE ALSO", ",\n".join(roff.inline(page) for page in others)]
        return "\n".join(out) + "\n"

    def pages(self):
        """(file name, text) of each page."""
        intro, exits = self.cli.split("\n## ", 1)[0].split("\n", 1)[1], ""
        table = re.search(r"^\| exit code \|.*?\n\n", intro, re.MULTILINE | re.DOTALL)
        exits = "## Exit status\n" + table[0]
        synopsis = "```\nsluice VERB [OPTIONS]\nsluice help [VERB]\n```\n"
        every = [f"**sluice-{verb}**(1)" for verb in self.verbs] + list(self.links.values())
        yield "man1/sluice.1", self.page("sluice", 1, SUMMARY, synopsis + intro.replace(table[0], ""), every, after=exits)
        for verb, summary in self.verbs.items():
            if f"{verb}.md" not in PAGES:
                yield f"man1/sluice-{verb}.1", self.page(f"sluice-{verb}", 1, summary, section(self.cli, verb),
                                                         ["**sluice**(1)"], level=3, after=exits)
        for document, (name, number, summary) in PAGES.items():
            body = (DOCS / document).read_text().split("\n", 1)[1]
            if number == 1:
                summary = self.verbs[document[:-len(".md")]]
            yield f"man{number}/{name}.{number}", self.page(name, number, summary, body, ["**sluice**(1)"])


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--version", default="")
    options = parser.parse_args()
    # The day of the latest release: a page that depends on when it was made would differ each time.
    date = re.search(r"^## [0-9.]+ - (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)[1]
    for name, text in Manual(options.version, date).pages():
        path = options.out / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


if __name__ == "__main__":
    main()
