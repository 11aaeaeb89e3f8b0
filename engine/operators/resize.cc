// Resize and its forerunner Upsample: nearest, linear and cubic, for any number of dimensions, axis by axis.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <optional>

#include "operators/axis_maps.h"
#include "operators/dispatch.h"
#include "operators/registry.h"

namespace sluice::engine {
namespace {

enum class Mode : std::uint8_t { kNearest, kLinear, kCubic };

// The inputs of each version by name; absent ones are kNone.
constexpr std::size_t kNone = 99;
struct Slots {
  std::size_t roi = kNone, scales = kNone, sizes = kNone;
};

Slots slots_of(const Node& node) {
  if (node.op == "Upsample" || node.opset < 11) {
    return {kNone, node.op == "Upsample" && node.opset < 9 ? kNone : 1, kNone};
  }
  return {1, 2, 3};
}

// The version before 11 says nothing of coordinates; what other runtimes do is "asymmetric".
bool is_old(const Node& node) { return node.op == "Upsample" || node.opset < 11; }

std::string transformation_of(const Node& node) {
  return is_old(node) ? "asymmetric" : node.get_string("coordinate_transformation_mode", "half_pixel");
}

std::string nearest_mode_of(const Node& node) {
  return is_old(node) ? "simple" : node.get_string("nearest_mode", "round_prefer_floor");
}

Mode mode_of(const Node& node) {
  const std::string mode = node.get_string("mode", "nearest");
  return mode == "nearest" ? Mode::kNearest : mode == "cubic" ? Mode::kCubic : Mode::kLinear;
}

Status check_resize(const Node& node) {
  const auto check = [&](const char* name, const std::string& value, std::initializer_list<const char*> known) {
    for (const char* each : known) {
      if (value == each) {
        return Status();
      }
    }
    return refuse(node, std::string(name) + " '" + value.substr(0, 40) + "' is not supported",
                  "export the model with another one");
  };
  Status status = is_old(node) ? check("mode", node.get_string("mode", "nearest"), {"nearest", "linear", "bilinear"})
                               : check("mode", node.get_string("mode", "nearest"), {"nearest", "linear", "cubic"});
  if (status.ok() && !is_old(node)) {
    status = check("nearest_mode", nearest_mode_of(node), {"round_prefer_floor", "round_prefer_ceil", "floor", "ceil"});
  }
  if (status.ok() && !is_old(node)) {
    const std::string transformation = transformation_of(node);
    status = node.opset < 13 && transformation == "tf_half_pixel_for_nn"
                 ? Status()
                 : check("coordinate_transformation_mode", transformation,
                         {"half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric", "tf_crop_and_resize"});
  }
  return status;
}

// ---- what is asked for ----

struct Request {
  std::vector<float> scales;  // of each dimension
  Dims dims;                  // of the result
  std::vector<float> roi;     // starts, then ends; empty unless the transformation needs it
};

std::vector<float> float_values(const Tensor& tensor) {
  std::vector<float> values;
  for (std::int64_t i = 0; i < tensor.elements(); ++i) {
    values.push_back(static_cast<float>(tensor.as_double(i)));
  }
  return values;
}

// `constant`: Result<const Tensor*>(input), an error where it is not known. Empty inputs are absent ones.
template <class Constant>
Result<Request> request_of(const Node& node, const Dims& in, Constant&& constant) {
  const auto wrong = [&](const char* what) {
    return Status::error(Code::kInvalidArgument, "%s: %s", describe(node).c_str(), what);
  };
  const Slots slots = slots_of(node);
  const Tensor* inputs[3] = {};
  const std::size_t where[3] = {slots.roi, slots.scales, slots.sizes};
  const bool crops = transformation_of(node) == "tf_crop_and_resize";
  for (int i = crops ? 0 : 1; i < 3; ++i) {
    if (node.has_input(where[i])) {
      auto tensor = constant(where[i]);
      if (!tensor.ok()) {
        return tensor.status();
      }
      inputs[i] = (*tensor)->elements() > 0 ? *tensor : nullptr;
    }
  }
  Request request;
  request.scales = inputs[1] != nullptr ? float_values(*inputs[1]) : node.get_floats("scales");
  const std::size_t rank = in.size();
  if (request.scales.empty() == (inputs[2] == nullptr) && rank > 0) {
    return wrong("it needs either scales or sizes");
  }
  if (inputs[2] != nullptr) {
    request.dims = int_values(*inputs[2]);
  }
  if (request.dims.size() + request.scales.size() != rank) {
    return wrong("it needs a scale or a size for each dimension");
  }
  for (std::size_t d = 0; d < rank; ++d) {
    if (inputs[2] != nullptr) {
      if (request.dims[d] < 0 || (in[d] == 0) != (request.dims[d] == 0)) {
        return wrong("a size is negative, or is one of nothing");
      }
      request.scales.push_back(in[d] == 0 ? 1.0f : static_cast<float>(request.dims[d]) / static_cast<float>(in[d]));
    } else {
      const float size = request.scales[d] * static_cast<float>(in[d]);
      if (!(request.scales[d] > 0) || !(size < 0x1p40f)) {
        return wrong("a scale is not above 0, or is too large");
      }
      request.dims.push_back(static_cast<std::int64_t>(size));
    }
  }
  if (crops) {
    if (inputs[0] == nullptr || inputs[0]->elements() != 2 * static_cast<std::int64_t>(rank)) {
      return wrong("tf_crop_and_resize needs a roi with a start and an end for each dimension");
    }
    request.roi = float_values(*inputs[0]);
  }
  return request;
}

Status infer_resize(ShapeContext& context) {
  auto request = request_of(context.node(), context.dims(0), [&](std::size_t i) -> Result<const Tensor*> {
    const Tensor* tensor = context.constant(i);
    return tensor != nullptr ? Result<const Tensor*>(tensor) : context.ints(i).status();
  });
  if (!request.ok()) {
    return request.status();
  }
  if (mode_of(context.node()) != Mode::kNearest && !is_floating(context.dtype(0))) {
    return refuse(context.node(), std::string("it interpolates ") + dtype_name(context.dtype(0)),
                  "cast to float before it");
  }
  return context.set(0, request->dims);
}

// ---- coordinates ----

// One axis: which elements of the input each element of the result is made from, and how much of each.
struct Axis {
  std::size_t taps = 1;
  std::vector<std::int64_t> index;  // [out, taps]
  std::vector<float> weight;        // [out, taps]
  std::vector<bool> outside;        // [out]: takes the extrapolation value
  std::int64_t in = 0, out = 0;
  bool identity = false;
};

// Coordinates are computed in float, as exporters' own runtimes do: rounding decides which neighbour is the nearest.
float source_of(const std::string& transformation, std::int64_t at, float scale, std::int64_t in, std::int64_t out,
                float start, float end) {
  const auto x = static_cast<float>(at), width = static_cast<float>(in);
  const float wide = scale * width;  // not rounded: as the reference implementation of opset 11 and 13 has it
  if (transformation == "asymmetric") {
    return x / scale;
  }
  if (transformation == "align_corners") {
    return out == 1 ? 0.0f : x * (width - 1) / (wide - 1);
  }
  if (transformation == "pytorch_half_pixel") {
    return out == 1 ? -0.5f : (x + 0.5f) / scale - 0.5f;
  }
  if (transformation == "tf_half_pixel_for_nn") {
    return (x + 0.5f) / scale;
  }
  if (transformation == "tf_crop_and_resize") {
    return out == 1 ? 0.5f * (start + end) * (width - 1)
                    : start * (width - 1) + x * (end - start) * (width - 1) / (wide - 1);
  }
  return (x + 0.5f) / scale - 0.5f;
}

float nearest_of(const std::string& mode, float x, float scale) {
  if (mode == "simple") {  // before opset 11
    return scale < 1 ? std::ceil(x) : std::floor(x);
  }
  return mode == "floor"               ? std::floor(x)
         : mode == "ceil"              ? std::ceil(x)
         : mode == "round_prefer_ceil" ? std::floor(x + 0.5f)
                                       : std::ceil(x - 0.5f);
}

// https://ieeexplore.ieee.org/document/1163711, with coefficient `a`; `t` is the distance from the second neighbour.
std::array<float, 4> cubic_weights(float t, float a) {
  return {((a * (t + 1) - 5 * a) * (t + 1) + 8 * a) * (t + 1) - 4 * a, ((a + 2) * t - (a + 3)) * t * t + 1,
          ((a + 2) * (1 - t) - (a + 3)) * (1 - t) * (1 - t) + 1,
          ((a * (2 - t) - 5 * a) * (2 - t) + 8 * a) * (2 - t) - 4 * a};
}

Axis axis_of(const Node& node, const Request& request, std::size_t d, std::int64_t in) {
  const Mode mode = mode_of(node);
  const std::string transformation = transformation_of(node), nearest_mode = nearest_mode_of(node);
  const bool crops = transformation == "tf_crop_and_resize";
  const bool exclude = node.get_int("exclude_outside", 0) != 0;
  const std::size_t rank = request.dims.size();
  const float scale = request.scales[d];
  const float start = crops ? request.roi[d] : 0.0f, end = crops ? request.roi[rank + d] : 0.0f;
  Axis axis;
  axis.in = in;
  axis.out = request.dims[d];
  axis.taps = mode == Mode::kNearest ? 1 : mode == Mode::kLinear ? 2 : 4;
  const auto clamp = [&](float x) {
    return static_cast<std::int64_t>(std::clamp(x, 0.0f, static_cast<float>(std::max(in - 1, std::int64_t{0}))));
  };
  axis.identity = true;
  for (std::int64_t i = 0; i < axis.out; ++i) {
    const float x = source_of(transformation, i, scale, in, axis.out, start, end);
    axis.outside.push_back(crops && !(x >= 0 && x <= static_cast<float>(in - 1)));
    const float floor = std::floor(x), t = x - floor;
    if (mode == Mode::kNearest) {
      axis.index.push_back(clamp(nearest_of(nearest_mode, x, scale)));
      axis.weight.push_back(1);
    } else if (mode == Mode::kLinear) {
      axis.index.insert(axis.index.end(), {clamp(floor), clamp(floor + 1)});
      axis.weight.insert(axis.weight.end(), {1 - t, t});
    } else {
      std::array<float, 4> weights = cubic_weights(t, node.get_float("cubic_coeff_a", -0.75f));
      float sum = 0;
      for (std::size_t k = 0; k < 4; ++k) {
        const float at = floor - 1 + static_cast<float>(k);
        axis.index.push_back(clamp(at));
        weights[k] = exclude && (at < 0 || at >= static_cast<float>(in)) ? 0.0f : weights[k];
        sum += weights[k];
      }
      for (const float weight : weights) {
        axis.weight.push_back(exclude ? weight / sum : weight);
      }
    }
    axis.identity = axis.identity && in == axis.out && x == static_cast<float>(i);
  }
  return axis;
}

// ---- kernels ----

// Interpolates one axis after the other, the innermost first, in buffers of the type that is calculated in.
template <class T>
class Interpolate final : public Kernel {
  using C = ComputeType<T>;

