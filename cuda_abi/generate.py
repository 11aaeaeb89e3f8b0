#!/usr/bin/env python3
"""Writes the tables of driver entry points from a CUDA toolkit's headers and annotations.toml.

    generate.py [--include DIR] [--stub FILE] [--out DIR]

Reads   DIR/cuda.h, DIR/cudaTypedefs.h, DIR/cudaProfilerTypedefs.h, and the exports of the toolkit's stub libcuda.so.
Writes  entries.inc, submits.inc, allocates.inc, exports.inc, legacy_types.inc and version.inc into --out (default:
        include/sluice/cuda_abi).

How a symbol finds its version: cudaTypedefs.h names every ABI of an entry point as PFN_<name>_v<version>, with _ptsz or
_ptds behind it for the per-thread default stream; the stub exports <name>, <name>_v2, ... with the same endings. The
oldest ABI is the plain symbol, and so on upwards. Where the two lists differ in length the generator stops.

The output depends only on its inputs. Needs Python 3.11, nothing else.
"""

import argparse
import collections
import fnmatch
import pathlib
import re
import sys
import tomllib

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE / "tools"))
import elf  # noqa: E402

KINDS = ("Kernel", "Graph", "Copy", "Memset", "Host", "Other")
# An enum of cudaProfiler.h, which not every package of cuda.h has beside it; the ABI is that of its integer type.
REPLACED = {"CUoutput_mode": "unsigned int"}
CLASSES = ("Submits", "Allocates", "Synchronises", "Captures", "Lifetime", "Other")
Entry = collections.namedtuple("Entry", "name flags version symbol params cls")


def fail(message):
    sys.exit(f"generate.py: {message}")


def stub_exports(path):
    try:
        return {name for name in elf.exports(path) if name.startswith("cu")}
    except elf.ElfError as error:
        fail(error)


def split_params(text):
    """'const void *p, size_t n' -> [('const void *', 'p'), ('size_t', 'n')]; 'void' -> []."""
    text = " ".join(text.split())
    if text in ("", "void"):
        return []
    params = []
    for part in text.split(","):
        match = re.fullmatch(r"\s*(.*?[\s*])(\w+)\s*", part)
        if not match:
            fail(f"cannot split the parameter '{part}' of ({text})")
        kind = match[1].strip()
        params.append((REPLACED.get(kind, kind), match[2]))
    return params


def read_typedefs(include):
    """(name, ending) -> [(version, params)], oldest first, from PFN_<name>_v<version><ending>."""
    found = collections.defaultdict(dict)
    for header in ("cudaTypedefs.h", "cudaProfilerTypedefs.h"):
        text = (include / header).read_text()
        pattern = r"typedef\s+(\w+)\s*\(CUDAAPI \*PFN_(\w+?)_v(\d+)(_pt[sd][sz])?\)\((.*?)\);"
        for result, name, version, ending, params in re.findall(pattern, text, re.S):
            if result != "CUresult":
                fail(f"{name} returns {result}: the tables hold only functions that return CUresult")
            found[name, ending][int(version)] = split_params(params)
    return {key: sorted(versions.items()) for key, versions in found.items()}


def split_symbol(symbol):
    """'cuMemcpyHtoD_v2_ptds' -> ('cuMemcpyHtoD', '_ptds', 2)."""
    match = re.fullmatch(r"(\w+?)(?:_v(\d+))?(_pt[sd][sz])?", symbol)
    return match[1], match[3] or "", int(match[2] or 1)


class Annotations:
    """annotations.toml, asked by name."""

    def __init__(self, path):
        data = tomllib.loads(path.read_text())
        self.submits = data["submits"]
        self.exports = {name for names in data["exports"].values() for name in names}
        self.lines = [(pattern, "Submits") for pattern in self.submits]
        for cls, patterns in data["classes"].items():
            if cls not in CLASSES:
                fail(f"{path.name}: unknown class {cls}")
            self.lines += [(pattern, cls) for pattern in patterns]
        self.used = set()
        self.limits = data["limits"]
        self.unlimited = [(p, reason) for reason, patterns in data["unlimited"].items() for p in patterns]

    def class_of(self, name):
        exact = {cls for pattern, cls in self.lines if pattern == name}
        matches = exact or {cls for pattern, cls in self.lines if fnmatch.fnmatchcase(name, pattern)}
        self.used |= {pattern for pattern, _ in self.lines if fnmatch.fnmatchcase(name, pattern)}
        if len(matches) != 1:
            fail(f"annotations.toml gives {name} {' and '.join(sorted(matches)) or 'no class'}; exactly one is needed")
        return matches.pop()

    def submit(self, name):
        """The longest pattern wins: cuMemcpy2D* before cuMemcpy*."""
        matching = [p for p in self.submits if p == name or fnmatch.fnmatchcase(name, p)]
        note = self.submits[name] if name in self.submits else self.submits[max(matching, key=len)]
        if note["kind"] not in KINDS:
            fail(f"annotations.toml: unknown kind {note['kind']} of {name}")
        return note

    def road(self, name):
        """How the memory limit sees `name`: (road, None), (None, reason) or (None, None)."""
        reasons = [(p, reason) for p, reason in self.unlimited if fnmatch.fnmatchcase(name, p)]
        self.used |= {p for p, _ in reasons} | {name}
        if len(reasons) + (name in self.limits) > 1:
            fail(f"annotations.toml gives {name} several lines in [limits] and [unlimited]")
        return self.limits.get(name), reasons[0][1] if reasons else None

    def unused(self):
        lines = [pattern for pattern, _ in self.lines + self.unlimited] + list(self.limits)
        return [pattern for pattern in lines if pattern not in self.used]


