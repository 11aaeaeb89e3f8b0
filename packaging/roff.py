"""Markdown as the documents use it (headings, paragraphs, lists, tables, code) to man(7). Unknown syntax stays text."""

import re

INLINE = re.compile(r"(?P<code>`+)(?P<coded>.+?)(?P=code)|\*\*(?P<bold>.+?)\*\*|(?<![\w*])\*(?P<italic>[^*\s](?:[^*]*[^*\s])?)\*(?![\w*])"
                    r"|!?\[(?P<text>[^\]]*)\]\((?P<target>[^)\s]*)\)")
BULLET = re.compile(r"^(?:[-*]|(\d+)\.) +(.*)$")
RULE = re.compile(r"^\|(?:\s*:?-+:?\s*\|)+$")


def escape(text, literal=False):
    """Text for troff: nothing in it is a command. `literal`: a hyphen is the one that is typed."""
    text = text.replace("\\", "\\e")
    if literal:
        text = text.replace("-", "\\-").replace("'", "\\(aq").replace("`", "\\(ga").replace("^", "\\(ha").replace("~", "\\(ti")
    return "".join(c if c.isascii() else f"\\[u{ord(c):04X}]" for c in text)


def guard(line):
    """A line of text that begins like a request is none."""
    return "\\&" + line if line[:1] in (".", "'") else line


def typed(text):
    """What a user types: bold, and never hyphenated."""
    return "\\fB" + " ".join("\\%" + escape(word, literal=True) for word in text.split(" ")) + "\\fR"


def inline(text, link=lambda text, target: text):
    """One paragraph's marks. `link` gives what stands for a link; its result may have marks of its own."""
    out, at = [], 0
    for mark in INLINE.finditer(text):
        out.append(escape(text[at:mark.start()]))
        at = mark.end()
        if mark["coded"] is not None:
            out.append(typed(mark["coded"].strip()))
        elif mark["bold"] is not None:
            name = re.fullmatch(r"\S+", mark["bold"])
            out.append(typed(mark["bold"]) if name else "\\fB" + inline(mark["bold"], link).replace("\\fR", "\\fB") + "\\fR")
        elif mark["italic"] is not None:
            out.append("\\fI" + inline(mark["italic"], link).replace("\\fR", "\\fI") + "\\fR")
        else:
            out.append(inline(link(mark["text"], mark["target"]), link))
    out.append(escape(text[at:]))
    return "".join(out)


def cells(row):
    """Of a table's row; a bar behind a backslash or within code is no border."""
    parts = re.findall(r"((?:\\\||`[^`]*`|[^|`])*)\|", row.strip()[1:])
    return [part.strip().replace("\\|", "|") for part in parts]


def table(rows, link):
    """A list: the first cell is the tag, the second of three begins with its column's name."""
    titles, out = cells(rows[0]), []
    for row in rows[2:]:
        first, *rest = cells(row)
        rest = [f"{title[:1].upper()}{title[1:]}: {cell}." if i < len(rest) - 1 and cell else cell
                for i, (title, cell) in enumerate(zip(titles[1:], rest))]
        body = "\n".join(guard(inline(cell, link)) for cell in rest if cell)
        out += [".TP", guard(inline(first, link)), body or "\\&"]
    return out


def convert(markdown, level=2, link=lambda text, target: text):
    """`level`: how many # a section (.SH) has; one more is a subsection."""
    lines, out, paragraph, at = markdown.split("\n"), [], [], 0
    started = False  # a paragraph directly behind a heading needs no request

    def flush(first=".PP"):
        nonlocal started
        if paragraph:
            if started or first != ".PP":
                out.append(first)
            out.extend(guard(line) for line in inline("\n".join(paragraph), link).split("\n"))
            paragraph.clear()
            started = True

    while at < len(lines):
        line = lines[at].rstrip()
        at += 1
        heading = re.match(r"^(#+) +(.*)$", line)
        bullet = BULLET.match(line)
        if line.startswith("```"):
            flush()
            end = next(i for i in range(at, len(lines)) if lines[i].startswith("```"))
            out += [".PP"] * started + [".RS 4", ".nf"] + [guard(escape(code, literal=True)) for code in lines[at:end]] + [".fi", ".RE"]
            at, started = end + 1, True
        elif heading:
            flush()
            title = inline(heading[2], link).replace("\\fB", "").replace("\\%", "").replace("\\fR", "").replace('"', "\\(dq")
            out.append(f".SH {title.upper()}" if len(heading[1]) <= level and "\\" not in title else
                       f".SH {title}" if len(heading[1]) <= level else f".SS {title}")
            started = False
        elif line.startswith("|") and at < len(lines) and RULE.match(lines[at].strip()):
            flush()
            end = at
            while end < len(lines) and lines[end].startswith("|"):
                end += 1
            out += table(lines[at - 1:end], link)
            at, started = end, True
        elif bullet:
            flush()
            paragraph.append(bullet[2])
            while at < len(lines) and re.match(r"^ +\S", lines[at]):
                paragraph.append(lines[at].strip())
                at += 1
            flush(f'.IP "{bullet[1]}." 4' if bullet[1] else ".IP \\(bu 2")
        elif line:
            paragraph.append(line.strip())
        else:
            flush()
    flush()
    return "\n".join(out) + "\n"
