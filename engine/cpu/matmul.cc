// Products of matrices: MatMul, Gemm, FusedMatMul, and convolutions of one pixel. Constant weights are packed once into
// panels of 16 columns; a panel stays in the second-level cache while all rows pass by it.
#include <algorithm>
#include <cstring>
#include <vector>

#include "cpu/avx2.h"
#include "cpu/blocked_conv.h"
#include "cpu/kernels.h"
#include "cpu/parallel.h"
#include "cpu/tile.h"
#include "operators/broadcast.h"
#include "operators/packed_weights.h"

namespace sluice::engine::cpu {
namespace {

constexpr std::int64_t kSecondLevelFloats = 64 << 10;  // of rows that a task multiplies: a part of 512 KiB
constexpr std::int64_t kWorthThreads = 1 << 16;        // multiply-adds below which one thread does it

// What a node asks for, whatever its operator is.
struct Product {
  std::int64_t m = 0, n = 0, k = 0;  // of one item
  bool transposed_b = false;
  Dims batch, batch_a, batch_b;
  float scale = 1, bias_scale = 1;
  bool bias = false, residual = false;  // input 2 is a vector of n; there is a residual
  std::size_t residual_input = 3;
  Activation activation;
  std::int64_t items() const { return element_count(batch); }
};

std::int64_t panels_of(std::int64_t n) { return (n + kPanel - 1) / kPanel; }

// A panel after the other, k rows of 16. `b` is [k, n], or [n, k] where transposed; it may be unaligned.
void pack_panel(const std::byte* b, const Product& p, std::int64_t panel, float* packed) {
  const std::int64_t first = panel * kPanel, count = std::min<std::int64_t>(kPanel, p.n - first);
  for (std::int64_t k = 0; k < p.k; ++k, packed += kPanel) {
    if (!p.transposed_b) {
      std::memcpy(packed, b + (k * p.n + first) * 4, static_cast<std::size_t>(count) * 4);
    } else {
      for (std::int64_t j = 0; j < count; ++j) {
        std::memcpy(packed + j, b + ((first + j) * p.k + k) * 4, 4);
      }
    }
    std::fill(packed + count, packed + kPanel, 0.0f);
  }
}

class MatMul final : public Kernel {
 public:
  MatMul(Product product, int threads)
      : p_(std::move(product)), threads_(threads), walk_(p_.batch, {p_.batch_a, p_.batch_b}) {
    panels_ = panels_of(p_.n);
    packed_floats_ = panels_ * p_.k * kPanel;
    if (p_.m * p_.n * p_.k * p_.items() < kWorthThreads) {
      threads_ = 1;
    }
    walk_.for_each_row([&](std::int64_t, const auto& offsets, std::int64_t length, const auto& steps) {
      for (std::int64_t i = 0; i < length; ++i) {
        items_.push_back({offsets[0] + i * steps[0], offsets[1] + i * steps[1]});
      }
    });
  }

  void set_weights(std::shared_ptr<const void> weights) { weights_ = std::move(weights); }
  void set_bias(std::vector<float> bias) { bias_ = std::move(bias); }

  std::size_t scratch_bytes() const override {
    const std::int64_t copies = weights_ != nullptr ? 0 : items_.size() > 1 ? threads_ : 1;
    const std::int64_t bias = p_.bias && bias_.empty() ? panels_ * kPanel : 0;
    return static_cast<std::size_t>(copies * packed_floats_ + bias) * sizeof(float);
  }

  bool may_overwrite(std::size_t input) const override { return p_.residual && input == p_.residual_input; }

