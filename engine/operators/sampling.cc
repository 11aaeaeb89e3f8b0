// Operators that sample images at places that the data says: RoiAlign and GridSample.
#include <algorithm>
#include <array>
#include <cmath>

#include "operators/dispatch.h"
#include "operators/lambda_kernel.h"
#include "operators/registry.h"

namespace sluice::engine {
namespace {

Status check_choice(const Node& node, const char* name, const char* fallback,
                    std::initializer_list<const char*> known) {
  const std::string value = node.get_string(name, fallback);
  for (const char* each : known) {
    if (value == each) {
      return {};
    }
  }
  return refuse(node, std::string(name) + " '" + value.substr(0, 40) + "' is not supported",
                "export the model with another one");
}

// ---- RoiAlign: https://arxiv.org/abs/1703.06870 ----

Status check_roi_align(const Node& node) {
  Status status = check_choice(node, "mode", "avg", {"avg", "max"});
  return status.ok()
             ? check_choice(node, "coordinate_transformation_mode", "half_pixel", {"half_pixel", "output_half_pixel"})
             : status;
}

Status infer_roi_align(ShapeContext& context) {
  const Dims &x = context.dims(0), &rois = context.dims(1);
  const std::int64_t height = context.node().get_int("output_height", 1);
  const std::int64_t width = context.node().get_int("output_width", 1);
  if (x.size() != 4 || rois.size() != 2 || rois[1] != 4 || context.dims(2) != Dims{rois[0]} || height < 1 ||
      width < 1 || context.node().get_int("sampling_ratio", 0) < 0 || element_count(x) == 0) {
    return context.error(Code::kInvalidArgument, "images %s, rois %s and batch indices %s do not fit",
                         to_string(x).c_str(), to_string(rois).c_str(), to_string(context.dims(2)).c_str());
  }
  return context.set(0, {rois[0], x[1], height, width});
}

struct RoiAlign {
  std::int64_t images = 0, channels = 0, height = 0, width = 0;  // of the input
  std::int64_t rois = 0, rows = 0, columns = 0;                  // of the result
  std::int64_t ratio = 0;                                        // samples a bin and axis; 0: as many as fit
  double scale = 1;
  bool half_pixel = false, max = false;
};

// Four neighbours along both axes, and their weights. False for a place outside the image.
struct Neighbours {
  std::array<std::int64_t, 4> at{};
  std::array<double, 4> weight{};
};

bool neighbours_of(const RoiAlign& roi, double y, double x, Neighbours& result) {
  if (!(y >= -1 && y <= static_cast<double>(roi.height) && x >= -1 && x <= static_cast<double>(roi.width))) {
    return false;
  }
  const auto split = [](double value, std::int64_t size, std::int64_t& low, std::int64_t& high) {
    value = std::max(value, 0.0);
    low = std::min(static_cast<std::int64_t>(value), size - 1);
    high = std::min(low + 1, size - 1);
    return low == size - 1 ? 0.0 : value - static_cast<double>(low);
  };
  std::int64_t y0 = 0, y1 = 0, x0 = 0, x1 = 0;
  const double v = split(y, roi.height, y0, y1), u = split(x, roi.width, x0, x1);
  result.at = {y0 * roi.width + x0, y0 * roi.width + x1, y1 * roi.width + x0, y1 * roi.width + x1};
  result.weight = {(1 - v) * (1 - u), (1 - v) * u, v * (1 - u), v * u};
  return true;
}

template <class T>
class RoiAlignKernel final : public Kernel {
 public:
  RoiAlignKernel(const RoiAlign& roi, Status error) : roi_(roi), error_(std::move(error)) {}

  Status run(const KernelRun& run) override {
    T* out = run.outputs[0].out<T>();
    for (std::int64_t r = 0; r < roi_.rois; ++r) {
      const std::int64_t image = run.inputs[2].as<std::int64_t>()[r];
      if (image < 0 || image >= roi_.images) {
        return error_;
      }
      const T* box = run.inputs[1].as<T>() + r * 4;
      const auto edge = [&](int i) {
        return static_cast<double>(static_cast<ComputeType<T>>(box[i])) * roi_.scale - (roi_.half_pixel ? 0.5 : 0.0);
      };
      const double left = edge(0), top = edge(1);
      const double least = roi_.half_pixel ? -std::numeric_limits<double>::infinity() : 1.0;
      const double bin_width = std::max(edge(2) - left, least) / static_cast<double>(roi_.columns);
      const double bin_height = std::max(edge(3) - top, least) / static_cast<double>(roi_.rows);
      const std::int64_t nx = samples(bin_width), ny = samples(bin_height);
      if (nx > kMostSamples || ny > kMostSamples) {
        return error_;
      }
      for (std::int64_t c = 0; c < roi_.channels; ++c) {
        const T* plane = run.inputs[0].as<T>() + (image * roi_.channels + c) * roi_.height * roi_.width;
        for (std::int64_t bin = 0; bin < roi_.rows * roi_.columns; ++bin) {
          const std::int64_t row = bin / roi_.columns, column = bin % roi_.columns;
          const double y = top + static_cast<double>(row) * bin_height;
          const double x = left + static_cast<double>(column) * bin_width;
          *out++ = static_cast<T>(static_cast<ComputeType<T>>(pool(plane, y, x, bin_height, bin_width, ny, nx)));
        }
      }
    }
    return {};
  }

