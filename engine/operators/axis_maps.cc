#include "operators/axis_maps.h"

#include <algorithm>
#include <array>

#include "operators/broadcast.h"
#include "operators/dispatch.h"

namespace sluice::engine {
namespace {

template <class T>
class AxisMapKernel final : public Kernel {
 public:
  AxisMapKernel(AxisMaps maps, const Dims& in, T fill, std::size_t fill_input)
      : maps_(std::move(maps)), fill_(fill), fill_input_(fill_input) {
    const Dims strides = strides_of(in);
    for (std::size_t d = 0; d < maps_.size(); ++d) {
      for (std::int64_t& index : maps_[d]) {
        index = index == kNowhere ? kNowhere : index * strides[d];
      }
      empty_ = empty_ || maps_[d].empty();
    }
    if (maps_.empty()) {
      maps_.push_back({0});
    }
  }

  Status run(const KernelRun& run) override {
    if (empty_) {
      return {};
    }
    const T* in = run.inputs[0].as<T>();
    T* out = run.outputs[0].out<T>();
    const bool filled = fill_input_ < run.inputs.size() && run.inputs[fill_input_].present();
    const T fill = filled ? *run.inputs[fill_input_].as<T>() : fill_;
    const std::vector<std::int64_t>& row = maps_.back();
    const std::size_t last = maps_.size() - 1;
    std::array<std::size_t, kMaxRank> index{};
    while (true) {
      std::int64_t start = 0;
      bool nowhere = false;
      for (std::size_t d = 0; d < last; ++d) {
        nowhere = nowhere || maps_[d][index[d]] == kNowhere;
        start += maps_[d][index[d]];
      }
      if (nowhere) {
        std::fill_n(out, row.size(), fill);
      } else {
        for (std::size_t i = 0; i < row.size(); ++i) {
          out[i] = row[i] == kNowhere ? fill : in[start + row[i]];
        }
      }
      out += row.size();
      std::size_t d = last;
      while (d > 0 && ++index[d - 1] == maps_[d - 1].size()) {
        index[--d] = 0;
      }
      if (d == 0) {
        return {};
      }
    }
  }

 private:
  AxisMaps maps_;  // in elements of the input, not in indices
  T fill_;
  std::size_t fill_input_;
  bool empty_ = false;
};

}  // namespace

Result<std::unique_ptr<Kernel>> axis_map_kernel(const KernelContext& context, AxisMaps maps, double fill,
                                                std::size_t fill_input) {
  return dispatch_numbers(context.output(0).dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const T value = static_cast<T>(static_cast<ComputeType<T>>(fill));
    return Result<std::unique_ptr<Kernel>>(
        std::make_unique<AxisMapKernel<T>>(std::move(maps), context.input(0).dims, value, fill_input));
  });
}

}  // namespace sluice::engine
