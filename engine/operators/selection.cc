// Operators whose result has as many elements as the values of their inputs say. The inputs that decide are shape
// inputs: a program is compiled for their values, and the work is done when shapes are inferred.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "operators/dispatch.h"
#include "operators/lambda_kernel.h"
#include "operators/registry.h"

namespace sluice::engine {
namespace {

Result<const Tensor*> known(const ShapeContext& context, std::size_t i) {
  const Tensor* tensor = context.constant(i);
  return tensor != nullptr ? Result<const Tensor*>(tensor) : context.ints(i).status();
}

// ---- NonZero ----

bool is_zero(const Tensor& tensor, std::int64_t i) {
  return is_floating(tensor.dtype()) ? tensor.as_double(i) == 0 : tensor.as_int(i) == 0;
}

Status infer_non_zero(ShapeContext& context) {
  auto tensor = known(context, 0);
  if (!tensor.ok()) {
    return tensor.status();
  }
  std::int64_t count = 0;
  for (std::int64_t i = 0; i < (*tensor)->elements(); ++i) {
    count += is_zero(**tensor, i) ? 0 : 1;
  }
  return context.set(0, {context.rank(0), count});
}

Result<std::unique_ptr<Kernel>> non_zero_kernel(KernelContext& context) {
  const Tensor tensor = *context.constant(0);
  const std::int64_t found = context.output(0).dims[1];
  return make_kernel([tensor, found](const KernelRun& run) {
    auto* out = run.outputs[0].out<std::int64_t>();
    const Dims& dims = tensor.dims();
    for (std::int64_t i = 0; i < tensor.elements(); ++i) {
      if (!is_zero(tensor, i)) {
        std::int64_t rest = i;
        for (std::size_t d = dims.size(); d-- > 0; rest /= dims[d]) {
          out[static_cast<std::int64_t>(d) * found] = rest % dims[d];
        }
        ++out;
      }
    }
  });
}

// ---- Compress ----

Status infer_compress(ShapeContext& context) {
  auto condition = context.ints(1);
  if (!condition.ok()) {
    return condition.status();
  }
  const bool flat = !context.node().has("axis");
  std::int64_t along = 0;
  if (!flat) {
    auto axis = context.axis(context.node().get_int("axis", 0), context.rank(0));
    if (!axis.ok()) {
      return axis.status();
    }
    along = *axis;
  }
  Dims dims = flat ? Dims{element_count(context.dims(0))} : context.dims(0);
  std::int64_t& dim = dims[static_cast<std::size_t>(along)];
  if (context.rank(1) != 1 || static_cast<std::int64_t>(condition->size()) > dim) {
    return context.error(Code::kInvalidArgument, "a condition of shape %s for %lld elements",
                         to_string(context.dims(1)).c_str(), static_cast<long long>(dim));
  }
  dim = std::count_if(condition->begin(), condition->end(), [](std::int64_t x) { return x != 0; });
  return context.set(0, std::move(dims));
}

Result<std::unique_ptr<Kernel>> compress_kernel(KernelContext& context) {
  const bool flat = !context.node().has("axis");
  const Dims dims = flat ? Dims{element_count(context.input(0).dims)} : context.input(0).dims;
  std::int64_t axis = flat ? 0 : context.node().get_int("axis", 0);
  axis += axis < 0 ? static_cast<std::int64_t>(dims.size()) : 0;
  const std::int64_t outer = element_count(Dims(dims.begin(), dims.begin() + axis));
  const std::int64_t length = dims[static_cast<std::size_t>(axis)];
  const std::size_t bytes = static_cast<std::size_t>(element_count(Dims(dims.begin() + axis + 1, dims.end()))) *
                            dtype_bytes(context.output(0).dtype);
  return make_kernel([=, condition = int_values(*context.constant(1))](const KernelRun& run) {
    const auto* in = run.inputs[0].as<std::byte>();
    auto* out = run.outputs[0].out<std::byte>();
    for (std::int64_t o = 0; o < outer && bytes > 0; ++o) {
      for (std::size_t i = 0; i < condition.size(); ++i) {
        if (condition[i] != 0) {
          std::memcpy(out, in + (static_cast<std::size_t>(o * length) + i) * bytes, bytes);
          out += bytes;
        }
      }
    }
  });
}

// ---- Unique ----

struct Groups {
  std::vector<std::int64_t> first;    // of each distinct slice, in the order of the result
  std::vector<std::int64_t> inverse;  // by slice: which distinct one it is
  std::vector<std::int64_t> counts;
  std::int64_t outer = 1, slices = 0, inner = 1;
};

// Slices along an axis, or all elements where there is none.
Groups groups_of(const Node& node, const Tensor& tensor) {
  Groups groups;
  const Dims& dims = tensor.dims();
  groups.slices = tensor.elements();
  if (node.has("axis")) {
    std::int64_t axis = node.get_int("axis", 0);
    axis += axis < 0 ? static_cast<std::int64_t>(dims.size()) : 0;
    groups.outer = element_count(Dims(dims.begin(), dims.begin() + axis));
    groups.slices = dims[static_cast<std::size_t>(axis)];
    groups.inner = element_count(Dims(dims.begin() + axis + 1, dims.end()));
  }
  const bool floats = is_floating(tensor.dtype());
  const auto compare = [&](std::int64_t a, std::int64_t b) {
    for (std::int64_t o = 0; o < groups.outer; ++o) {
      for (std::int64_t i = 0; i < groups.inner; ++i) {
        const std::int64_t at = (o * groups.slices + a) * groups.inner + i;
        const std::int64_t bt = (o * groups.slices + b) * groups.inner + i;
        if (floats) {
          const double x = tensor.as_double(at), y = tensor.as_double(bt);
          const bool x_nan = std::isnan(x), y_nan = std::isnan(y);  // NaN stands last
          if (x_nan != y_nan || x < y || x > y) {
            return x_nan != y_nan ? (y_nan ? -1 : 1) : x < y ? -1 : 1;
          }
        } else if (tensor.dtype() == DType::kUint64) {
          const auto x = static_cast<std::uint64_t>(tensor.as_int(at)),
                     y = static_cast<std::uint64_t>(tensor.as_int(bt));
          if (x != y) {
            return x < y ? -1 : 1;
          }
        } else if (const std::int64_t x = tensor.as_int(at), y = tensor.as_int(bt); x != y) {
          return x < y ? -1 : 1;
        }
      }
    }
    return 0;
  };
  std::vector<std::int64_t> order(static_cast<std::size_t>(groups.slices));
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](std::int64_t a, std::int64_t b) { return compare(a, b) < 0; });
  groups.inverse.resize(order.size());
  for (std::size_t i = 0; i < order.size(); ++i) {
    if (i == 0 || compare(order[i - 1], order[i]) != 0) {
      groups.first.push_back(order[i]);
      groups.counts.push_back(0);
    }
    ++groups.counts.back();
    groups.inverse[static_cast<std::size_t>(order[i])] = static_cast<std::int64_t>(groups.first.size()) - 1;
  }
  if (node.get_int("sorted", 1) == 0) {  // in the order of first occurrence
    std::vector<std::int64_t> by_first(groups.first.size()), place(groups.first.size());
    std::iota(by_first.begin(), by_first.end(), 0);
    std::sort(by_first.begin(), by_first.end(), [&](std::int64_t a, std::int64_t b) {
      return groups.first[static_cast<std::size_t>(a)] < groups.first[static_cast<std::size_t>(b)];
    });
    const Groups sorted = groups;
    for (std::size_t i = 0; i < by_first.size(); ++i) {
      const auto from = static_cast<std::size_t>(by_first[i]);
      groups.first[i] = sorted.first[from];
      groups.counts[i] = sorted.counts[from];
      place[from] = static_cast<std::int64_t>(i);
    }
    for (std::int64_t& group : groups.inverse) {
      group = place[static_cast<std::size_t>(group)];
    }
  }
  return groups;
}

