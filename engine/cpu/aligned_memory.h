// Memory for tensors.
#pragma once

#include <cstddef>
#include <memory>

namespace sluice::engine::cpu {

// At least `bytes` that start on a cache line; large ones on huge pages, where the kernel has some. nullptr: none left.
std::shared_ptr<void> allocate_aligned(std::size_t bytes);

}  // namespace sluice::engine::cpu