 private:
  static constexpr std::int64_t kMostSamples = 1 << 16;

  std::int64_t samples(double bin) const {
    return roi_.ratio > 0 ? roi_.ratio : static_cast<std::int64_t>(std::ceil(std::clamp(bin, 0.0, 1e9)));
  }

  double pool(const T* plane, double y, double x, double height, double width, std::int64_t ny, std::int64_t nx) const {
    double sum = 0, most = 0;
    bool first = true;
    for (std::int64_t i = 0; i < ny; ++i) {
      for (std::int64_t k = 0; k < nx; ++k) {
        Neighbours near;
        const bool inside = neighbours_of(roi_, y + (static_cast<double>(i) + 0.5) * height / static_cast<double>(ny),
                                          x + (static_cast<double>(k) + 0.5) * width / static_cast<double>(nx), near);
        double value = 0, largest = 0;
        for (std::size_t n = 0; n < 4 && inside; ++n) {
          const double part = near.weight[n] * static_cast<double>(static_cast<ComputeType<T>>(plane[near.at[n]]));
          value += part;
          largest = n == 0 ? part : std::max(largest, part);
        }
        sum += value;
        most = first ? largest : std::max(most, largest);  // of weighted neighbours, as the reference has it
        first = false;
      }
    }
    return roi_.max ? most : sum / static_cast<double>(std::max(nx * ny, std::int64_t{1}));
  }

  RoiAlign roi_;
  Status error_;
};

Result<std::unique_ptr<Kernel>> roi_align_kernel(KernelContext& context) {
  const Node& node = context.node();
  const Dims &x = context.input(0).dims, &out = context.output(0).dims;
  const bool half_pixel =
      node.opset >= 16 && node.get_string("coordinate_transformation_mode", "half_pixel") == "half_pixel";
  const RoiAlign roi{x[0],
                     x[1],
                     x[2],
                     x[3],
                     out[0],
                     out[2],
                     out[3],
                     node.get_int("sampling_ratio", 0),
                     static_cast<double>(node.get_float("spatial_scale", 1.0f)),
                     half_pixel,
                     node.get_string("mode", "avg") == "max"};
  Status error = context.error(Code::kInvalidArgument, "a batch index outside [0, %lld), or a roi that is too large",
                               static_cast<long long>(x[0]));
  return dispatch_floats(context.input(0).dtype, [&](auto tag) {
    return Result<std::unique_ptr<Kernel>>(std::make_unique<RoiAlignKernel<typename decltype(tag)::type>>(roi, error));
  });
}

// ---- GridSample: images [N, C, H, W], places [N, rows, columns, (x, y)] in [-1, 1] ----

Status check_grid_sample(const Node& node) {
  Status status = check_choice(node, "mode", "bilinear", {"bilinear", "nearest", "bicubic"});
  return status.ok() ? check_choice(node, "padding_mode", "zeros", {"zeros", "border", "reflection"}) : status;
}

Status infer_grid_sample(ShapeContext& context) {
  const Dims &x = context.dims(0), &grid = context.dims(1);
  if (x.size() != 4 || grid.size() != 4 || x[0] != grid[0] || grid[3] != 2 || x[2] == 0 || x[3] == 0) {
    return context.error(Code::kInvalidArgument, "images %s and places %s do not fit", to_string(x).c_str(),
                         to_string(grid).c_str());
  }
  return context.set(0, {x[0], x[1], grid[1], grid[2]});
}

enum class Padding : std::uint8_t { kZeros, kBorder, kReflection };

// One axis of an image.
struct GridAxis {
  std::int64_t size = 0;
  Padding padding = Padding::kZeros;
  bool align_corners = false;

  double place(double x) const {
    const auto n = static_cast<double>(size);
    return align_corners ? (x + 1) / 2 * (n - 1) : ((x + 1) * n - 1) / 2;
  }

  double reflect(double x) const {
    const double low = align_corners ? 0 : -0.5, high = static_cast<double>(size) - (align_corners ? 1.0 : 0.5);
    const double range = high - low;
    if (range <= 0) {
      return 0;
    }
    const double turn = std::fmod(std::fabs(x - low), 2 * range);
    return low + std::min(turn, 2 * range - turn);
  }

  // Keeps a place near the image, so that its neighbours are numbers; beyond, all is padding.
  double confine(double x) const {
    const auto n = static_cast<double>(size);
    if (!(std::fabs(x) < 1e15)) {  // NaN and infinity too
      return padding == Padding::kZeros ? -4.0 : x > 0 ? n - 1 : 0.0;
    }
    return padding == Padding::kBorder       ? std::clamp(x, 0.0, n - 1)
           : padding == Padding::kReflection ? reflect(x)
                                             : std::clamp(x, -4.0, n + 4);
  }

