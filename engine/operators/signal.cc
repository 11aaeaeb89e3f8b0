// Windows, Fourier transforms and mel filters. Transforms are sums over all elements, in double.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "operators/dispatch.h"
#include "operators/lambda_kernel.h"
#include "operators/registry.h"

namespace sluice::engine {
namespace {

constexpr std::int64_t kLongest = std::int64_t{1} << 32;  // of a window or transform

DType output_datatype(const Node& node, DType) {
  const std::int64_t dtype = node.get_int("output_datatype", static_cast<std::int64_t>(DType::kFloat));
  return dtype > 0 && dtype <= 16 ? static_cast<DType>(dtype) : DType::kUndefined;
}

// One number of an input that decides shapes. Errors: also where it is not in [least, kLongest].
Result<std::int64_t> length_of(const ShapeContext& context, std::size_t input, std::int64_t least) {
  auto values = context.ints(input);
  if (!values.ok()) {
    return values.status();
  }
  if (values->size() != 1 || values->front() < least || values->front() > kLongest) {
    return context.error(Code::kInvalidArgument, "input %zu is %s", input, to_string(*values).c_str());
  }
  return values->front();
}

// Doubles as elements of a type.
using Store = void (*)(const std::vector<double>& values, void* data);

Store store_for(DType dtype) {
  return dispatch_numbers(dtype, [](auto tag) -> Store {
    using T = typename decltype(tag)::type;
    return [](const std::vector<double>& values, void* data) {
      std::transform(values.begin(), values.end(), static_cast<T*>(data), [](double x) {
        if constexpr (kIsFloating<T>) {
          return static_cast<T>(static_cast<ComputeType<T>>(x));
        } else {
          constexpr T kMost = std::numeric_limits<T>::max() / 2;
          return static_cast<T>(
              std::clamp(x, static_cast<double>(std::numeric_limits<T>::lowest()), static_cast<double>(kMost)));
        }
      });
    };
  });
}

Result<std::unique_ptr<Kernel>> values_kernel(DType dtype, std::vector<double> values) {
  return make_kernel([values = std::move(values), store = store_for(dtype)](const KernelRun& run) {
    store(values, run.outputs[0].data);
  });
}

// ---- windows: a0 - a1 cos(2 pi i / n) + a2 cos(4 pi i / n) ----

Status infer_window(ShapeContext& context) {
  auto size = length_of(context, 0, 0);
  return size.ok() ? context.set(0, {*size}) : size.status();
}

Result<std::unique_ptr<Kernel>> window_kernel(KernelContext& context) {
  const std::string& op = context.node().op;
  const double a0 = op == "BlackmanWindow" ? 0.42 : op == "HammingWindow" ? 25.0 / 46.0 : 0.5;
  const double a2 = op == "BlackmanWindow" ? 0.08 : 0.0;
  const double a1 = op == "BlackmanWindow" ? 0.5 : 1 - a0;
  const std::int64_t size = context.output(0).dims[0];
  const bool periodic = context.node().get_int("periodic", 1) != 0;
  const double n = static_cast<double>(periodic || size == 1 ? size : size - 1);
  std::vector<double> values;
  for (std::int64_t i = 0; i < size; ++i) {
    const double angle = 2 * std::numbers::pi * static_cast<double>(i) / n;
    values.push_back(a0 - a1 * std::cos(angle) + a2 * std::cos(2 * angle));
  }
  return values_kernel(context.output(0).dtype, std::move(values));
}

// ---- DFT and STFT ----

// X[k] = sum of x[i] exp(-2 pi j i k / n), with x padded with zeros or cut to n elements.
class Transform {
 public:
  Transform(std::int64_t length, bool inverse) : length_(length), scale_(inverse ? 1.0 / double(length) : 1.0) {
    for (std::int64_t i = 0; i < length; ++i) {
      const double angle = 2 * std::numbers::pi * static_cast<double>(i) / static_cast<double>(length);
      cosine_.push_back(std::cos(angle));
      sine_.push_back(inverse ? std::sin(angle) : -std::sin(angle));
    }
  }

  // `step`: elements between neighbours, of which each has `parts` numbers: 1 for real ones, 2 for complex ones.
  // `window`: nullptr, or a factor for each.
  template <class T>
  void run(const T* in, std::int64_t count, std::int64_t step, std::int64_t parts, const T* window, T* out,
           std::int64_t bins, std::int64_t out_step) const {
    for (std::int64_t k = 0; k < bins; ++k) {
      double real = 0, imaginary = 0;
      std::int64_t turn = 0;  // i k mod n
      for (std::int64_t i = 0; i < std::min(count, length_); ++i, turn = (turn + k) % length_) {
        const double factor = window == nullptr ? 1.0 : static_cast<double>(static_cast<ComputeType<T>>(window[i]));
        const double a = factor * static_cast<double>(static_cast<ComputeType<T>>(in[i * step]));
        const double b = parts == 2 ? factor * static_cast<double>(static_cast<ComputeType<T>>(in[i * step + 1])) : 0;
        const double c = cosine_[static_cast<std::size_t>(turn)], s = sine_[static_cast<std::size_t>(turn)];
        real += a * c - b * s;
        imaginary += a * s + b * c;
      }
      out[k * out_step] = static_cast<T>(static_cast<ComputeType<T>>(real * scale_));
      out[k * out_step + 1] = static_cast<T>(static_cast<ComputeType<T>>(imaginary * scale_));
    }
  }