def build_entries(typedefs, stub, notes):
    symbols = collections.defaultdict(list)
    for symbol in stub:
        name, ending, number = split_symbol(symbol)
        symbols[name, ending].append((number, symbol))
    entries = []
    for key in sorted(set(typedefs) | set(symbols)):
        versions, exported = typedefs.get(key, []), sorted(symbols.get(key, []))
        if len(versions) != len(exported):
            fail(f"{key[0]}{key[1]}: versions {[v for v, _ in versions]}, symbols {[s for _, s in exported]}")
        for (version, params), (_, symbol) in zip(versions, exported):
            entries.append(Entry(key[0], 2 if key[1] else 0, version, symbol, params, notes.class_of(key[0])))
    return sorted(entries)


def declare(params):
    return "(" + ", ".join(t + ("" if t.endswith("*") else " ") + n for t, n in params) + ")"


def pass_on(params):
    return "(" + ", ".join(n for _, n in params) + ")"


def submit_line(entry, notes):
    note = notes.submit(entry.name)
    names = [n for _, n in entry.params]
    count = "numParams" if "numParams" in names else "numOps"
    passed = next((n for n in ("hStream", "stream") if n in names), "SLUICE_DEFAULT_STREAM({flags})")
    stream = note.get("stream", passed)
    fill = {"{flags}": str(entry.flags), "{count}": count, "{0}": names[0]}
    stream, work = (re.sub(r"\{\w+\}", lambda m: fill[m[0]], text) for text in (stream, note["work"]))
    for word in re.findall(r"(?<![\w>])[a-z]\w*", stream + " " + work):  # members stand behind a >
        if word not in names + ["nullptr"]:
            fail(f"{entry.symbol}: '{word}' in its annotation is no parameter of it")
    head = f"SLUICE_SUBMIT({entry.symbol}, {entry.name}, {entry.version}, {entry.flags}, {note['kind']},"
    return f"{head}\n              {stream}, {work},\n              {declare(entry.params)}, {pass_on(entry.params)})"


def allocate_line(entry, notes):
    """The line of allocates.inc; None for an entry that takes no memory."""
    road, reason = notes.road(entry.name)
    if entry.cls == "Allocates" and not road and not reason:
        fail(f"annotations.toml does not say how a memory limit sees {entry.name}: [limits] or [unlimited]")
    if reason and entry.cls == "Allocates":
        return f'SLUICE_UNCOUNTED({entry.symbol}, "{reason}")'
    if not road:
        return None
    road = road.replace("{flags}", str(entry.flags))
    names = [n for _, n in entry.params]
    for word in re.findall(r"(?<![\w>])[a-z]\w*", road):
        if word not in names + ["true"]:
            fail(f"{entry.symbol}: '{word}' in its road is no parameter of it")
    return f"SLUICE_ALLOCATE({entry.symbol}, {road},\n                {declare(entry.params)}, {pass_on(entry.params)})"