  Status run(const KernelRun& run) override {
    Tile tile;
    tile.x_pixel = p_.k;
    tile.x_group = 8;
    tile.groups = p_.k / 8;
    tile.rest = p_.k % 8;
    tile.y_pixel = p_.n;
    tile.y_block = 8;
    tile.scale = p_.scale;
    tile.activation = p_.activation;
    auto* scratch = reinterpret_cast<float*>(run.scratch);
    const float* bias = bias_.empty() ? nullptr : bias_.data();
    if (p_.bias && bias == nullptr) {
      for (std::int64_t j = 0; j < panels_ * kPanel; ++j) {
        scratch[j] = j < p_.n ? p_.bias_scale * run.inputs[2].as<float>()[j] : 0.0f;
      }
      bias = scratch;
      scratch += panels_ * kPanel;
    }
    const auto operands = [&](std::size_t item) {
      Tile of = tile;
      const auto at = static_cast<std::int64_t>(item) * p_.m * p_.n;
      of.x = run.inputs[0].as<float>() + items_[item].a * p_.m * p_.k;
      of.y = run.outputs[0].out<float>() + at;
      of.residual = p_.residual ? run.inputs[p_.residual_input].as<float>() + at : nullptr;
      return of;
    };
    if (weights_ != nullptr || items_.size() == 1) {
      const auto* weights = static_cast<const float*>(weights_.get());
      if (weights == nullptr) {
        parallel_for(threads_, panels_, [&](std::int64_t panel, int) {
          pack_panel(reinterpret_cast<const std::byte*>(run.inputs[1].as<float>()), p_, panel,
                     scratch + panel * p_.k * kPanel);
        });
        weights = scratch;
      }
      shared(operands(0), weights, bias);
      return {};
    }
    parallel_for(threads_, static_cast<std::int64_t>(items_.size()), [&](std::int64_t item, int thread) {
      float* packed = scratch + thread * packed_floats_;
      const float* b = run.inputs[1].as<float>() + items_[static_cast<std::size_t>(item)].b * p_.k * p_.n;
      for (std::int64_t panel = 0; panel < panels_; ++panel) {
        pack_panel(reinterpret_cast<const std::byte*>(b), p_, panel, packed + panel * p_.k * kPanel);
      }
      multiply(operands(static_cast<std::size_t>(item)), packed, bias, 0, panels_, 0, p_.m);
    });
    return {};
  }

 private:
  struct Item {
    std::int64_t a, b;  // which matrix of each operand
  };

  // One B for all rows.
  void shared(const Tile& tile, const float* weights, const float* bias) const {
    const std::int64_t wanted = threads_ == 1 ? 1 : 4 * threads_;
    const std::int64_t pieces = std::min(panels_, std::max<std::int64_t>(wanted, panels_ / 4));
    const std::int64_t tiles = (p_.m + kMostPixels - 1) / kMostPixels;
    const std::int64_t fit = std::max<std::int64_t>(2, kSecondLevelFloats / p_.k / kMostPixels);
    const std::int64_t rows = std::max(std::min((wanted + pieces - 1) / pieces, tiles), (tiles + fit - 1) / fit);
    parallel_for(threads_, pieces * rows, [&](std::int64_t task, int) {
      const std::int64_t piece = task / rows, row = task % rows;
      multiply(tile, weights, bias, panels_ * piece / pieces, panels_ * (piece + 1) / pieces, p_.m * row / rows,
               p_.m * (row + 1) / rows);
    });
  }

  void multiply(Tile tile, const float* weights, const float* bias, std::int64_t panel, std::int64_t last,
                std::int64_t first_row, std::int64_t last_row) const {
    tile.x += first_row * p_.k;
    for (; panel < last; ++panel) {
      Tile part = tile;
      const std::int64_t at = first_row * p_.n + panel * kPanel;
      part.w = weights + panel * p_.k * kPanel;
      part.y += at;
      part.residual = part.residual == nullptr ? nullptr : part.residual + at;
      part.bias = bias == nullptr ? nullptr : bias + panel * kPanel;
      part.columns = std::min<std::int64_t>(kPanel, p_.n - panel * kPanel);
      part.next = part.w + p_.k * kPanel;
      part.next_floats = panel + 1 < panels_ ? p_.k * kPanel : 0;
      run_tiles(part, last_row - first_row);
    }
  }

