// Code for AVX2 in a program built for every x86-64: regions of a source that are compiled for it, and the question
// whether they may be called.
#pragma once

#ifdef __clang__  // the compiler of the ASan build, and clang-tidy's
#define SLUICE_AVX2_BEGIN _Pragma("clang attribute push(__attribute__((target(\"avx2,fma\"))), apply_to = function)")
#define SLUICE_AVX2_END _Pragma("clang attribute pop")
#elif defined(SLUICE_SANITIZED)  // not to be fast, and O3 would take minutes
#define SLUICE_AVX2_BEGIN _Pragma("GCC push_options") _Pragma("GCC target(\"avx2,fma\")")
#define SLUICE_AVX2_END _Pragma("GCC pop_options")
#else
#define SLUICE_AVX2_BEGIN \
  _Pragma("GCC push_options") _Pragma("GCC target(\"avx2,fma\")") _Pragma("GCC optimize(\"O3\")")
#define SLUICE_AVX2_END _Pragma("GCC pop_options")
#endif

namespace sluice::engine::cpu {

inline bool has_avx2() {
  static const bool has = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  return has;
}

}  // namespace sluice::engine::cpu