def legacy_types(cuda_h):
    """The types of the first ABI, which cuda.h shows only to those who define __CUDA_API_VERSION_INTERNAL."""
    text = re.sub(r"/\*.*?\*/", "", cuda_h, flags=re.S)
    start = text.index("typedef unsigned int CUdeviceptr_v1;")
    names = "CUDA_MEMCPY2D_v1 CUDA_MEMCPY3D_v1 CUDA_ARRAY_DESCRIPTOR_v1 CUDA_ARRAY3D_DESCRIPTOR_v1".split()
    out = ["typedef unsigned int CUdeviceptr_v1;"]
    for name in names:
        match = re.compile(rf"typedef struct {name}_st\s*\{{([^}}]*)\}} {name};").search(text, start)
        if not match:
            fail(f"cuda.h: {name} was not found")
        fields = "\n".join("  " + " ".join(line.split()) for line in match[1].splitlines() if line.strip())
        out.append(f"typedef struct {name}_st {{\n{fields}\n}} {name};")
    return "\n".join(out)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--include", type=pathlib.Path, default=pathlib.Path("/usr/local/cuda/include"))
    parser.add_argument("--stub", type=pathlib.Path, help="default: the stubs of the toolkit that --include belongs to")
    parser.add_argument("--out", type=pathlib.Path, default=HERE / "include/sluice/cuda_abi")
    args = parser.parse_args()
    places = [args.include.parent / lib / "stubs/libcuda.so" for lib in ("lib64", "lib")]
    stub_path = args.stub or next((p for p in places if p.exists()), places[0])
    for path in (args.include / "cuda.h", args.include / "cudaTypedefs.h", stub_path):
        if not path.exists():
            fail(f"{path} does not exist; point --include and --stub at a CUDA toolkit")

    cuda_h = (args.include / "cuda.h").read_text()
    version = int(re.search(r"#define CUDA_VERSION (\d+)", cuda_h)[1])
    notes = Annotations(HERE / "annotations.toml")
    stub = stub_exports(stub_path)
    entries = build_entries(read_typedefs(args.include), stub, notes)
    for entry in entries:
        allocate_line(entry, notes)  # marks what it uses
    for pattern in notes.unused():
        fail(f"annotations.toml: '{pattern}' covers no entry point of CUDA {version}")

    release = f"{version // 1000}.{version % 1000 // 10}"
    head = f"// Generated by cuda_abi/generate.py from CUDA {release} and annotations.toml; do not edit.\n"

    def write(name, text):
        args.out.mkdir(parents=True, exist_ok=True)
        (args.out / name).write_text(head + text + "\n")

    body = [
        "//\n"
        "// SLUICE_ENTRY(symbol, name, version, flags, Class, (parameters), (arguments)): every ABI of every entry\n"
        "// point; all return CUresult. `symbol` and `name` are bare tokens, many of which cuda.h defines as macros:\n"
        "// use them only as operands of # and ##.\n"
    ]
    for e in entries:
        key = f"{e.symbol}, {e.name}, {e.version}, {e.flags}, {e.cls}"
        body.append(f"SLUICE_ENTRY({key}, {declare(e.params)}, {pass_on(e.params)})")
    write("entries.inc", "\n".join(body) + "\n\n#undef SLUICE_ENTRY")

    body = [
        "//\n"
        "// SLUICE_SUBMIT(symbol, name, version, flags, Kind, stream, work, (parameters), (arguments)): entries of\n"
        "// the class Submits. `stream` is the CUstream as passed: where flags is 2, null means the thread's own\n"
        "// default stream. `work` is one of SLUICE_KERNEL(CUfunction, blocks), SLUICE_KERNEL_EX(CUfunction,\n"
        "// blocks, const CUlaunchConfig*), SLUICE_GRAPH(CUgraphExec) and\n"
        "// SLUICE_BYTES(bytes); these and SLUICE_DEFAULT_STREAM(flags) are the includer's; the sums are in\n"
        "// sluice/cuda_abi.h. As in entries.inc, `symbol` and `name` may be used only with # and ##.\n"
    ]
    body += [submit_line(e, notes) for e in entries if e.cls == "Submits"]
    write("submits.inc", "\n".join(body) + "\n\n#undef SLUICE_SUBMIT")

    body = [
        "//\n"
        "// SLUICE_ALLOCATE(symbol, ROAD(...), (parameters), (arguments)): entries that take or give back device\n"
        "// memory which a job's limit counts. SLUICE_UNCOUNTED(symbol, reason): the others of the class Allocates.\n"
        "// The roads, macros of the includer:\n"
        "//   SLUICE_LINEAR(address, bytes)  SLUICE_PITCHED(address, pitch, width, height)  SLUICE_FREE(address)\n"
        "//   SLUICE_ASYNC(bytes, stream, flags)  SLUICE_FROM_POOL(bytes, pool, stream, flags)\n"
        "//   SLUICE_FREE_ASYNC(address)  SLUICE_POOL_CREATE(pool, properties)  SLUICE_POOL_DESTROY(pool)\n"
        "//   SLUICE_TRIM()  SLUICE_GRAPH_ALLOC(condition)  SLUICE_GRAPH_NODE(parameters)\n"
        "//   SLUICE_CREATE(handle, bytes, properties)  SLUICE_RELEASE(handle)  SLUICE_RETAIN(handle)\n"
        "//   SLUICE_MAP(address, bytes, handle)  SLUICE_UNMAP(address, bytes)\n"
        "//   SLUICE_ARRAY(handle, description)  SLUICE_MIPMAPPED(handle, description, levels)\n"
        "//   SLUICE_DESTROY_ARRAY(handle)\n"
    ]
    body += [line for line in (allocate_line(e, notes) for e in entries) if line]
    write("allocates.inc", "\n".join(body) + "\n\n#undef SLUICE_ALLOCATE\n#undef SLUICE_UNCOUNTED")

    exports = sorted({e.symbol for e in entries} | stub | notes.exports)
    body = "//\n// SLUICE_EXPORT(symbol): every name that a stand-in for libcuda.so.1 exports. Usable from assembly.\n"
    write("exports.inc", body + "\n".join(f"SLUICE_EXPORT({s})" for s in exports))
    write("legacy_types.inc", legacy_types(cuda_h))
    write("version.inc", f"SLUICE_CUDA_ABI_VERSION({version})")
    print(f"CUDA {release}: {len(entries)} entries, {len(exports)} exports")


if __name__ == "__main__":
    main()