 private:
  std::int64_t length_;
  double scale_;
  std::vector<double> cosine_, sine_;
};

Status check_dft(const Node& node) {
  return node.get_int("inverse", 0) != 0 && node.get_int("onesided", 0) != 0
             ? refuse(node, "inverse and onesided together", "export the model with one of them")
             : Status();
}

Status infer_dft(ShapeContext& context) {
  const Dims& in = context.dims(0);
  auto axis = context.axis(context.node().get_int("axis", 1), context.rank(0));
  if (!axis.ok()) {
    return axis.status();
  }
  if (in.size() < 3 || *axis == 0 || *axis == context.rank(0) - 1 || (in.back() != 1 && in.back() != 2)) {
    return context.error(Code::kInvalidArgument, "it takes [N, ..., 1 or 2] and an axis between, not %s",
                         to_string(in).c_str());
  }
  Dims dims = in;
  std::int64_t& length = dims[static_cast<std::size_t>(*axis)];
  if (context.has_input(1)) {
    auto given = length_of(context, 1, 1);
    if (!given.ok()) {
      return given.status();
    }
    length = *given;
  }
  if (length == 0) {
    return context.error(Code::kInvalidArgument, "it transforms no elements");
  }
  length = context.node().get_int("onesided", 0) != 0 ? length / 2 + 1 : length;
  dims.back() = 2;
  return context.set(0, std::move(dims));
}

Result<std::unique_ptr<Kernel>> dft_kernel(KernelContext& context) {
  const Dims &in = context.input(0).dims, &out = context.output(0).dims;
  std::int64_t axis = context.node().get_int("axis", 1);
  axis += axis < 0 ? static_cast<std::int64_t>(in.size()) : 0;
  const std::int64_t count = in[static_cast<std::size_t>(axis)], bins = out[static_cast<std::size_t>(axis)];
  const std::int64_t outer = element_count(Dims(in.begin(), in.begin() + axis));
  const std::int64_t inner = element_count(Dims(in.begin() + axis + 1, in.end() - 1)), parts = in.back();
  const std::int64_t length = context.has_input(1) ? context.constant(1)->as_int(0) : count;
  const Transform transform(length, context.node().get_int("inverse", 0) != 0);
  return dispatch_floats(context.input(0).dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    return make_kernel([=](const KernelRun& run) {
      for (std::int64_t o = 0; o < outer; ++o) {
        for (std::int64_t i = 0; i < inner; ++i) {
          transform.run<T>(run.inputs[0].as<T>() + (o * count * inner + i) * parts, count, inner * parts, parts,
                           nullptr, run.outputs[0].out<T>() + (o * bins * inner + i) * 2, bins, inner * 2);
        }
      }
    });
  });
}

// signal [N, length, 1 or 2], frame_step, window [frame_length], frame_length -> [N, frames, bins, 2].
Status infer_stft(ShapeContext& context) {
  const Dims& in = context.dims(0);
  auto step = length_of(context, 1, 1);
  if (!step.ok()) {
    return step.status();
  }
  std::int64_t length = context.has_input(2) ? element_count(context.dims(2)) : 0;
  if (context.has_input(3)) {
    auto given = length_of(context, 3, 1);
    if (!given.ok()) {
      return given.status();
    }
    length = *given;
  }
  const bool onesided = context.node().get_int("onesided", 1) != 0;
  if (in.size() != 3 || (in[2] != 1 && in[2] != 2) || (in[2] == 2 && onesided) || length < 1 || length > in[1] ||
      (context.has_input(2) && element_count(context.dims(2)) != length)) {
    return context.error(Code::kInvalidArgument, "frames of %lld do not fit a signal of shape %s, or their window",
                         static_cast<long long>(length), to_string(in).c_str());
  }
  return context.set(0, {in[0], (in[1] - length) / *step + 1, onesided ? length / 2 + 1 : length, 2});
}

Result<std::unique_ptr<Kernel>> stft_kernel(KernelContext& context) {
  const Dims &in = context.input(0).dims, &out = context.output(0).dims;
  const std::int64_t step = context.constant(1)->as_int(0);
  const std::int64_t length =
      context.has_input(3) ? context.constant(3)->as_int(0) : element_count(context.input(2).dims);
  const Transform transform(length, false);
  return dispatch_floats(context.input(0).dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    return make_kernel([=](const KernelRun& run) {
      const bool has_window = run.inputs.size() > 2 && run.inputs[2].present();
      for (std::int64_t frame = 0; frame < out[0] * out[1]; ++frame) {
        const std::int64_t start = frame / out[1] * in[1] + frame % out[1] * step;
        transform.run<T>(run.inputs[0].as<T>() + start * in[2], length, in[2], in[2],
                         has_window ? run.inputs[2].as<T>() : nullptr, run.outputs[0].out<T>() + frame * out[2] * 2,
                         out[2], 2);
      }
    });
  });
}

