// What a library named libcuda.so.1 may turn out to be; see driver_test.cc.
__attribute__((visibility("default"))) extern int fake_library_present;
int fake_library_present = 1;

#if defined(FAKE_DRIVER) || defined(FAKE_SHIM) || defined(FAKE_EMULATOR)
__attribute__((visibility("default"))) int cuInit(unsigned flags) { return (int)flags; }
#endif
#ifdef FAKE_SHIM
__attribute__((visibility("default"))) const char* sluice_shim_version(void) { return "test"; }
#endif
#ifdef FAKE_EMULATOR
__attribute__((visibility("default"))) const char* sluice_emulator_version(void) { return "test"; }
#endif
