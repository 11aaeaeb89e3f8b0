#include "images.h"

#include <png.h>
#include <turbojpeg.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <fstream>
#include <memory>
#include <sstream>

namespace sluice::cli {
namespace {

using Layout = ImageOptions::Layout;

constexpr std::int64_t kMostPixels = 100'000'000;

struct Pixels {  // rows of interleaved bytes
  std::int64_t height = 0, width = 0, channels = 3;
  std::vector<unsigned char> data;
};

bool is_png(const std::string& bytes) { return bytes.starts_with("\x89PNG\r\n\x1a\n"); }
bool is_jpeg(const std::string& bytes) { return bytes.starts_with("\xff\xd8\xff"); }

Status check_size(std::int64_t height, std::int64_t width) {
  if (height <= 0 || width <= 0 || height > kMostPixels / width) {
    return Status::error(Code::kResourceExhausted, "%lldx%lld pixels; up to 100 million are read",
                         static_cast<long long>(height), static_cast<long long>(width));
  }
  return {};
}

Result<Pixels> decode_png(const std::string& bytes, std::int64_t channels) {
  png_image image = {};
  image.version = PNG_IMAGE_VERSION;
  if (png_image_begin_read_from_memory(&image, bytes.data(), bytes.size()) == 0) {
    return Status::error(Code::kInvalidArgument, "a damaged PNG: %s", image.message);
  }
  if (Status status = check_size(image.height, image.width); !status.ok()) {
    png_image_free(&image);
    return status;
  }
  image.format = channels == 1 ? PNG_FORMAT_GRAY : PNG_FORMAT_RGB;
  Pixels pixels{image.height, image.width, channels, std::vector<unsigned char>(PNG_IMAGE_SIZE(image))};
  const png_color black = {0, 0, 0};
  if (png_image_finish_read(&image, &black, pixels.data.data(), 0, nullptr) == 0) {
    return Status::error(Code::kInvalidArgument, "a damaged PNG: %s", image.message);
  }
  return pixels;
}

Result<Pixels> decode_jpeg(const std::string& bytes, std::int64_t channels) {
  const std::unique_ptr<void, int (*)(tjhandle)> decoder(tjInitDecompress(), &tjDestroy);
  const auto* data = reinterpret_cast<const unsigned char*>(bytes.data());
  int width = 0, height = 0, sampling = 0, colours = 0;
  if (tjDecompressHeader3(decoder.get(), data, bytes.size(), &width, &height, &sampling, &colours) != 0) {
    return Status::error(Code::kInvalidArgument, "a damaged JPEG: %s", tjGetErrorStr2(decoder.get()));
  }
  if (width <= 0 || height <= 0) {  // the header ended early, which is only a warning there
    return Status::error(Code::kInvalidArgument, "a damaged JPEG: it has no size");
  }
  if (Status status = check_size(height, width); !status.ok()) {
    return status;
  }
  Pixels pixels{height, width, channels, {}};
  pixels.data.resize(static_cast<std::size_t>(channels) * static_cast<std::size_t>(width) *
                     static_cast<std::size_t>(height));
  if (tjDecompress2(decoder.get(), data, bytes.size(), pixels.data.data(), width, 0, height,
                    channels == 1 ? TJPF_GRAY : TJPF_RGB, TJFLAG_ACCURATEDCT) != 0) {
    return Status::error(Code::kInvalidArgument, "a damaged JPEG: %s", tjGetErrorStr2(decoder.get()));
  }
  return pixels;
}

// Where a result's pixel lies between two of the source.
struct Tap {
  std::int64_t low, high;
  double weight;  // of `high`
};

std::vector<Tap> taps(std::int64_t from, std::int64_t to) {
  std::vector<Tap> result;
  for (std::int64_t i = 0; i < to; ++i) {
    const double at =
        std::clamp((static_cast<double>(i) + 0.5) * static_cast<double>(from) / static_cast<double>(to) - 0.5, 0.0,
                   static_cast<double>(from - 1));
    const auto low = static_cast<std::int64_t>(at);
    result.push_back({low, std::min(low + 1, from - 1), at - static_cast<double>(low)});
  }
  return result;
}

Result<Layout> layout_of(const engine::TensorSpec& input, Layout asked) {
  if (input.has_rank && input.dims.size() != 4) {
    return Status::error(Code::kInvalidArgument, "an image has the shape NxCxHxW or NxHxWxC, the input '%.60s' %s",
                         input.name.c_str(), shape_text(input).c_str());
  }
  const auto fits = [&](std::size_t axis) { return input.dims[axis] == 1 || input.dims[axis] == 3; };
  if (asked != Layout::kAuto || !input.has_rank) {
    return asked == Layout::kAuto ? Layout::kNchw : asked;
  }
  return fits(3) && !fits(1) ? Layout::kNhwc : Layout::kNchw;
}

double per_channel(const std::vector<double>& values, std::int64_t channel) {
  return values[values.size() == 1 ? 0 : static_cast<std::size_t>(channel)];
}

Result<Array> to_array(const Pixels& pixels, const engine::TensorSpec& input, const ImageOptions& options,
                       Layout layout, std::int64_t height, std::int64_t width) {
  const std::int64_t channels = pixels.channels;
  const bool nchw = layout == Layout::kNchw;
  for (const auto* list : {&options.mean, &options.std}) {
    if (list->size() != 1 && list->size() != static_cast<std::size_t>(channels)) {
      return Status::error(Code::kInvalidArgument, "%zu values of --mean or --std for %lld channels", list->size(),
                           static_cast<long long>(channels));
    }
  }
  Array array{
      input.dtype, nchw ? engine::Dims{1, channels, height, width} : engine::Dims{1, height, width, channels}, {}};
  auto bytes = array_bytes(array.dtype, array.dims);
  if (!bytes.ok()) {
    return bytes.status();
  }
  array.data.resize(*bytes);
  const std::vector<Tap> rows = taps(pixels.height, height), columns = taps(pixels.width, width);
  for (std::int64_t c = 0; c < channels; ++c) {
    const std::int64_t source = options.bgr ? channels - 1 - c : c;
    const double mean = per_channel(options.mean, c), deviation = per_channel(options.std, c);
    const auto pixel = [&](std::int64_t y, std::int64_t x) {
      return static_cast<double>(pixels.data[static_cast<std::size_t>((y * pixels.width + x) * channels + source)]);
    };
    for (std::int64_t y = 0; y < height; ++y) {
      const Tap& row = rows[static_cast<std::size_t>(y)];
      for (std::int64_t x = 0; x < width; ++x) {
        const Tap& column = columns[static_cast<std::size_t>(x)];
        const double above = std::lerp(pixel(row.low, column.low), pixel(row.low, column.high), column.weight);
        const double below = std::lerp(pixel(row.high, column.low), pixel(row.high, column.high), column.weight);
        const double value = std::lerp(above, below, row.weight);
        const auto at = static_cast<std::size_t>(nchw ? (c * height + y) * width + x : (y * width + x) * channels + c);
        if (array.dtype == engine::DType::kUint8) {
          array.data[at] = static_cast<std::byte>(std::lround(value));
        } else {
          reinterpret_cast<float*>(array.data.data())[at] =
              static_cast<float>((value * options.scale - mean) / deviation);
        }
      }
    }
  }
  return array;
}

Result<Array> read(const std::string& bytes, const engine::TensorSpec& input, const ImageOptions& options) {
  if (input.dtype != engine::DType::kFloat && input.dtype != engine::DType::kUint8) {
    return Status::error(Code::kInvalidArgument, "an image becomes float or uint8, and the input '%.60s' is %s",
                         input.name.c_str(), engine::dtype_name(input.dtype));
  }
  auto layout = layout_of(input, options.layout);
  if (!layout.ok()) {
    return layout.status();
  }
  const auto fixed = [&](std::size_t nchw, std::size_t nhwc) {
    return input.has_rank ? input.dims[*layout == Layout::kNchw ? nchw : nhwc] : -1;
  };
  const std::int64_t channels = fixed(1, 3) == 1 ? 1 : 3;
  auto pixels = is_png(bytes) ? decode_png(bytes, channels) : decode_jpeg(bytes, channels);
  if (!pixels.ok()) {
    return pixels.status();
  }
  const auto pick = [](int asked, std::int64_t by_model, std::int64_t own) {
    return asked > 0 ? asked : by_model > 0 ? by_model : own;
  };
  const auto [height, width] = options.size.value_or(std::pair(0, 0));
  return to_array(*pixels, input, options, *layout, pick(height, fixed(2, 1), pixels->height),
                  pick(width, fixed(3, 2), pixels->width));
}

}  // namespace

bool is_image(const std::string& path) {
  std::string bytes(8, '\0');
  std::ifstream file(path, std::ios::binary);
  file.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  return is_png(bytes) || is_jpeg(bytes);
}

Result<Array> read_image(const std::string& path, const engine::TensorSpec& input, const ImageOptions& options) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream bytes;
  bytes << file.rdbuf();
  if (!file) {
    return Status::error(Code::kNotFound, "%s: %s", path.c_str(), std::strerror(errno));
  }
  auto array = read(bytes.str(), input, options);
  return array.ok() ? std::move(array)
                    : Status::error(array.status().code(), "%s: %s", path.c_str(), array.status().message());
}

}  // namespace sluice::cli
