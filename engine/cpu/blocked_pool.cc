// Pools, nearest resizing and reordering of blocked tensors.
#include <algorithm>
#include <cstring>

#include "cpu/kernels.h"
#include "cpu/parallel.h"
#include "cpu/simd.h"
#include "cpu/transpose_eight.h"
#include "operators/lambda_kernel.h"

SLUICE_AVX2_BEGIN
namespace sluice::engine::cpu {
namespace {

// [pixels][8] to [8][pixels].
void from_block(const float* x, std::int64_t pixels, float* y) {
  std::int64_t p = 0;
  for (; p + kLanes <= pixels; p += kLanes) {
    Vec r[8];
    for (int i = 0; i < 8; ++i) {
      r[i] = load(x + (p + i) * kLanes);
    }
    transpose_eight(r);
    for (int c = 0; c < 8; ++c) {
      store(y + c * pixels + p, r[c]);
    }
  }
  for (; p < pixels; ++p) {
    for (std::int64_t c = 0; c < kLanes; ++c) {
      y[c * pixels + p] = x[p * kLanes + c];
    }
  }
}

// [8][pixels] to [pixels][8].
void to_block(const float* x, std::int64_t pixels, float* y) {
  const std::int64_t whole = pixels / kLanes * kLanes;
  for (std::int64_t p = 0; p < whole; p += kLanes) {
    Vec r[8];
    for (int c = 0; c < 8; ++c) {
      r[c] = load(x + c * pixels + p);
    }
    transpose_eight(r);
    for (int i = 0; i < 8; ++i) {
      store(y + (p + i) * kLanes, r[i]);
    }
  }
  for (std::int64_t p = whole; p < pixels; ++p) {
    for (std::int64_t c = 0; c < kLanes; ++c) {
      y[p * kLanes + c] = x[c * pixels + p];
    }
  }
}

struct PoolShape {
  std::int64_t h, w, oh, ow, kh, kw, stride_h, stride_w, top, left, bottom, right;
  bool max, count_pad;
};

void pool_plane(const PoolShape& s, const float* x, float* y) {
  for (std::int64_t oh = 0; oh < s.oh; ++oh) {
    const std::int64_t ih = oh * s.stride_h - s.top;
    const std::int64_t h0 = std::max<std::int64_t>(ih, 0), h1 = std::min(ih + s.kh, s.h);
    for (std::int64_t ow = 0; ow < s.ow; ++ow, y += kLanes) {
      const std::int64_t iw = ow * s.stride_w - s.left;
      const std::int64_t w0 = std::max<std::int64_t>(iw, 0), w1 = std::min(iw + s.kw, s.w);
      Vec value = s.max ? vec(-__builtin_inff()) : _mm256_setzero_ps();
      for (std::int64_t h = h0; h < h1; ++h) {
        const float* row = x + h * s.w * kLanes;
        for (std::int64_t w = w0; w < w1; ++w) {
          const Vec next = load(row + w * kLanes);
          value = s.max ? _mm256_max_ps(next, value) : _mm256_add_ps(value, next);
        }
      }
      if (!s.max) {
        // Padding counts as far as it was asked for; what rounding up adds beyond it never does.
        const std::int64_t all = (std::min(ih + s.kh, s.h + s.bottom) - ih) * (std::min(iw + s.kw, s.w + s.right) - iw);
        const std::int64_t count = s.count_pad ? all : (h1 - h0) * (w1 - w0);
        value = _mm256_div_ps(value, vec(static_cast<float>(count)));
      }
      store(y, value);
    }
  }
}

void average_plane(const float* x, std::int64_t pixels, float* y) {
  Vec sum[4] = {_mm256_setzero_ps(), _mm256_setzero_ps(), _mm256_setzero_ps(), _mm256_setzero_ps()};
  std::int64_t p = 0;
  for (; p + 4 <= pixels; p += 4) {
    for (int i = 0; i < 4; ++i) {
      sum[i] = _mm256_add_ps(sum[i], load(x + (p + i) * kLanes));
    }
  }
  for (; p < pixels; ++p) {
    sum[0] = _mm256_add_ps(sum[0], load(x + p * kLanes));
  }
  const Vec all = _mm256_add_ps(_mm256_add_ps(sum[0], sum[1]), _mm256_add_ps(sum[2], sum[3]));
  store(y, _mm256_div_ps(all, vec(static_cast<float>(pixels))));
}

void resize_plane(const float* x, std::int64_t h, std::int64_t w, std::int64_t fh, std::int64_t fw, float* y) {
  for (std::int64_t r = 0; r < h; ++r, x += w * kLanes) {
    float* first = y;
    for (std::int64_t c = 0; c < w; ++c) {
      const Vec pixel = load(x + c * kLanes);
      for (std::int64_t f = 0; f < fw; ++f, y += kLanes) {
        store(y, pixel);
      }
    }
    for (std::int64_t f = 1; f < fh; ++f, y += w * fw * kLanes) {
      std::memcpy(y, first, static_cast<std::size_t>(w * fw) * 32);
    }
  }
}

}  // namespace
}  // namespace sluice::engine::cpu
SLUICE_AVX2_END

