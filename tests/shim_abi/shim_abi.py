#!/usr/bin/env python3
"""What the shim's file promises to programs it is loaded into, read with readelf.

    shim_abi.py SHIM EXPORTS_INC

SHIM is Sluice's libcuda.so.1 or libnvidia-ml.so.1, EXPORTS_INC the list of names that it must have. It must load on old
systems and beside any C++ runtime: no glibc symbol newer than 2.28, no C++ runtime, its file's name as the soname, exactly the driver's names plus its own, and never dlsym. Prints what is wrong; exit code 1 if anything is.
"""

import os
import re
import subprocess
import sys

NEWEST_GLIBC = (2, 28)
# Libraries that every process with glibc has; the last three are parts of libc.so.6 on newer systems.
LIBRARIES = {"libc.so.6", "ld-linux-x86-64.so.2", "libdl.so.2", "libpthread.so.0", "librt.so.1"}
# Where glibc 2.28 keeps what newer versions moved into libc.so.6. Without these a lookup fails there.
MOVED = {"libdl.so.2": {"dlopen", "dlsym", "dlvsym", "dlerror", "dlclose", "dladdr", "dladdr1", "dlinfo"},
         "libpthread.so.0": {"pthread_create", "pthread_detach", "pthread_join", "pthread_once", "pthread_key_create",
                             "pthread_setspecific", "pthread_getspecific", "pthread_sigmask", "sem_wait", "sem_post"},
         "librt.so.1": {"shm_open", "shm_unlink", "timer_create"}}
NEVER_EXPORTED = {"dlsym", "dlvsym", "dlopen", "malloc", "free", "exit"}


def readelf(*arguments):
    return subprocess.run(["readelf", "-W", *arguments], check=True, capture_output=True, text=True).stdout


def symbols(text):
    """(imported, exported) of `readelf --dyn-syms`: names without version, and versions of the imported ones."""
    imported, exported = {}, set()
    for line in text.splitlines():
        fields = line.split()
        if len(fields) < 8 or not fields[0].endswith(":") or fields[4] not in ("GLOBAL", "WEAK", "UNIQUE"):
            continue
        name, _, version = fields[7].replace("@@", "@").partition("@")
        if fields[6] == "UND":
            imported[name] = version
        elif fields[5] in ("DEFAULT", "PROTECTED") and fields[6] != "ABS":
            exported.add(name)
    return imported, exported


def dynamic(text, tag):
    return re.findall(rf"\({tag}\).*\[(.*)\]", text)


def names_of(exports_inc):
    return set(re.findall(r"^SLUICE_EXPORT\((\w+)\)", exports_inc, re.MULTILINE))


def check(dyn_syms, dynamic_section, wanted, soname="libcuda.so.1"):
    """All faults as sentences. `wanted`: the names of exports.inc."""
    imported, exported = symbols(dyn_syms)
    needed = set(dynamic(dynamic_section, "NEEDED"))
    faults = []
    for name, version in sorted(imported.items()):
        glibc = re.fullmatch(r"GLIBC_(\d+)\.(\d+)(?:\.\d+)?", version)
        if glibc and (int(glibc[1]), int(glibc[2])) > NEWEST_GLIBC:
            faults.append(f"needs {name}@{version}; 2.28 is the newest allowed: pin it or do without")
        elif version and not glibc:
            faults.append(f"needs {name}@{version}, which is no public glibc version")
        elif re.match(r"_Z|__cxa_(throw|begin_catch|guard)|__gxx_personality", name):
            faults.append(f"needs {name} of a C++ runtime")
    for library in sorted(needed - LIBRARIES):
        faults.append(f"needs the library {library}")
    for library, moved in MOVED.items():
        for name in sorted(moved & imported.keys()):
            if library not in needed:
                faults.append(f"uses {name}, which glibc 2.28 keeps in {library}, but does not link that")
    if dynamic(dynamic_section, "SONAME") != [soname]:
        faults.append(f"soname is {dynamic(dynamic_section, 'SONAME')}, not {soname}")
    for tag in ("RPATH", "RUNPATH", "TEXTREL"):
        if f"({tag})" in dynamic_section:
            faults.append(f"has {tag}")
    own = {name for name in exported if name.startswith("sluice_shim_")}
    for name in sorted(wanted - exported):
        faults.append(f"does not export {name}")
    for name in sorted(exported - wanted - own):
        faults.append(f"exports {name}, which is neither the driver's nor sluice_shim_*")
    for name in sorted(NEVER_EXPORTED & exported):
        faults.append(f"interposes {name}")
    return faults


def main(arguments):
    if len(arguments) != 2:
        print(__doc__.strip(), file=sys.stderr)
        return 2
    shim, exports_inc = arguments
    with open(exports_inc, encoding="utf-8") as file:
        wanted = names_of(file.read())
    if not wanted:
        print(f"shim_abi: {exports_inc} names no export", file=sys.stderr)
        return 2
    if not os.path.exists(shim):
        print(f"shim_abi: {shim} is not there; build the target sluice_shim")
        return 1
    faults = check(readelf("--dyn-syms", shim), readelf("--dynamic", shim), wanted, os.path.basename(shim))
    for fault in faults:
        print(f"shim_abi: {shim} {fault}")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
