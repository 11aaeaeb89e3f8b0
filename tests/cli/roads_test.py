"""Programs that find a driver by another road than the library path get the shim too, or the reason is said."""
import os
import shutil
import subprocess
import unittest

import support
from support import CliTest

# Says whether the driver that it gets by `name` is the shim.
OPENER = """
#include <dlfcn.h>
#include <stdio.h>
int main(int argc, char** argv) {
  void* driver = dlopen(argv[1], RTLD_NOW);
  if (driver == NULL) return 2;
  puts(dlsym(driver, "sluice_shim_version") != NULL ? "shim" : "driver");
  return 0;
}
"""

# The same of a driver that it is linked with.
LINKED = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
extern int cuInit(unsigned);
int main(void) {
  Dl_info where;
  if (dladdr((void*)&cuInit, &where) == 0) return 2;
  puts(dlsym(dlopen(where.dli_fname, RTLD_NOW), "sluice_shim_version") != NULL ? "shim" : "driver");
  return 0;
}
"""


@unittest.skipIf(shutil.which("cc") is None, "needs a C compiler")
class RoadsToTheDriver(CliTest):
    def setUp(self):
        super().setUp()
        self.emulator = str(support.BUILD / "lib/sluice/emulator")

    def program(self, source, *flags):
        path = os.path.join(self.folder, "program")
        subprocess.run(["cc", "-x", "c", self.write("program.c", source), "-o", path, "-x", "none", *flags, "-ldl"], check=True)
        return path

    def driver_of(self, *command):
        done = self.call("run", "--", *command)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout.strip(), done.stderr

    def test_both_names(self):
        program = self.program(OPENER)
        for name in ("libcuda.so.1", "libcuda.so"):
            self.assertEqual(self.driver_of(program, name)[0], "shim")

    def test_dt_rpath(self):
        flags = ("-Wl,--disable-new-dtags", "-Wl,-rpath," + self.emulator)
        program = self.program(OPENER, *flags)
        self.assertEqual(subprocess.run([program, "libcuda.so.1"], capture_output=True, text=True, check=True).stdout,
                         "driver\n", "it has a driver in reach")
        got, said = self.driver_of(program, "libcuda.so.1")
        self.assertEqual(got, "shim")
        self.assertIn(f"the DT_RPATH of {program} leads to {self.emulator}/libcuda.so.1; the shim is preloaded", said)
        linked = self.program(LINKED, *flags, os.path.join(self.emulator, "libcuda.so.1"))
        self.assertEqual(self.driver_of(linked)[0], "shim")

    def test_dt_rpath_of_an_interpreter(self):
        program = self.program(OPENER, "-Wl,--disable-new-dtags", "-Wl,-rpath," + self.emulator)
        script = self.write("script", f"#!{program} libcuda.so.1\n")
        os.chmod(script, 0o755)
        self.assertEqual(self.driver_of(script)[0], "shim")

    def test_other_programs_preload_nothing(self):
        for flags in (("-Wl,--enable-new-dtags", "-Wl,-rpath," + self.emulator),
                      ("-Wl,--disable-new-dtags", "-Wl,-rpath,/no/such/folder")):
            got, said = self.driver_of(self.program(OPENER, *flags), "libcuda.so.1")
            self.assertEqual(got, "shim")
            self.assertNotIn("preloaded", said)
        self.assertNotIn("LD_PRELOAD", self.call("run", "-q", "--", "env").stdout)


if __name__ == "__main__":
    support.main()
