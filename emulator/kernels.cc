#include "kernels.h"

#include <atomic>
#include <cstring>

namespace sluice::emulator {
namespace {

constexpr std::size_t kU32 = 4, kF32 = 4, kU64 = 8, kPtr = 8;

KernelCost spin_cost(const KernelCall& c) { return {.fixed_ns = static_cast<double>(c.param<std::uint64_t>(0))}; }
bool spin_run(const KernelCall&) { return true; }

KernelCost fill_cost(const KernelCall& c) { return {.bytes = 4.0 * c.param<std::uint32_t>(2)}; }
bool fill_run(const KernelCall& c) {
  const std::uint32_t n = c.param<std::uint32_t>(2);
  float* out = c.array<float>(0, n);
  if (out == nullptr) return false;
  const float value = c.param<float>(1);
  for (std::uint32_t i = 0; i < n; ++i) out[i] = value;
  return true;
}

KernelCost vector_add_cost(const KernelCall& c) {
  const double n = c.param<std::uint32_t>(3);
  return {.bytes = 12 * n, .operations = n};
}
bool vector_add_run(const KernelCall& c) {
  const std::uint32_t n = c.param<std::uint32_t>(3);
  const float* a = c.array<float>(0, n);
  const float* b = c.array<float>(1, n);
  float* out = c.array<float>(2, n);
  if (a == nullptr || b == nullptr || out == nullptr) return false;
  for (std::uint32_t i = 0; i < n; ++i) out[i] = a[i] + b[i];
  return true;
}

KernelCost saxpy_cost(const KernelCall& c) {
  const double n = c.param<std::uint32_t>(0);
  return {.bytes = 12 * n, .operations = 2 * n};
}
bool saxpy_run(const KernelCall& c) {
  const std::uint32_t n = c.param<std::uint32_t>(0);
  const float a = c.param<float>(1);
  const float* x = c.array<float>(2, n);
  float* y = c.array<float>(3, n);
  if (x == nullptr || y == nullptr) return false;
  for (std::uint32_t i = 0; i < n; ++i) y[i] = a * x[i] + y[i];
  return true;
}

KernelCost increment_cost(const KernelCall&) { return {}; }
bool increment_run(const KernelCall& c) {
  auto* word = c.array<std::uint32_t>(0, 1);
  if (word == nullptr) return false;
  // Atomic, because the word may be host memory that a thread is watching.
  std::atomic_ref<std::uint32_t>(*word).fetch_add(c.param<std::uint32_t>(1));
  return true;
}

KernelCost matmul_cost(const KernelCall& c) {
  const double m = c.param<std::uint32_t>(3), n = c.param<std::uint32_t>(4), k = c.param<std::uint32_t>(5);
  return {.bytes = 4 * (m * k + k * n + m * n), .operations = 2 * m * n * k};
}
bool matmul_run(const KernelCall& c) {
  const std::size_t m = c.param<std::uint32_t>(3), n = c.param<std::uint32_t>(4), k = c.param<std::uint32_t>(5);
  const float* a = c.array<float>(0, m * k);
  const float* b = c.array<float>(1, k * n);
  float* out = c.array<float>(2, m * n);
  if (a == nullptr || b == nullptr || out == nullptr) return false;
  for (std::size_t i = 0; i < m; ++i) {
    for (std::size_t j = 0; j < n; ++j) out[i * n + j] = 0;
    for (std::size_t l = 0; l < k; ++l) {
      const float factor = a[i * k + l];
      for (std::size_t j = 0; j < n; ++j) out[i * n + j] += factor * b[l * n + j];
    }
  }
  return true;
}

// Of `sluice doctor bandwidth`.
KernelCost read_cost(const KernelCall& c) { return {.bytes = static_cast<double>(c.param<std::uint64_t>(1))}; }
bool read_run(const KernelCall& c) { return c.array<unsigned char>(0, c.param<std::uint64_t>(1)) != nullptr; }

KernelCost write_cost(const KernelCall& c) { return {.bytes = static_cast<double>(c.param<std::uint64_t>(1))}; }
bool write_run(const KernelCall& c) {
  const auto bytes = c.param<std::uint64_t>(1);
  auto* to = c.array<unsigned char>(0, bytes);
  if (to == nullptr) return false;
  std::memset(to, 0x5a, bytes);
  return true;
}

KernelCost copy_cost(const KernelCall& c) { return {.bytes = 2 * static_cast<double>(c.param<std::uint64_t>(2))}; }
bool copy_run(const KernelCall& c) {
  const auto bytes = c.param<std::uint64_t>(2);
  auto* to = c.array<unsigned char>(0, bytes);
  const auto* from = c.array<unsigned char>(1, bytes);
  if (to == nullptr || from == nullptr) return false;
  std::memmove(to, from, bytes);
  return true;
}

}  // namespace

const Kernel* find_kernel(std::string_view name) {
  static const std::vector<Kernel>& kernels = *new std::vector<Kernel>{
      {"spin_ns", {kU64}, spin_cost, spin_run},
      {"fill", {kPtr, kF32, kU32}, fill_cost, fill_run},
      {"vector_add", {kPtr, kPtr, kPtr, kU32}, vector_add_cost, vector_add_run},
      {"saxpy", {kU32, kF32, kPtr, kPtr}, saxpy_cost, saxpy_run},
      {"increment", {kPtr, kU32}, increment_cost, increment_run},
      {"matmul_f32", {kPtr, kPtr, kPtr, kU32, kU32, kU32}, matmul_cost, matmul_run},
      {"sluice_read", {kPtr, kU64, kU32, kPtr}, read_cost, read_run},
      {"sluice_write", {kPtr, kU64}, write_cost, write_run},
      {"sluice_copy", {kPtr, kPtr, kU64}, copy_cost, copy_run},
  };
  for (const Kernel& kernel : kernels) {
    if (kernel.name == name) return &kernel;
  }
  return nullptr;
}

}  // namespace sluice::emulator