Status infer_unique(ShapeContext& context) {
  auto tensor = known(context, 0);
  if (!tensor.ok()) {
    return tensor.status();
  }
  std::int64_t along = 0;
  const bool flat = !context.node().has("axis");
  if (!flat) {
    auto axis = context.axis(context.node().get_int("axis", 0), context.rank(0));
    if (!axis.ok()) {
      return axis.status();
    }
    along = *axis;
  }
  const Groups groups = groups_of(context.node(), **tensor);
  const auto count = static_cast<std::int64_t>(groups.first.size());
  Dims dims = flat ? Dims{0} : context.dims(0);
  dims[static_cast<std::size_t>(along)] = count;
  Status status = context.set(0, std::move(dims));
  for (const std::size_t i : {1, 2, 3}) {
    if (status.ok() && context.node().has_output(i)) {
      status = context.set(i, {i == 2 ? groups.slices : count});
    }
  }
  return status;
}

Result<std::unique_ptr<Kernel>> unique_kernel(KernelContext& context) {
  const std::size_t bytes = dtype_bytes(context.output(0).dtype);
  return make_kernel([bytes, groups = groups_of(context.node(), *context.constant(0))](const KernelRun& run) {
    const auto* in = run.inputs[0].as<std::byte>();
    auto* out = run.outputs[0].out<std::byte>();
    const std::size_t block = static_cast<std::size_t>(groups.inner) * bytes;
    for (std::int64_t o = 0; o < groups.outer && block > 0; ++o) {
      for (const std::int64_t first : groups.first) {
        std::memcpy(out, in + static_cast<std::size_t>(o * groups.slices + first) * block, block);
        out += block;
      }
    }
    const std::vector<std::int64_t>* lists[] = {&groups.first, &groups.inverse, &groups.counts};
    for (std::size_t i = 1; i < run.outputs.size(); ++i) {
      if (run.outputs[i].present()) {
        std::copy(lists[i - 1]->begin(), lists[i - 1]->end(), run.outputs[i].out<std::int64_t>());
      }
    }
  });
}