  // The pixel that stands for index `i`, or -1 for none.
  std::int64_t pixel(std::int64_t i) const {
    if (i >= 0 && i < size) {
      return i;
    }
    if (padding == Padding::kZeros) {
      return -1;
    }
    const double at = padding == Padding::kReflection ? reflect(static_cast<double>(i)) : static_cast<double>(i);
    return std::clamp(static_cast<std::int64_t>(at), std::int64_t{0}, size - 1);
  }
};

// Neighbours along one axis.
struct GridTaps {
  int count = 0;
  std::array<std::int64_t, 4> pixel{};
  std::array<double, 4> weight{};
};

GridTaps taps_of(const GridAxis& axis, const std::string& mode, double at) {
  GridTaps taps;
  const double x = axis.confine(axis.place(at));
  if (mode == "nearest") {
    taps.count = 1;
    taps.pixel[0] = axis.pixel(static_cast<std::int64_t>(std::nearbyint(x)));
    taps.weight[0] = 1;
    return taps;
  }
  const auto low = static_cast<std::int64_t>(std::floor(x));
  const double t = x - static_cast<double>(low);
  constexpr double a = -0.75;
  if (mode == "bilinear") {
    taps.count = 2;
    taps.weight = {1 - t, t};
  } else {
    taps.count = 4;
    const auto outer = [](double d) { return ((a * d - 5 * a) * d + 8 * a) * d - 4 * a; };
    const auto inner = [](double d) { return ((a + 2) * d - (a + 3)) * d * d + 1; };
    taps.weight = {outer(t + 1), inner(t), inner(1 - t), outer(2 - t)};
  }
  for (int k = 0; k < taps.count; ++k) {
    taps.pixel[static_cast<std::size_t>(k)] = axis.pixel(low + k - (taps.count == 4 ? 1 : 0));
  }
  return taps;
}

Result<std::unique_ptr<Kernel>> grid_sample_kernel(KernelContext& context) {
  const Node& node = context.node();
  const Dims x = context.input(0).dims;
  const std::int64_t places = context.output(0).dims[2] * context.output(0).dims[3];
  const std::string name = node.get_string("padding_mode", "zeros"), mode = node.get_string("mode", "bilinear");
  const Padding padding = name == "border"       ? Padding::kBorder
                          : name == "reflection" ? Padding::kReflection
                                                 : Padding::kZeros;
  const bool align = node.get_int("align_corners", 0) != 0;
  const GridAxis rows{x[2], padding, align}, columns{x[3], padding, align};
  return dispatch_floats(context.input(0).dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    return make_kernel([=](const KernelRun& run) {
      for (std::int64_t place = 0; place < x[0] * places; ++place) {
        const T* grid = run.inputs[1].as<T>() + place * 2;
        const GridTaps across = taps_of(columns, mode, static_cast<double>(static_cast<ComputeType<T>>(grid[0])));
        const GridTaps down = taps_of(rows, mode, static_cast<double>(static_cast<ComputeType<T>>(grid[1])));
        for (std::int64_t c = 0; c < x[1]; ++c) {
          const T* plane = run.inputs[0].as<T>() + (place / places * x[1] + c) * x[2] * x[3];
          double sum = 0;
          for (std::size_t i = 0; i < static_cast<std::size_t>(down.count); ++i) {
            for (std::size_t k = 0; k < static_cast<std::size_t>(across.count); ++k) {
              if (down.pixel[i] >= 0 && across.pixel[k] >= 0) {
                sum += down.weight[i] * across.weight[k] *
                       static_cast<double>(static_cast<ComputeType<T>>(plane[down.pixel[i] * x[3] + across.pixel[k]]));
              }
            }
          }
          run.outputs[0].out<T>()[(place / places * x[1] + c) * places + place % places] =
              static_cast<T>(static_cast<ComputeType<T>>(sum));
        }
      }
    });
  });
}

}  // namespace

void register_sampling(Registry& registry) {
  const auto roi_align = [&](int first, int last, const char* attributes) {
    registry.add({.op = "RoiAlign",
                  .first = first,
                  .last = last,
                  .inputs = "X:T, rois:T, batch_indices:I",
                  .outputs = "Y:T",
                  .attributes = attributes,
                  .types = {{"T", kFloats}, {"I", kInt64s}},
                  .infer = infer_roi_align,
                  .kernel = roi_align_kernel,
                  .check = check_roi_align});
  };
  roi_align(10, 15, "mode:string, output_height:int, output_width:int, sampling_ratio:int, spatial_scale:float");
  roi_align(16, 17,
            "mode:string, output_height:int, output_width:int, sampling_ratio:int, spatial_scale:float, "
            "coordinate_transformation_mode:string");
  registry.add({.op = "GridSample",
                .first = 16,
                .inputs = "X:T, grid:T",
                .outputs = "Y:T",
                .attributes = "align_corners:int, mode:string, padding_mode:string",
                .types = {{"T", kFloats}},
                .infer = infer_grid_sample,
                .kernel = grid_sample_kernel,
                .check = check_grid_sample});
}

}  // namespace sluice::engine
