#!/usr/bin/env python3
"""shim_abi.py finds each kind of fault in a readelf listing that has one."""

import unittest

import shim_abi

WANTED = {"cuInit", "cuLaunchKernel"}
DYN_SYMS = """
   Num:    Value          Size Type    Bind   Vis      Ndx Name
     0: 0000000000000000     0 NOTYPE  LOCAL  DEFAULT  UND
     1: 0000000000000000     0 FUNC    GLOBAL DEFAULT  UND mmap@GLIBC_2.2.5 (2)
     2: 0000000000000000     0 FUNC    GLOBAL DEFAULT  UND dlopen@GLIBC_2.2.5 (3)
     3: 0000000000001000    16 FUNC    GLOBAL DEFAULT   12 cuInit
     4: 0000000000001010    16 FUNC    GLOBAL DEFAULT   12 cuLaunchKernel
     5: 0000000000001020    16 FUNC    GLOBAL DEFAULT   12 sluice_shim_version
     6: 0000000000001030    16 FUNC    GLOBAL HIDDEN    12 helper
"""
DYNAMIC = """
 0x0000000000000001 (NEEDED)             Shared library: [libc.so.6]
 0x0000000000000001 (NEEDED)             Shared library: [libdl.so.2]
 0x000000000000000e (SONAME)             Library soname: [libcuda.so.1]
"""


class ShimAbi(unittest.TestCase):
    def expect(self, word, dyn_syms=DYN_SYMS, dynamic=DYNAMIC):
        faults = shim_abi.check(dyn_syms, dynamic, WANTED)
        self.assertEqual(1, len(faults), faults)
        self.assertIn(word, faults[0])

    def test_good_file(self):
        self.assertEqual([], shim_abi.check(DYN_SYMS, DYNAMIC, WANTED))

    def test_new_glibc(self):
        self.expect("mmap@GLIBC_2.34", DYN_SYMS.replace("mmap@GLIBC_2.2.5", "mmap@GLIBC_2.34"))

    def test_glibc_2_28_itself_is_allowed(self):
        self.assertEqual([], shim_abi.check(DYN_SYMS.replace("mmap@GLIBC_2.2.5", "statx@GLIBC_2.28"), DYNAMIC, WANTED))

    def test_private_glibc(self):
        self.expect("GLIBC_PRIVATE", DYN_SYMS.replace("mmap@GLIBC_2.2.5", "mmap@GLIBC_PRIVATE"))

    def test_cxx_runtime_symbol(self):
        self.expect("C++ runtime", DYN_SYMS.replace("mmap@GLIBC_2.2.5", "_ZSt9terminatev"))

    def test_cxx_runtime_library(self):
        self.expect("libstdc++.so.6", dynamic=DYNAMIC.replace("libc.so.6", "libstdc++.so.6"))

    def test_moved_symbol_needs_its_old_library(self):
        self.expect("libdl.so.2", dynamic=DYNAMIC.replace("libdl.so.2", "libc.so.6"))

    def test_soname(self):
        self.expect("soname", dynamic=DYNAMIC.replace("libcuda.so.1", "libshim.so"))

    def test_missing_export(self):
        self.expect("does not export cuInit", DYN_SYMS.replace("DEFAULT   12 cuInit", "HIDDEN    12 cuInit"))

    def test_stray_export(self):
        self.expect("exports helper", DYN_SYMS.replace("HIDDEN    12 helper", "DEFAULT   12 helper"))

    def test_dlsym_is_never_interposed(self):
        faults = shim_abi.check(DYN_SYMS.replace("HIDDEN    12 helper", "DEFAULT   12 dlsym"), DYNAMIC, WANTED)
        self.assertIn("interposes dlsym", faults)

    def test_export_list(self):
        self.assertEqual({"cuInit", "cuMemAlloc_v2"}, shim_abi.names_of("// x\nSLUICE_EXPORT(cuInit)\nSLUICE_EXPORT(cuMemAlloc_v2)\n"))


if __name__ == "__main__":
    unittest.main()