 public:
  Interpolate(std::vector<Axis> axes, const Dims& in, float extrapolation)
      : axes_(std::move(axes)), in_count_(element_count(in)), extrapolation_(extrapolation) {
    std::int64_t count = in_count_, inner = 1;
    largest_ = count;
    for (std::size_t d = axes_.size(); d-- > 0;) {
      if (!axes_[d].identity) {
        const std::int64_t outer = count == 0 ? 0 : count / (axes_[d].in * inner);
        passes_.push_back({d, outer, inner});
        count = outer * axes_[d].out * inner;
        largest_ = std::max(largest_, count);
      }
      inner *= axes_[d].out;
    }
    out_count_ = count;
    for (const Axis& axis : axes_) {
      extrapolates_ = extrapolates_ || std::count(axis.outside.begin(), axis.outside.end(), true) > 0;
    }
  }

  std::size_t scratch_bytes() const override { return static_cast<std::size_t>(largest_) * 2 * sizeof(C); }

  Status run(const KernelRun& run) override {
    if (out_count_ == 0) {
      return {};
    }
    C* from = reinterpret_cast<C*>(run.scratch);
    C* to = from + largest_;
    std::copy_n(run.inputs[0].as<T>(), in_count_, from);
    for (const Pass& pass : passes_) {
      interpolate(axes_[pass.axis], pass, from, to);
      std::swap(from, to);
    }
    T* out = run.outputs[0].out<T>();
    for (std::int64_t i = 0; i < out_count_; ++i) {
      out[i] = static_cast<T>(from[i]);
    }
    if (extrapolates_) {
      extrapolate(out);
    }
    return {};
  }

