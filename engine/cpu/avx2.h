// Code for AVX2 in a program built for every x86-64: regions of a source that are compiled for it, and the question
// whether they may be called.
#pragma once

#define SLUICE_AVX2_BEGIN \
  _Pragma("GCC push_options") _Pragma("GCC target(\"avx2,fma\")") _Pragma("GCC optimize(\"O3\")")
#define SLUICE_AVX2_END _Pragma("GCC pop_options")

namespace sluice::engine::cpu {

inline bool has_avx2() {
  static const bool has = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  return has;
}

}  // namespace sluice::engine::cpu