// ---- MelWeightMatrix: triangles over the bins of a transform ----

Status infer_mel(ShapeContext& context) {
  std::int64_t sizes[3] = {};
  for (std::size_t i = 0; i < 3; ++i) {
    auto size = length_of(context, i, 1);
    if (!size.ok()) {
      return size.status();
    }
    sizes[i] = *size;
  }
  for (const std::size_t i : {3, 4}) {
    if (context.constant(i) == nullptr || context.constant(i)->elements() != 1) {
      return context.error(Code::kInvalidArgument, "input %zu must be one number that is known", i);
    }
  }
  const double low = context.constant(3)->as_double(0), high = context.constant(4)->as_double(0);
  if (!(low >= 0 && low <= high && high <= static_cast<double>(sizes[2]) / 2)) {
    return context.error(Code::kInvalidArgument, "the edges %g and %g are not in order within half the sample rate",
                         low, high);
  }
  return context.set(0, {sizes[1] / 2 + 1, sizes[0]});
}

Result<std::unique_ptr<Kernel>> mel_kernel(KernelContext& context) {
  const auto at = [&](std::size_t i) { return context.constant(i)->as_double(0); };
  const std::int64_t filters = context.constant(0)->as_int(0), bins = context.output(0).dims[0];
  const double transform = at(1), rate = at(2);
  const double low = 2595 * std::log10(1 + at(3) / 700), high = 2595 * std::log10(1 + at(4) / 700);
  const auto bin_of = [&](std::int64_t i) {
    const double mel = low + static_cast<double>(i) * (high - low) / static_cast<double>(filters + 2);
    const double hertz = 700 * (std::pow(10.0, mel / 2595) - 1);
    return std::clamp(static_cast<std::int64_t>(std::floor((transform + 1) * hertz / rate)), std::int64_t{0}, bins - 1);
  };
  std::vector<double> values(static_cast<std::size_t>(bins * filters));
  for (std::int64_t i = 0; i < filters; ++i) {
    const std::int64_t left = bin_of(i), center = bin_of(i + 1), right = bin_of(i + 2);
    const auto weight = [&](std::int64_t bin) -> double& {
      return values[static_cast<std::size_t>(bin * filters + i)];
    };
    for (std::int64_t bin = left; bin <= center; ++bin) {
      weight(bin) = left == center ? 1.0 : static_cast<double>(bin - left) / static_cast<double>(center - left);
    }
    for (std::int64_t bin = center; bin < right; ++bin) {
      weight(bin) = static_cast<double>(right - bin) / static_cast<double>(right - center);
    }
  }
  return values_kernel(context.output(0).dtype, std::move(values));
}

}  // namespace

void register_signal(Registry& registry) {
  for (const char* op : {"HannWindow", "HammingWindow", "BlackmanWindow"}) {
    registry.add({.op = op,
                  .first = 17,
                  .inputs = "size:I",
                  .outputs = "output:T",
                  .attributes = "output_datatype:int, periodic:int",
                  .types = {{"I", kIndices}, {"T", kNumbers}},
                  .shape_inputs = {0},
                  .infer = infer_window,
                  .kernel = window_kernel,
                  .output_type = output_datatype});
  }
  registry.add({.op = "DFT",
                .first = 17,
                .inputs = "input:T, dft_length:I?",
                .outputs = "output:T",
                .attributes = "axis:int, inverse:int, onesided:int",
                .types = {{"T", kFloats}, {"I", kIndices}},
                .shape_inputs = {1},
                .infer = infer_dft,
                .kernel = dft_kernel,
                .check = check_dft});
  registry.add({.op = "STFT",
                .first = 17,
                .inputs = "signal:T, frame_step:I, window:T?, frame_length:I?",
                .outputs = "output:T",
                .attributes = "onesided:int",
                .types = {{"T", kFloats}, {"I", kIndices}},
                .shape_inputs = {1, 3},
                .infer = infer_stft,
                .kernel = stft_kernel});
  registry.add({.op = "MelWeightMatrix",
                .first = 17,
                .inputs = "num_mel_bins:I, dft_length:I, sample_rate:I, lower_edge_hertz:F, upper_edge_hertz:F",
                .outputs = "output:T",
                .attributes = "output_datatype:int",
                .types = {{"I", kIndices}, {"F", kFloats}, {"T", kNumbers}},
                .shape_inputs = {0, 1, 2, 3, 4},
                .infer = infer_mel,
                .kernel = mel_kernel,
                .output_type = output_datatype});
}

}  // namespace sluice::engine
