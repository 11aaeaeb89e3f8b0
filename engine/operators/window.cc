#include "operators/window.h"

#include <fmt/format.h>

namespace sluice::engine {
namespace {

// Larger numbers are no window, and their sums and products could overflow.
constexpr std::int64_t kMaxExtent = std::int64_t{1} << 30;

Status wrong(const Node& node, const std::string& what) {
  return Status::error(Code::kInvalidArgument, "%s: %s", describe(node).c_str(), what.c_str());
}

Result<Dims> attribute(const Node& node, const char* name, std::size_t count, std::int64_t fallback,
                       std::int64_t least) {
  Dims values = node.get_ints(name);
  if (values.empty()) {
    values.assign(count, fallback);
  }
  if (values.size() != count) {
    return wrong(node, fmt::format("{} has {} numbers where {} belong", name, values.size(), count));
  }
  for (const std::int64_t value : values) {
    if (value < least || value > kMaxExtent) {
      return wrong(node, fmt::format("{} {}", name, to_string(values)));
    }
  }
  return values;
}

}  // namespace

Result<Window> window_attributes(const Node& node, const Dims& kernel) {
  Window window;
  const std::size_t rank = kernel.size();
  window.kernel = kernel;
  for (const std::int64_t size : kernel) {
    if (size < 1 || size > kMaxExtent) {
      return wrong(node, fmt::format("a kernel of shape {}", to_string(kernel)));
    }
  }
  auto strides = attribute(node, "strides", rank, 1, 1);
  auto dilations = attribute(node, "dilations", rank, 1, 1);
  auto pads = attribute(node, "pads", 2 * rank, 0, 0);
  for (const auto* part : {&strides, &dilations, &pads}) {
    if (!part->ok()) {
      return part->status();
    }
  }
  window.strides = std::move(*strides);
  window.dilations = std::move(*dilations);
  const auto middle = pads->begin() + static_cast<std::ptrdiff_t>(rank);
  window.begin.assign(pads->begin(), middle);
  window.end.assign(middle, pads->end());
  for (std::size_t d = 0; d < rank; ++d) {
    if ((kernel[d] - 1) * window.dilations[d] > kMaxExtent) {
      return wrong(node, "the dilated kernel is too large");
    }
  }
  const std::string automatic = node.get_string("auto_pad", "NOTSET");
  if (automatic != "NOTSET" && automatic != "VALID" && automatic != "SAME_UPPER" && automatic != "SAME_LOWER") {
    return wrong(node, fmt::format("auto_pad '{:.20}'", automatic));
  }
  if (automatic != "NOTSET" && std::any_of(pads->begin(), pads->end(), [](std::int64_t pad) { return pad != 0; })) {
    return refuse(node, "auto_pad together with pads", "leave out one of them");
  }
  return window;
}

Result<Window> window_of(const Node& node, const Dims& in, const Dims& kernel) {
  if (in.empty() || in.size() != kernel.size()) {
    return wrong(node, fmt::format("a window of {} dimensions over {}", kernel.size(), in.size()));
  }
  auto window = window_attributes(node, kernel);
  if (!window.ok()) {
    return window.status();
  }
  window->in = in;
  const std::string automatic = node.get_string("auto_pad", "NOTSET");
  const bool ceil = node.get_int("ceil_mode", 0) != 0;
  for (std::size_t d = 0; d < in.size(); ++d) {
    const std::int64_t stride = window->strides[d], extent = (kernel[d] - 1) * window->dilations[d] + 1;
    if (automatic.starts_with("SAME")) {
      const std::int64_t out = (in[d] + stride - 1) / stride;
      const std::int64_t total = std::max<std::int64_t>(0, (out - 1) * stride + extent - in[d]);
      window->begin[d] = automatic == "SAME_UPPER" ? total / 2 : total - total / 2;
      window->end[d] = total - window->begin[d];
      window->out.push_back(out);
      continue;
    }
    const std::int64_t span = in[d] + window->begin[d] + window->end[d] - extent;
    if (span < 0 && in[d] == 0) {
      window->out.push_back(0);
      continue;
    }
    if (span < 0) {
      return wrong(node, fmt::format("a kernel that reaches over {} elements of {} with their padding", extent,
                                     in[d] + window->begin[d] + window->end[d]));
    }
    std::int64_t out = (ceil ? (span + stride - 1) / stride : span / stride) + 1;
    out -= ceil && (out - 1) * stride >= in[d] + window->begin[d] ? 1 : 0;
    window->out.push_back(out);
  }
  return window;
}

}  // namespace sluice::engine
