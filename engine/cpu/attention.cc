// FusedAttention: a head of an image or a sentence is a task; its keys and values are packed as panels, and a few rows
// of scores at a time stay in the first-level cache from the first product over softmax to the second.
#include <algorithm>
#include <cstring>

#include "cpu/avx2.h"
#include "cpu/kernels.h"
#include "cpu/parallel.h"
#include "cpu/tile.h"
#include "cpu/vector_rows.h"
#include "operators/broadcast.h"

namespace sluice::engine::cpu {
namespace {

class Attention final : public Kernel {
 public:
  explicit Attention(const KernelContext& context)
      : q_(context.input(0).dims),
        k_(context.input(1).dims),
        v_(context.input(2).dims),
        heads_(context.node().get_int("heads", 1)),
        size_(context.node().get_int("head_size", 1)),
        scale_(context.node().get_float("scale", 1)),
        offsets_(context.node().get_ints("offsets", {0, 0, 0})),
        threads_(context.threads()),
        masked_(context.has_input(3)) {
    if (masked_) {
      const Dims& mask = context.input(3).dims;
      const Dims own = strides_of(mask);
      for (std::size_t d = 0; d < mask.size(); ++d) {
        mask_strides_[4 - mask.size() + d] = mask[d] == 1 ? 0 : own[d];
      }
    }
    keys_ = padded(k_[1]) * size_;
    values_ = k_[1] * padded(size_);
    scores_ = kMostPixels * padded(k_[1]);
  }

  std::size_t scratch_bytes() const override {
    return static_cast<std::size_t>(threads_ * (keys_ + values_ + scores_)) * sizeof(float);
  }

  Status run(const KernelRun& run) override {
    parallel_for(threads_, q_[0] * heads_, [&](std::int64_t task, int thread) {
      float* keys = reinterpret_cast<float*>(run.scratch) + thread * (keys_ + values_ + scores_);
      head(run, task / heads_, task % heads_, keys, keys + keys_, keys + keys_ + values_);
    });
    return {};
  }

 private:
  static std::int64_t padded(std::int64_t count) { return (count + kPanel - 1) / kPanel * kPanel; }

  // Panels of 16 keys, so that scores are Q times their transpose.
  void pack_keys(const float* k, float* packed) const {
    for (std::int64_t first = 0; first < k_[1]; first += kPanel) {
      const std::int64_t count = std::min<std::int64_t>(kPanel, k_[1] - first);
      for (std::int64_t c = 0; c < size_; ++c, packed += kPanel) {
        for (std::int64_t j = 0; j < count; ++j) {
          packed[j] = k[(first + j) * k_[2] + c];
        }
        std::fill(packed + count, packed + kPanel, 0.0f);
      }
    }
  }

  void pack_values(const float* v, float* packed) const {
    for (std::int64_t first = 0; first < size_; first += kPanel) {
      const std::int64_t count = std::min<std::int64_t>(kPanel, size_ - first);
      for (std::int64_t t = 0; t < k_[1]; ++t, packed += kPanel) {
        std::memcpy(packed, v + t * v_[2] + first, static_cast<std::size_t>(count) * sizeof(float));
        std::fill(packed + count, packed + kPanel, 0.0f);
      }
    }
  }

  void head(const KernelRun& run, std::int64_t image, std::int64_t h, float* keys, float* values, float* scores) const {
    const std::int64_t sources = k_[1], stride = padded(sources);
    pack_keys(run.inputs[1].as<float>() + image * sources * k_[2] + offsets_[1] + h * size_, keys);
    pack_values(run.inputs[2].as<float>() + image * sources * v_[2] + offsets_[2] + h * size_, values);
    const float* q = run.inputs[0].as<float>() + image * q_[1] * q_[2] + offsets_[0] + h * size_;
    float* y = run.outputs[0].out<float>() + image * q_[1] * heads_ * size_ + h * size_;
    for (std::int64_t s = 0; s < q_[1]; s += kMostPixels) {
      const int rows = static_cast<int>(std::min<std::int64_t>(kMostPixels, q_[1] - s));
      Tile tile;
      tile.x = q + s * q_[2];
      tile.x_pixel = q_[2];
      tile.x_group = 8;
      tile.groups = size_ / 8;
      tile.rest = size_ % 8;
      tile.y_pixel = stride;
      tile.y_block = 8;
      tile.scale = scale_;
      for (std::int64_t first = 0; first < sources; first += kPanel) {
        tile.w = keys + first * size_;
        tile.y = scores + first;
        run_tile(tile, rows);
      }
      for (int r = 0; r < rows; ++r) {
        float* row = scores + r * stride;
        if (masked_) {
          const float* mask =
              run.inputs[3].as<float>() + image * mask_strides_[0] + h * mask_strides_[1] + (s + r) * mask_strides_[2];
          for (std::int64_t t = 0; t < sources; ++t) {
            row[t] += mask[t * mask_strides_[3]];
          }
        }
        softmax_row(row, sources, row);
      }
      Tile out;
      out.x = scores;
      out.x_pixel = stride;
      out.x_group = 8;
      out.groups = sources / 8;
      out.rest = sources % 8;
      out.y_pixel = heads_ * size_;
      out.y_block = 8;
      for (std::int64_t first = 0; first < size_; first += kPanel) {
        out.w = values + first * sources;
        out.y = y + s * heads_ * size_ + first;
        out.columns = std::min<std::int64_t>(kPanel, size_ - first);
        run_tile(out, rows);
      }
    }
  }

  const Dims q_, k_, v_;
  const std::int64_t heads_, size_;
  const float scale_;
  const std::vector<std::int64_t> offsets_;
  const int threads_;
  const bool masked_;
  Dims mask_strides_ = Dims(4, 0);
  std::int64_t keys_ = 0, values_ = 0, scores_ = 0;  // floats of each in a thread's scratch
};

Result<std::unique_ptr<Kernel>> make(KernelContext& context) {
  const bool takes = has_avx2() && context.output(0).dtype == DType::kFloat &&
                     element_count(context.output(0).dims) > 0 && context.input(1).dims[1] > 0;
  return takes ? Result<std::unique_ptr<Kernel>>(std::make_unique<Attention>(context)) : std::unique_ptr<Kernel>();
}

}  // namespace

void register_cpu_attention(Kernels& kernels) { kernels.add(kOwnDomain, "FusedAttention", "avx2", make); }

}  // namespace sluice::engine::cpu