 private:
  struct Pass {
    std::size_t axis = 0;
    std::int64_t outer = 0, inner = 0;
  };

  static void interpolate(const Axis& axis, const Pass& pass, const C* in, C* out) {
    for (std::int64_t o = 0; o < pass.outer; ++o, in += axis.in * pass.inner) {
      for (std::int64_t x = 0; x < axis.out; ++x, out += pass.inner) {
        const auto first = static_cast<std::size_t>(x) * axis.taps;
        for (std::size_t k = 0; k < axis.taps; ++k) {
          const C* row = in + axis.index[first + k] * pass.inner;
          const C weight = axis.weight[first + k];
          for (std::int64_t i = 0; i < pass.inner; ++i) {
            out[i] = (k == 0 ? C{0} : out[i]) + weight * row[i];
          }
        }
      }
    }
  }

  void extrapolate(T* out) const {
    std::array<std::int64_t, kMaxRank> index{};
    for (std::int64_t i = 0; i < out_count_; ++i) {
      bool outside = false;
      for (std::size_t d = 0; d < axes_.size(); ++d) {
        outside = outside || axes_[d].outside[static_cast<std::size_t>(index[d])];
      }
      out[i] = outside ? static_cast<T>(static_cast<C>(extrapolation_)) : out[i];
      for (std::size_t d = axes_.size(); d-- > 0 && ++index[d] == axes_[d].out;) {
        index[d] = 0;
      }
    }
  }

