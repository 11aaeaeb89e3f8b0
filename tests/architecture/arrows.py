#!/usr/bin/env python3
"""Checks the source tree against the arrows between rooms. Prints what it finds; exit code 1 if there is any.

    arrows.py [ROOT]

CMake already makes an upward include of a public header fail to compile; this also sees private headers, link lines,
and the shape of a room: one public header, files of at most 500 lines, every source named in a CMakeLists.txt.
"""

import os
import re
import sys
from pathlib import Path

# room -> rooms it may use directly. What these use in turn may be used as well.
ARROWS = {
    "base": (),  # status, units, clock, process: needs nothing
    "cuda_abi": (),  # the generated table of driver entry points: needs nothing
    "board": ("base",),  # shared-memory layout, job slots, gate words
    "policy": ("base",),  # who may run now: pure functions
    "driver": ("base", "cuda_abi"),  # libcuda opened at run time
    "emulator": ("base", "cuda_abi"),  # the driver without a GPU; must not know what Sluice does with it
    "shim": ("board", "driver"),  # loaded into other people's programs: nothing else of ours
    "control": ("base",),  # messages between command line and daemon
    "mps": ("control",),  # NVIDIA's Multi-Process Service: found, started, ended
    "health": ("base",),  # NVML, opened at run time; the guard
    "memory": ("driver",),  # the fixed pool
    "graph": ("memory",),  # declared reads and writes -> one CUDA graph
    "engine": ("base",),  # ONNX models: import, passes, programs for devices
    "daemon": ("board", "policy", "health", "control", "mps"),  # owns what is slow
    "capi": ("engine", "memory"),  # libsluice.so, the engine and the pool for C
    "cli": ("control", "mps", "health", "board", "driver", "engine"),  # `run` takes the job's slot and finds the driver
}
# The public header of a room that has it by another name than sluice/<room>.h.
PUBLIC_HEADERS = {"capi": "sluice.h"}
# Not rooms: they may include any room's public header, never a private one.
OUTSIDE = ("bench", "examples", "tests")

MAX_LINES = 500
CODE = {".h", ".cc", ".c", ".cu", ".S", ".py", ".sh", ".cmake", ".txt"}
CPP = {".h", ".cc", ".c", ".cu", ".S", ".inc"}
COMPILED = {".cc", ".c", ".cu", ".S"}
SKIPPED = {"build", "out", ".git", ".deps", ".bundle", "__pycache__"}

INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.MULTILINE)
PUBLIC = re.compile(r"^sluice/(?:(base|cuda_abi)/[^/]+|([a-z_]+)\.h)$")
ROOM_DEPS = re.compile(r"sluice_room\(\s*(\w+)([^)]*)\)")


def reachable(room, arrows=None):
    """The rooms that `room` may use, itself included."""
    arrows = ARROWS if arrows is None else arrows
    seen, todo = set(), [room]
    while todo:
        name = todo.pop()
        if name not in seen:
            seen.add(name)
            todo.extend(arrows[name])
    return seen


def files_under(root):
    for directory, subdirectories, names in os.walk(root):
        subdirectories[:] = sorted(d for d in subdirectories if d not in SKIPPED)
        for name in sorted(names):
            yield Path(directory, name)


def check_include(root, path, text, target):
    """One quoted include; yields a fault if no arrow allows it."""
    inside = path.relative_to(root)
    home = inside.parts[0]
    public = PUBLIC.match(target)
    if public:
        room = public.group(1) or public.group(2)
        if room not in ARROWS:
            yield f"{inside}: includes {target}, and no room is called {room}"
        elif home in ARROWS and room not in reachable(home):
            allowed = ", ".join(sorted(reachable(home) - {home})) or "nothing"
            yield f"{inside}: {home} may not use {room} (it may use {allowed})"
        return
    for base in (path.parent, root):
        found = Path(os.path.normpath(base / target))
        if found.is_file() and root in found.parents:
            owner = found.relative_to(root).parts[0]
            if owner != home and not (home in OUTSIDE and owner in OUTSIDE):
                yield f"{inside}: includes {target}, which is private to {owner}"
            return


def check_room(root, room):
    """The shape of one room's folder."""
    folder = root / room
    if not folder.is_dir():
        yield f"{room}: listed in ARROWS, but there is no such folder"
        return
    public = sorted(str(p.relative_to(folder / "include")) for p in (folder / "include").rglob("*.h"))
    if room == "base":
        strays = [p for p in public if not p.startswith("sluice/base/")]
    else:
        strays = [p for p in public if p != PUBLIC_HEADERS.get(room, f"sluice/{room}.h")]
    for stray in strays:
        yield f"{room}/include/{stray}: a room has one public header, {PUBLIC_HEADERS.get(room, f'sluice/{room}.h')}"
    used = any(room in targets for targets in ARROWS.values())
    if used and not public and any(folder.rglob("*.cc")):
        yield f"{room}: others link it, but include/sluice/{room}.h is missing"


def check_links(root):
    """`DEPS` of sluice_room() in the rooms' CMakeLists.txt."""
    for room in ARROWS:
        lists = root / room / "CMakeLists.txt"
        if not lists.is_file():
            continue
        for name, arguments in ROOM_DEPS.findall(re.sub(r"#.*", "", lists.read_text())):
            words = arguments.split()
            deps = words[words.index("DEPS") + 1 :] if "DEPS" in words else []
            for dep in deps:
                if dep.isupper():  # the next keyword
                    break
                if name in ARROWS and dep not in reachable(name):
                    yield f"{room}/CMakeLists.txt: {name} may not link {dep}"


def check_tree(root):
    """All faults of the tree at `root`, as sentences."""
    root = Path(root).resolve()
    faults, compiled, lists = [], [], []
    for path in files_under(root):
        inside = path.relative_to(root)
        if path.name == "CMakeLists.txt" or path.suffix == ".cmake":
            lists.append((path.parent, path.read_text()))
        if path.suffix in CODE:
            lines = path.read_text(errors="replace").count("\n")
            if lines > MAX_LINES and "corpus" not in inside.parts:
                faults.append(f"{inside}: {lines} lines; a file over {MAX_LINES} wants splitting")
        home = inside.parts[0]
        if path.suffix not in CPP or home not in (*ARROWS, *OUTSIDE):
            continue
        text = path.read_text(errors="replace")
        for target in INCLUDE.findall(text):
            faults.extend(check_include(root, path, text, target))
        if path.suffix == ".h" and not re.search(r"^#pragma once$", text, re.MULTILINE):
            faults.append(f"{inside}: has no #pragma once")
        if path.suffix in COMPILED:
            compiled.append(path)
    for path in compiled:
        named = any(
            folder in (path.parent, *path.parent.parents) and re.search(rf"(?<![\w-]){re.escape(path.name)}\b", text)
            for folder, text in lists
        )
        if not named:
            faults.append(f"{path.relative_to(root)}: no CMakeLists.txt names it")
    for room in ARROWS:
        faults.extend(check_room(root, room))
    faults.extend(check_links(root))
    return faults


def main(arguments):
    root = arguments[0] if arguments else Path(__file__).resolve().parents[2]
    faults = check_tree(root)
    for fault in faults:
        print(f"arrows: {fault}")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