  Product p_;
  int threads_;
  BroadcastWalk<2> walk_;
  std::vector<Item> items_;
  std::shared_ptr<const void> weights_;
  std::vector<float> bias_;
  std::int64_t panels_ = 0, packed_floats_ = 0;
};

// ---- From nodes ----

bool matmul_product(const KernelContext& context, Product& p) {
  const Dims &a = context.input(0).dims, &b = context.input(1).dims, &y = context.output(0).dims;
  const Node& node = context.node();
  if (a.size() < 2 || b.size() < 2 || node.get_int("transA", 0) != 0) {
    return false;
  }
  p.transposed_b = node.get_int("transB", 0) != 0;
  p.m = y[y.size() - 2];
  p.n = y.back();
  p.k = a.back();
  p.batch.assign(y.begin(), y.end() - 2);
  p.batch_a.assign(a.begin(), a.end() - 2);
  p.batch_b.assign(b.begin(), b.end() - 2);
  p.scale = node.get_float("scale", 1);
  p.bias = node.domain == kOwnDomain && context.has_input(2);
  p.residual = node.domain == kOwnDomain && context.has_input(3);
  p.activation = activation_of(node);
  if (element_count(p.batch_b) == 1 && p.batch_a == p.batch) {  // all rows of A meet one B
    p.m *= element_count(p.batch);
    p.batch = p.batch_a = p.batch_b = {};
  }
  return true;
}

bool gemm_product(const KernelContext& context, Product& p) {
  const Dims &a = context.input(0).dims, &y = context.output(0).dims;
  const Node& node = context.node();
  if (node.get_int("transA", 0) != 0) {
    return false;
  }
  p.transposed_b = node.get_int("transB", 0) != 0;
  p.m = y[0];
  p.n = y[1];
  p.k = a[1];
  p.scale = node.get_float("alpha", 1);
  p.bias_scale = node.get_float("beta", 1);
  if (context.has_input(2) && p.bias_scale != 0) {
    const Dims& c = context.input(2).dims;
    p.bias = c == Dims{p.n} || c == Dims{1, p.n};
    p.residual = !p.bias && c == y && p.bias_scale == 1;
    p.residual_input = 2;
    return p.bias || p.residual;
  }
  return true;
}

// A convolution whose input and output are one pixel: [N, IC] times the weights' transpose.
bool pixel_product(const KernelContext& context, Product& p) {
  const Dims &x = context.input(0).dims, &w = context.input(1).dims, &y = context.output(0).dims;
  const Node& node = context.node();
  if (x.size() != 4 || x[2] * x[3] != 1 || w[2] * w[3] != 1 || y[2] * y[3] != 1 || node.get_int("group", 1) != 1) {
    return false;
  }
  p.transposed_b = true;
  p.m = x[0];
  p.n = y[1];
  p.k = x[1];
  p.bias = context.has_input(2);
  p.residual = node.domain == kOwnDomain && context.has_input(3);
  p.activation = activation_of(node);
  return true;
}

Result<std::unique_ptr<Kernel>> make(KernelContext& context) {
  const Node& node = context.node();
  std::unique_ptr<Kernel> none;
  Product p;
  if (!has_avx2() || context.output(0).dtype != DType::kFloat || element_count(context.output(0).dims) == 0) {
    return none;
  }
  const bool convolution = node.op == "Conv" || node.op == "FusedConv";
  if (!(convolution         ? pixel_product(context, p)
        : node.op == "Gemm" ? gemm_product(context, p)
                            : matmul_product(context, p)) ||
      p.k == 0) {
    return none;
  }
  auto kernel = std::make_unique<MatMul>(p, context.threads());
  if (p.bias && context.constant(2) != nullptr) {
    std::vector<float> bias = padded_bias(context.constant(2), p.n);
    for (float& value : bias) {
      value *= p.bias_scale;
    }
    kernel->set_bias(std::move(bias));
    context.release_input(2);
  }
  const Tensor* weights = context.constant(1);
  if (weights != nullptr && p.items() == 1) {
    auto packed = context.packed_weights()->get(*weights, p.transposed_b ? "matmul:t16" : "matmul:16", [&] {
      auto memory = allocate_floats(static_cast<std::size_t>(panels_of(p.n) * p.k * kPanel));
      for (std::int64_t panel = 0; panel < panels_of(p.n) && memory.ok(); ++panel) {
        pack_panel(weights->data(), p, panel, memory->get() + panel * p.k * kPanel);
      }
      return memory.ok() ? Result<std::shared_ptr<const void>>(*memory) : memory.status();
    });
    if (!packed.ok()) {
      return packed.status();
    }
    kernel->set_weights(*packed);
    context.release_input(1);
  }
  return Result<std::unique_ptr<Kernel>>(std::move(kernel));
}

}  // namespace

void register_cpu_matmul(Kernels& kernels) {
  for (const char* op : {"MatMul", "Gemm", "Conv"}) {
    kernels.add("", op, "avx2", make);
  }
  kernels.add(kOwnDomain, "FusedMatMul", "avx2", make);
  kernels.add(kOwnDomain, "FusedConv", "avx2", make);
}

}  // namespace sluice::engine::cpu
