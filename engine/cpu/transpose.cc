// Transpose of elements of four bytes: rows that stay whole are copied, others go through registers eight by eight.
#include <algorithm>
#include <cstring>
#include <vector>

#include "cpu/kernels.h"
#include "cpu/parallel.h"
#include "cpu/simd.h"
#include "cpu/transpose_eight.h"
#include "operators/broadcast.h"

SLUICE_AVX2_BEGIN
namespace sluice::engine::cpu {
namespace {

// y[r * y_row + c] = x[c * x_row + r] for r < rows, c < columns.
void transpose_plane(const float* x, std::int64_t x_row, float* y, std::int64_t y_row, std::int64_t rows,
                     std::int64_t columns) {
  for (std::int64_t r = 0; r < rows; r += kLanes) {
    const std::int64_t some = std::min(kLanes, rows - r);
    std::int64_t c = 0;
    for (; some == kLanes && c + kLanes <= columns; c += kLanes) {
      Vec eight[8];
#pragma GCC unroll 8
      for (int i = 0; i < 8; ++i) {
        eight[i] = load(x + (c + i) * x_row + r);
      }
      transpose_eight(eight);
#pragma GCC unroll 8
      for (int i = 0; i < 8; ++i) {
        store(y + (r + i) * y_row + c, eight[i]);
      }
    }
    for (; c < columns; ++c) {
      for (std::int64_t i = 0; i < some; ++i) {
        y[(r + i) * y_row + c] = x[c * x_row + r + i];
      }
    }
  }
}

}  // namespace
}  // namespace sluice::engine::cpu
SLUICE_AVX2_END

namespace sluice::engine::cpu {
namespace {

constexpr std::int64_t kWorthThreads = 8192;

// A dimension of the result, and how far apart its elements lie on both sides.
struct Axis {
  std::int64_t size, x, y;
};

class Transpose final : public Kernel {
 public:
  // `axes`: the result's, at least one, the last one of neighbours in the result.
  Transpose(std::vector<Axis> axes, int threads) : last_(axes.back()), threads_(threads) {
    axes.pop_back();
    const auto neighbours = std::find_if(axes.begin(), axes.end(), [](const Axis& axis) { return axis.x == 1; });
    if (last_.x != 1 && neighbours != axes.end()) {
      rows_ = *neighbours;
      axes.erase(neighbours);
    }
    outer_ = std::move(axes);
    for (const Axis& axis : outer_) {
      count_ *= axis.size;
    }
  }

  Status run(const KernelRun& run) override {
    const float* x = run.inputs[0].as<float>();
    float* y = run.outputs[0].out<float>();
    const std::int64_t grain = std::max<std::int64_t>(1, kWorthThreads / (last_.size * rows_.size));
    parallel_ranges(threads_, count_, grain, [&](std::int64_t first, std::int64_t last) {
      for (std::int64_t i = first; i < last; ++i) {
        std::int64_t from = 0, to = 0, rest = i;
        for (std::size_t d = outer_.size(); d-- > 0; rest /= outer_[d].size) {
          from += rest % outer_[d].size * outer_[d].x;
          to += rest % outer_[d].size * outer_[d].y;
        }
        if (last_.x == 1) {
          std::memcpy(y + to, x + from, static_cast<std::size_t>(last_.size) * sizeof(float));
        } else {
          transpose_plane(x + from, last_.x, y + to, rows_.y, rows_.size, last_.size);
        }
      }
    });
    return {};
  }

 private:
  Axis last_, rows_{1, 1, 0};
  std::vector<Axis> outer_;
  std::int64_t count_ = 1;
  const int threads_;
};

Result<std::unique_ptr<Kernel>> make(KernelContext& context) {
  const Dims &x = context.input(0).dims, &y = context.output(0).dims;
  if (!has_avx2() || dtype_bytes(context.input(0).dtype) != sizeof(float) || element_count(x) == 0) {
    return std::unique_ptr<Kernel>();
  }
  std::vector<std::int64_t> reversed;
  for (std::size_t i = x.size(); i-- > 0;) {
    reversed.push_back(static_cast<std::int64_t>(i));
  }
  const auto permutation = context.node().get_ints("perm", reversed);
  const Dims x_strides = strides_of(x), y_strides = strides_of(y);
  std::vector<Axis> axes;
  for (std::size_t d = 0; d < y.size(); ++d) {
    const Axis axis{y[d], x_strides[static_cast<std::size_t>(permutation[d])], y_strides[d]};
    if (axis.size == 1) {
      continue;
    }
    if (!axes.empty() && axes.back().x == axis.x * axis.size) {  // neighbours on both sides
      axes.back() = {axes.back().size * axis.size, axis.x, axis.y};
    } else {
      axes.push_back(axis);
    }
  }
  if (axes.empty()) {
    axes.push_back({1, 1, 1});
  }
  return Result<std::unique_ptr<Kernel>>(std::make_unique<Transpose>(std::move(axes), context.threads()));
}

}  // namespace

void register_cpu_transpose(Kernels& kernels) { kernels.add("", "Transpose", "avx2", make); }

}  // namespace sluice::engine::cpu