// ---- NonMaxSuppression ----

struct Box {
  double y1 = 0, x1 = 0, y2 = 0, x2 = 0;
  double area() const { return (y2 - y1) * (x2 - x1); }
};

Box box_at(const Tensor& boxes, std::int64_t i, bool by_center) {
  const double a = boxes.as_double(4 * i), b = boxes.as_double(4 * i + 1);
  const double c = boxes.as_double(4 * i + 2), d = boxes.as_double(4 * i + 3);
  return by_center ? Box{b - d / 2, a - c / 2, b + d / 2, a + c / 2}
                   : Box{std::min(a, c), std::min(b, d), std::max(a, c), std::max(b, d)};
}

double overlap(const Box& a, const Box& b) {
  const double height = std::min(a.y2, b.y2) - std::max(a.y1, b.y1);
  const double width = std::min(a.x2, b.x2) - std::max(a.x1, b.x1);
  const double both = std::max(height, 0.0) * std::max(width, 0.0);
  return both <= 0 ? 0 : both / (a.area() + b.area() - both);
}

// Triples (batch, class, box), as the result holds them. The best boxes of each class stay, equal ones by index.
template <class Context>
std::vector<std::int64_t> suppress(const Context& context) {
  const Tensor &boxes = *context.constant(0), &scores = *context.constant(1);
  const Tensor *most = context.constant(2), *iou = context.constant(3), *least = context.constant(4);
  const std::int64_t limit = most != nullptr && most->elements() > 0 ? most->as_int(0) : 0;
  const double iou_limit = iou != nullptr && iou->elements() > 0 ? iou->as_double(0) : 0;
  const bool has_least = least != nullptr && least->elements() > 0;
  const bool by_center = context.node().get_int("center_point_box", 0) != 0;
  const std::int64_t classes = scores.dims()[1], count = scores.dims()[2];
  std::vector<std::int64_t> result;
  for (std::int64_t row = 0; row < scores.dims()[0] * classes; ++row) {
    std::vector<std::pair<double, std::int64_t>> order;
    for (std::int64_t i = 0; i < count; ++i) {
      const double score = scores.as_double(row * count + i);
      if (!has_least || score > least->as_double(0)) {
        order.emplace_back(-score, i);
      }
    }
    std::stable_sort(order.begin(), order.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    std::vector<Box> kept;
    for (const auto& [score, i] : order) {
      if (static_cast<std::int64_t>(kept.size()) >= limit) {
        break;
      }
      const Box box = box_at(boxes, row / classes * count + i, by_center);
      if (std::none_of(kept.begin(), kept.end(), [&](const Box& other) { return overlap(box, other) > iou_limit; })) {
        kept.push_back(box);
        result.insert(result.end(), {row / classes, row % classes, i});
      }
    }
  }
  return result;
}

Status infer_nms(ShapeContext& context) {
  for (std::size_t i = 0; i < context.input_count(); ++i) {
    if (context.has_input(i)) {
      if (auto tensor = known(context, i); !tensor.ok()) {
        return tensor.status();
      }
    }
  }
  const Dims &boxes = context.dims(0), &scores = context.dims(1);
  if (boxes.size() != 3 || scores.size() != 3 || boxes[0] != scores[0] || boxes[1] != scores[2] || boxes[2] != 4) {
    return context.error(Code::kInvalidArgument, "boxes %s and scores %s do not fit", to_string(boxes).c_str(),
                         to_string(scores).c_str());
  }
  for (std::int64_t i = 0; i < context.constant(1)->elements(); ++i) {
    if (std::isnan(context.constant(1)->as_double(i))) {
      return context.error(Code::kInvalidArgument, "a score is not a number");
    }
  }
  return context.set(0, {static_cast<std::int64_t>(suppress(context).size()) / 3, 3});
}

Result<std::unique_ptr<Kernel>> nms_kernel(KernelContext& context) {
  return make_kernel([selected = suppress(context)](const KernelRun& run) {
    std::copy(selected.begin(), selected.end(), run.outputs[0].out<std::int64_t>());
  });
}

}  // namespace