  std::vector<Axis> axes_;
  std::vector<Pass> passes_;
  std::int64_t in_count_, out_count_ = 0, largest_ = 0;
  float extrapolation_;
  bool extrapolates_ = false;
};

Result<std::unique_ptr<Kernel>> resize_kernel(KernelContext& context) {
  const Node& node = context.node();
  const Dims& in = context.input(0).dims;
  auto request = request_of(node, in, [&](std::size_t i) { return Result<const Tensor*>(context.constant(i)); });
  if (!request.ok()) {
    return request.status();
  }
  std::vector<Axis> axes;
  for (std::size_t d = 0; d < in.size(); ++d) {
    axes.push_back(axis_of(node, *request, d, in[d]));
  }
  const float extrapolation = node.get_float("extrapolation_value", 0.0f);
  if (mode_of(node) == Mode::kNearest) {
    AxisMaps maps;
    for (Axis& axis : axes) {
      for (std::size_t i = 0; i < axis.index.size(); ++i) {
        axis.index[i] = axis.outside[i] ? kNowhere : axis.index[i];
      }
      maps.push_back(std::move(axis.index));
    }
    return axis_map_kernel(context, std::move(maps), extrapolation, kNone);
  }
  return dispatch_floats(context.input(0).dtype, [&](auto tag) {
    return Result<std::unique_ptr<Kernel>>(
        std::make_unique<Interpolate<typename decltype(tag)::type>>(std::move(axes), in, extrapolation));
  });
}

constexpr const char* kAttributes =
    "coordinate_transformation_mode:string, cubic_coeff_a:float, exclude_outside:int, extrapolation_value:float, "
    "mode:string, nearest_mode:string";

}  // namespace

void register_resize(Registry& registry) {
  registry.add({.op = "Upsample",
                .last = 8,
                .inputs = "X:T",
                .outputs = "Y:T",
                .attributes = "mode:string, scales:floats!",
                .types = {{"T", kAllTypes}},
                .infer = infer_resize,
                .kernel = resize_kernel,
                .check = check_resize});
  const auto with_scales = [&](const char* op, int opset) {
    registry.add({.op = op,
                  .first = opset,
                  .last = opset,
                  .inputs = "X:T, scales:F",
                  .outputs = "Y:T",
                  .attributes = "mode:string",
                  .types = {{"T", kAllTypes}, {"F", kFloat32}},
                  .shape_inputs = {1},
                  .infer = infer_resize,
                  .kernel = resize_kernel,
                  .check = check_resize});
  };
  with_scales("Upsample", 9);
  with_scales("Resize", 10);
  registry.add({.op = "Resize",
                .first = 11,
                .inputs = "X:T, roi:R?, scales:F?, sizes:I?",
                .outputs = "Y:T",
                .attributes = kAttributes,
                .types = {{"T", kAllTypes}, {"R", kFloats}, {"F", kFloat32}, {"I", kInt64s}},
                .shape_inputs = {1, 2, 3},
                .infer = infer_resize,
                .kernel = resize_kernel,
                .check = check_resize});
}

}  // namespace sluice::engine
