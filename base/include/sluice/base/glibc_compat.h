// Keeps what the shim contains loadable with glibc 2.28: functions that glibc moved from libdl and libpthread into libc
// since are bound to the version they had before. Included by every source that the shim contains and that uses one of
// them. A library built so names libdl.so.2 and libpthread.so.0 among its needs, for the systems where they hold these.
//
// Off under sanitizers, whose own versions of these functions must be called.
#pragma once

#if defined(__GLIBC__) || __has_include(<gnu/libc-version.h>)
#if !defined(SLUICE_SANITIZED) && (defined(__x86_64__) || defined(__aarch64__))

#if defined(__x86_64__)
#define SLUICE_GLIBC_FIRST "2.2.5"
#define SLUICE_GLIBC_DLINFO "2.3.3"
#define SLUICE_GLIBC_SETNAME "2.12"
#define SLUICE_GLIBC_GETATTR "2.2.5"
#else
#define SLUICE_GLIBC_FIRST "2.17"
#define SLUICE_GLIBC_DLINFO "2.17"
#define SLUICE_GLIBC_SETNAME "2.17"
#define SLUICE_GLIBC_GETATTR "2.17"
#endif
#define SLUICE_PIN(name, version) __asm__(".symver " #name ", " #name "@GLIBC_" version)

SLUICE_PIN(dlopen, SLUICE_GLIBC_FIRST);
SLUICE_PIN(dlsym, SLUICE_GLIBC_FIRST);
SLUICE_PIN(dlerror, SLUICE_GLIBC_FIRST);
SLUICE_PIN(dlclose, SLUICE_GLIBC_FIRST);
SLUICE_PIN(dladdr, SLUICE_GLIBC_FIRST);
SLUICE_PIN(dlinfo, SLUICE_GLIBC_DLINFO);
SLUICE_PIN(pthread_create, SLUICE_GLIBC_FIRST);
SLUICE_PIN(pthread_detach, SLUICE_GLIBC_FIRST);
SLUICE_PIN(pthread_join, SLUICE_GLIBC_FIRST);
SLUICE_PIN(pthread_once, SLUICE_GLIBC_FIRST);
SLUICE_PIN(pthread_key_create, SLUICE_GLIBC_FIRST);
SLUICE_PIN(pthread_getspecific, SLUICE_GLIBC_FIRST);
SLUICE_PIN(pthread_setspecific, SLUICE_GLIBC_FIRST);
SLUICE_PIN(pthread_sigmask, SLUICE_GLIBC_FIRST);
SLUICE_PIN(pthread_kill, SLUICE_GLIBC_FIRST);
SLUICE_PIN(pthread_mutex_trylock, SLUICE_GLIBC_FIRST);
SLUICE_PIN(pthread_attr_setstacksize, SLUICE_GLIBC_FIRST);
SLUICE_PIN(pthread_condattr_setclock, SLUICE_GLIBC_DLINFO);
SLUICE_PIN(pthread_getattr_np, SLUICE_GLIBC_GETATTR);
SLUICE_PIN(pthread_setname_np, SLUICE_GLIBC_SETNAME);

#undef SLUICE_PIN
#endif
#endif
