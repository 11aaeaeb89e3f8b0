// Einsum and Det.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "operators/broadcast.h"
#include "operators/dispatch.h"
#include "operators/lambda_kernel.h"
#include "operators/registry.h"
#include "operators/window.h"

namespace sluice::engine {
namespace {

// ---- Einsum: one loop over all labels, those of the result outside ----

// A label is a letter, or '0' + i for the i-th dimension of the ellipsis.
using Labels = std::string;

struct EinsumShape {
  Dims out, summed;           // sizes of the labels of the result, and of the others
  std::vector<Dims> strides;  // of each operand, by label: those of `out`, then those of `summed`
};

Status wrong(const Node& node, const char* what) {
  return Status::error(Code::kInvalidArgument, "%s: equation '%.60s': %s", describe(node).c_str(),
                       node.get_string("equation", "").c_str(), what);
}

constexpr std::size_t kMaxLabels = kMaxRank;  // of the result, and of what is summed

// Splits at commas; the ellipsis becomes the dimensions it stands for, the last ones of `ellipsis_rank`.
Result<Labels> expand(const Node& node, std::string_view term, std::ptrdiff_t ellipsis, std::ptrdiff_t widest) {
  Labels labels;
  const std::size_t dots = term.find("...");
  for (std::size_t i = 0; i < term.size(); ++i) {
    if (i == dots) {
      for (std::ptrdiff_t d = widest - ellipsis; d < widest; ++d) {
        labels.push_back(static_cast<char>('0' + d));
      }
      i += 2;
    } else if ((term[i] >= 'a' && term[i] <= 'z') || (term[i] >= 'A' && term[i] <= 'Z')) {
      labels.push_back(term[i]);
    } else {
      return wrong(node, "only letters and one ellipsis may be in a term");
    }
  }
  return labels;
}

// Letters that a term names, without the ellipsis.
std::ptrdiff_t named(std::string_view term) {
  return std::count_if(term.begin(), term.end(), [](char c) { return c != '.'; });
}

Result<EinsumShape> einsum_shape(const Node& node, const std::vector<Dims>& operands) {
  std::string equation = node.get_string("equation", "");
  std::erase(equation, ' ');
  const std::size_t arrow = equation.find("->");
  const std::string left = equation.substr(0, arrow);
  std::vector<std::string> terms(1);
  for (const char c : left) {
    if (c == ',') {
      terms.emplace_back();
    } else {
      terms.back().push_back(c);
    }
  }
  if (terms.size() != operands.size()) {
    return wrong(node, "not a term for each input");
  }
  std::ptrdiff_t widest = 0;
  for (std::size_t n = 0; n < terms.size(); ++n) {
    const std::ptrdiff_t rest = std::ssize(operands[n]) - named(terms[n]);
    if (rest < 0 || (rest > 0 && terms[n].find("...") == std::string::npos)) {
      return wrong(node, "a term that does not fit the dimensions of its input");
    }
    widest = std::max(widest, rest);
  }
  std::array<std::int64_t, 128> sizes;
  sizes.fill(-1);
  std::vector<Labels> labels;
  for (std::size_t n = 0; n < terms.size(); ++n) {
    auto expanded = expand(node, terms[n], std::ssize(operands[n]) - named(terms[n]), widest);
    if (!expanded.ok()) {
      return expanded.status();
    }
    for (std::size_t d = 0; d < expanded->size(); ++d) {
      std::int64_t& size = sizes[static_cast<unsigned char>((*expanded)[d])];
      const std::int64_t dim = operands[n][d];
      if (size >= 0 && size != dim && size != 1 && dim != 1) {
        return wrong(node, "two sizes for one label");
      }
      size = size < 0 || size == 1 ? dim : size;
    }
    labels.push_back(std::move(*expanded));
  }
  Labels out;
  if (arrow != std::string::npos) {
    auto expanded = expand(node, std::string_view(equation).substr(arrow + 2), widest, widest);
    if (!expanded.ok()) {
      return expanded.status();
    }
    out = std::move(*expanded);
  } else {  // the ellipsis, then the labels that stand in the terms once, by alphabet
    for (std::ptrdiff_t d = 0; d < widest; ++d) {
      out.push_back(static_cast<char>('0' + d));
    }
    for (char c = 'A'; c <= 'z'; ++c) {
      if (std::count(left.begin(), left.end(), c) == 1) {
        out.push_back(c);
      }
    }
  }
  Labels all = out;
  for (std::size_t c = 0; c < sizes.size(); ++c) {
    if (sizes[c] >= 0 && out.find(static_cast<char>(c)) == std::string::npos) {
      all.push_back(static_cast<char>(c));
    }
  }
  EinsumShape shape;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const std::int64_t size = sizes[static_cast<unsigned char>(all[i])];
    if (size < 0 || all.find(all[i], i + 1) != std::string::npos) {
      return wrong(node, "the result names a label twice, or one that no term has");
    }
    (i < out.size() ? shape.out : shape.summed).push_back(size);
  }
  if (shape.out.size() > kMaxLabels || shape.summed.size() > kMaxLabels) {
    return refuse(node, "so many labels", "export the model with simpler products");
  }
  for (std::size_t n = 0; n < labels.size(); ++n) {
    const Dims own = strides_of(operands[n]);
    Dims strides(all.size(), 0);
    for (std::size_t d = 0; d < own.size(); ++d) {
      strides[all.find(labels[n][d])] += operands[n][d] == 1 ? 0 : own[d];
    }
    shape.strides.push_back(std::move(strides));
  }
  return shape;
}

Status infer_einsum(ShapeContext& context) {
  std::vector<Dims> operands;
  for (std::size_t i = 0; i < context.input_count(); ++i) {
    operands.push_back(context.dims(i));
  }
  auto shape = einsum_shape(context.node(), operands);
  return shape.ok() ? context.set(0, std::move(shape->out)) : shape.status();
}

template <class T>
void einsum(const EinsumShape& s, const KernelRun& run) {
  using A = typename std::conditional_t<std::is_integral_v<T>, TypeTag<std::uint64_t>, TypeTag<ComputeType<T>>>::type;
  const std::size_t rank = s.out.size();
  T* y = run.outputs[0].out<T>();
  std::int64_t o[kMaxLabels] = {};
  if (element_count(s.out) == 0) {
    return;
  }
  do {
    A sum{};
    std::int64_t k[kMaxLabels] = {};
    if (element_count(s.summed) > 0) {
      do {
        A product{1};
        for (std::size_t n = 0; n < s.strides.size(); ++n) {
          std::int64_t offset = 0;
          for (std::size_t i = 0; i < rank; ++i) {
            offset += o[i] * s.strides[n][i];
          }
          for (std::size_t i = 0; i < s.summed.size(); ++i) {
            offset += k[i] * s.strides[n][rank + i];
          }
          product *= static_cast<A>(run.inputs[n].as<T>()[offset]);
        }
        sum += product;
      } while (next_index(k, s.summed, s.summed.size()));
    }
    *y++ = static_cast<T>(sum);
  } while (next_index(o, s.out, rank));
}

Result<std::unique_ptr<Kernel>> einsum_kernel(KernelContext& context) {
  std::vector<Dims> operands;
  for (std::size_t i = 0; i < context.input_count(); ++i) {
    operands.push_back(context.input(i).dims);
  }
  auto shape = einsum_shape(context.node(), operands);
  if (!shape.ok()) {
    return shape.status();
  }
  return dispatch_numbers(context.input(0).dtype, [&](auto tag) {
    return make_kernel([s = std::move(*shape)](const KernelRun& run) { einsum<typename decltype(tag)::type>(s, run); });
  });
}

// ---- Det ----

Status infer_det(ShapeContext& context) {
  const Dims& dims = context.dims(0);
  if (dims.size() < 2 || dims.back() != dims[dims.size() - 2]) {
    return context.error(Code::kInvalidArgument, "%s holds no square matrices", to_string(dims).c_str());
  }
  return context.set(0, Dims(dims.begin(), dims.end() - 2));
}

// By elimination with the largest pivot of each column; `a` is overwritten.
double determinant(double* a, std::int64_t n) {
  double product = 1;
  for (std::int64_t c = 0; c < n; ++c) {
    std::int64_t pivot = c;
    for (std::int64_t r = c + 1; r < n; ++r) {
      pivot = std::fabs(a[r * n + c]) > std::fabs(a[pivot * n + c]) ? r : pivot;
    }
    if (a[pivot * n + c] == 0) {
      return 0;
    }
    if (pivot != c) {
      std::swap_ranges(a + c * n, a + (c + 1) * n, a + pivot * n);
      product = -product;
    }
    product *= a[c * n + c];
    for (std::int64_t r = c + 1; r < n; ++r) {
      const double factor = a[r * n + c] / a[c * n + c];
      for (std::int64_t j = c; j < n; ++j) {
        a[r * n + j] -= factor * a[c * n + j];
      }
    }
  }
  return product;
}

Result<std::unique_ptr<Kernel>> det_kernel(KernelContext& context) {
  const std::int64_t count = element_count(context.output(0).dims), n = context.input(0).dims.back();
  return dispatch_floats(context.input(0).dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    return make_kernel(
        [count, n](const KernelRun& run) {
          const T* x = run.inputs[0].as<T>();
          auto* matrix = reinterpret_cast<double*>(run.scratch);
          for (std::int64_t i = 0; i < count; ++i, x += n * n) {
            for (std::int64_t j = 0; j < n * n; ++j) {
              matrix[j] = static_cast<double>(static_cast<ComputeType<T>>(x[j]));
            }
            run.outputs[0].out<T>()[i] = static_cast<T>(static_cast<ComputeType<T>>(determinant(matrix, n)));
          }
        },
        static_cast<std::size_t>(n * n) * sizeof(double));
  });
}

}  // namespace

void register_einsum(Registry& registry) {
  registry.add({.op = "Einsum",
                .first = 12,
                .inputs = "Inputs:T*",
                .outputs = "Output:T",
                .attributes = "equation:string!",
                .types = {{"T", kNumbers}},
                .infer = infer_einsum,
                .kernel = einsum_kernel});
  registry.add({.op = "Det",
                .first = 11,
                .inputs = "X:T",
                .outputs = "Y:T",
                .types = {{"T", kFloats}},
                .infer = infer_det,
                .kernel = det_kernel});
}

}  // namespace sluice::engine