void register_selection(Registry& registry) {
  registry.add({.op = "NonZero",
                .first = 9,
                .inputs = "X:T",
                .outputs = "Y:I",
                .types = {{"T", kAllTypes}, {"I", kInt64s}},
                .shape_inputs = {0},
                .infer = infer_non_zero,
                .kernel = non_zero_kernel});
  registry.add({.op = "Compress",
                .first = 9,
                .inputs = "input:T, condition:B",
                .outputs = "output:T",
                .attributes = "axis:int",
                .types = {{"T", kAllTypes}, {"B", kBools}},
                .shape_inputs = {1},
                .infer = infer_compress,
                .kernel = compress_kernel});
  registry.add({.op = "Unique",
                .first = 11,
                .inputs = "X:T",
                .outputs = "Y:T, indices:I?, inverse_indices:I?, counts:I?",
                .attributes = "axis:int, sorted:int",
                .types = {{"T", kAllTypes}, {"I", kInt64s}},
                .shape_inputs = {0},
                .infer = infer_unique,
                .kernel = unique_kernel});
  registry.add({.op = "NonMaxSuppression",
                .first = 10,
                .inputs = "boxes:F, scores:F, max_output_boxes_per_class:I?, iou_threshold:F?, score_threshold:F?",
                .outputs = "selected_indices:I",
                .attributes = "center_point_box:int",
                .types = {{"F", kFloat32}, {"I", kInt64s}},
                .shape_inputs = {0, 1, 2, 3, 4},
                .infer = infer_nms,
                .kernel = nms_kernel});
}

}  // namespace sluice::engine
