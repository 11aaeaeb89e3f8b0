// PNG and JPEG files as a model's input.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "arrays.h"

namespace sluice::cli {

struct ImageOptions {
  enum class Layout { kAuto, kNchw, kNhwc };
  std::optional<std::pair<int, int>> size;  // height, width; without: what the input fixes, else the image's own
  Layout layout = Layout::kAuto;            // kAuto: where the input has 1 or 3 channels, else kNchw
  bool bgr = false;
  double scale = 1.0 / 255;
  std::vector<double> mean = {0};  // one, or one a channel; of the scaled values
  std::vector<double> std = {1};
};

// Whether a file begins as a PNG or JPEG.
bool is_image(const std::string& path);

// One image as the input [1, C, H, W] or [1, H, W, C]: float values (pixel * scale - mean) / std, or, where the input
// is uint8, the pixels. Resized bilinearly with half-pixel centres, no antialiasing. Transparent parts are black; EXIF
// orientation is not applied. Errors: kNotFound, kInvalidArgument, kResourceExhausted (over 100 megapixels); messages
// begin with the path.
Result<Array> read_image(const std::string& path, const engine::TensorSpec& input, const ImageOptions& options);

}  // namespace sluice::cli