namespace sluice::engine::cpu {
namespace {

constexpr std::int64_t kWorthThreads = 8192;

// f(x, y) for each block of channels.
template <class F>
Result<std::unique_ptr<Kernel>> plane_kernel(std::int64_t planes, std::int64_t x_floats, std::int64_t y_floats,
                                             int threads, F f) {
  const std::int64_t grain = std::max<std::int64_t>(1, kWorthThreads / std::max<std::int64_t>(1, x_floats));
  return make_kernel([=](const KernelRun& run) {
    const float* x = run.inputs[0].as<float>();
    float* y = run.outputs[0].out<float>();
    parallel_ranges(threads, planes, grain, [&](std::int64_t first, std::int64_t last) {
      for (std::int64_t p = first; p < last; ++p) {
        f(x + p * x_floats, y + p * y_floats);
      }
    });
  });
}

Result<std::unique_ptr<Kernel>> make_block(KernelContext& context) {
  const Dims& y = context.output(0).dims;
  const std::int64_t pixels = y[2] * y[3];
  return plane_kernel(y[0] * y[1], pixels * 8, pixels * 8, context.threads(),
                      [pixels](const float* in, float* out) { to_block(in, pixels, out); });
}

Result<std::unique_ptr<Kernel>> make_unblock(KernelContext& context) {
  const Dims& x = context.input(0).dims;
  const std::int64_t pixels = x[2] * x[3];
  return plane_kernel(x[0] * x[1], pixels * 8, pixels * 8, context.threads(),
                      [pixels](const float* in, float* out) { from_block(in, pixels, out); });
}

Result<std::unique_ptr<Kernel>> make_pool(KernelContext& context) {
  const Node& node = context.node();
  const Dims &x = context.input(0).dims, &y = context.output(0).dims;
  const auto kernel = node.get_ints("kernel"), strides = node.get_ints("strides"), pads = node.get_ints("pads");
  const PoolShape shape{x[2],
                        x[3],
                        y[2],
                        y[3],
                        kernel[0],
                        kernel[1],
                        strides[0],
                        strides[1],
                        pads[0],
                        pads[1],
                        pads[2],
                        pads[3],
                        node.get_string("kind", "") == "max",
                        node.get_int("count_include_pad", 0) != 0};
  return plane_kernel(x[0] * x[1], x[2] * x[3] * 8, y[2] * y[3] * 8, context.threads(),
                      [shape](const float* in, float* out) { pool_plane(shape, in, out); });
}

Result<std::unique_ptr<Kernel>> make_average(KernelContext& context) {
  const Dims& x = context.input(0).dims;
  const std::int64_t pixels = x[2] * x[3];
  return plane_kernel(x[0] * x[1], pixels * 8, 8, context.threads(),
                      [pixels](const float* in, float* out) { average_plane(in, pixels, out); });
}

Result<std::unique_ptr<Kernel>> make_resize(KernelContext& context) {
  const Dims &x = context.input(0).dims, &y = context.output(0).dims;
  const std::int64_t h = x[2], w = x[3], fh = y[2] / h, fw = y[3] / w;
  return plane_kernel(x[0] * x[1], h * w * 8, h * w * fh * fw * 8, context.threads(),
                      [=](const float* in, float* out) { resize_plane(in, h, w, fh, fw, out); });
}

}  // namespace

void register_cpu_blocked_pool(Kernels& kernels) {
  kernels.add(kOwnDomain, "Block", "avx2", make_block);
  kernels.add(kOwnDomain, "Unblock", "avx2", make_unblock);
  kernels.add(kOwnDomain, "BlockedPool", "avx2", make_pool);
  kernels.add(kOwnDomain, "BlockedGlobalAverage", "avx2", make_average);
  kernels.add(kOwnDomain, "BlockedResize", "avx2", make_resize);
}

}  // namespace sluice::engine::cpu
