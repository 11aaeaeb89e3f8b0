// The kernels that the emulator knows: host functions that stand in for device code, with the time they take.
//
// A module's PTX text says which kernels it has and how large their parameters are; the name picks the host function.
// A kernel takes max(launch floor, fixed time, bytes / memory bandwidth, operations / peak) of the card's profile:
//
//   spin_ns(u64 ns)                                                  fixed time: ns
//   fill(f32* out, f32 value, u32 n)                                 4n bytes
//   vector_add(const f32* a, const f32* b, f32* c, u32 n)            12n bytes, n operations
//   saxpy(u32 n, f32 a, const f32* x, f32* y)                        12n bytes, 2n operations
//   increment(u32* word, u32 by)                                     the launch floor; *word += by
//   matmul_f32(const f32* a, const f32* b, f32* c, u32 m, u32 n, u32 k)
//                                                                    4(mk + kn + mn) bytes, 2mnk operations
//   sluice_read(void* from, u64 bytes, u32 never, u32* out)          bytes; reads nothing
//   sluice_write(void* to, u64 bytes)                                bytes
//   sluice_copy(void* to, const void* from, u64 bytes)               2 bytes each
//
// All but spin_ns and sluice_read compute their result in full, whatever the grid (as a grid that covers n would).
// Scaled time is that of the profile: a host slower than the card's peak stretches a large matmul_f32.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace sluice::emulator {

struct KernelCost {
  double fixed_ns = 0, bytes = 0, operations = 0;
};

// Gives a kernel its parameters and its card's memory.
class KernelCall {
 public:
  // Host address of `bytes` of device memory at `address`, null if they are not all within one allocation.
  using Resolve = void* (*)(void* user, std::uint64_t address, std::size_t bytes);

  KernelCall(const std::vector<unsigned char>& params, const std::vector<std::size_t>& offsets, Resolve resolve,
             void* user)
      : params_(params), offsets_(offsets), resolve_(resolve), user_(user) {}

  template <class T>
  T param(std::size_t index) const {
    T value;
    __builtin_memcpy(&value, params_.data() + offsets_[index], sizeof value);
    return value;
  }
  template <class T>
  T* array(std::size_t index, std::size_t count) const {
    return static_cast<T*>(resolve_(user_, param<std::uint64_t>(index), count * sizeof(T)));
  }

 private:
  const std::vector<unsigned char>& params_;
  const std::vector<std::size_t>& offsets_;
  Resolve resolve_;
  void* user_;
};

struct Kernel {
  std::string_view name;
  std::vector<std::size_t> param_sizes;
  KernelCost (*cost)(const KernelCall&);
  // Returns false where the device would have accessed memory that is not allocated.
  bool (*run)(const KernelCall&);
};

// The kernel of that name, or null. Never freed.
const Kernel* find_kernel(std::string_view name);

}  // namespace sluice::emulator
