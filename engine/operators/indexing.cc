// Operators that read or write the elements that an index tensor names.
#include <algorithm>
#include <array>
#include <cstring>

#include "operators/broadcast.h"
#include "operators/dispatch.h"
#include "operators/lambda_kernel.h"
#include "operators/registry.h"

namespace sluice::engine {
namespace {

std::int64_t index_at(const TensorRef& indices, std::int64_t i) {
  return indices.dtype == DType::kInt32 ? indices.as<std::int32_t>()[i] : indices.as<std::int64_t>()[i];
}

Status out_of_range(const KernelContext& context) {
  return context.error(Code::kInvalidArgument, "an index is outside the tensor");
}

// Negative indices count from the end. False if there is no such element.
bool wrap(std::int64_t& index, std::int64_t dim) {
  index += index < 0 ? dim : 0;
  return index >= 0 && index < dim;
}

// Calls f(position, offset) for each position of a tensor of `dims`, `offset` being where its indices lead with
// `strides`. Stops where f returns false, and returns that.
template <class F>
bool for_each_position(const Dims& dims, const Dims& strides, F&& f) {
  const std::int64_t count = element_count(dims);
  std::array<std::int64_t, kMaxRank> index{};
  std::int64_t offset = 0;
  for (std::int64_t at = 0; at < count; ++at) {
    if (!f(at, offset)) {
      return false;
    }
    for (std::size_t d = dims.size(); d-- > 0;) {
      offset += strides[d];
      if (++index[d] < dims[d]) {
        break;
      }
      offset -= strides[d] * dims[d];
      index[d] = 0;
    }
  }
  return true;
}

// ---- GatherElements, ScatterElements: indices along one axis, one an element ----

Status check_elements(ShapeContext& context) {
  const Dims &data = context.dims(0), &indices = context.dims(1);
  auto axis = context.axis(context.node().get_int("axis", 0), context.rank(0));
  if (!axis.ok()) {
    return axis.status();
  }
  bool fits = data.size() == indices.size();
  for (std::size_t d = 0; fits && d < data.size(); ++d) {
    fits = static_cast<std::int64_t>(d) == *axis || indices[d] <= data[d];
  }
  return fits ? Status()
              : context.error(Code::kInvalidArgument, "indices of shape %s do not fit %s", to_string(indices).c_str(),
                              to_string(data).c_str());
}

Status infer_gather_elements(ShapeContext& context) {
  Status status = check_elements(context);
  return status.ok() ? context.set(0, context.dims(1)) : status;
}

struct Elements {
  Dims dims;                         // of the indices
  Dims strides;                      // in the data, 0 along the axis
  std::int64_t dim = 0, stride = 0;  // of the axis
};

Elements elements_of(const KernelContext& context) {
  const Dims& data = context.input(0).dims;
  std::int64_t axis = context.node().get_int("axis", 0);
  axis += axis < 0 ? static_cast<std::int64_t>(data.size()) : 0;
  Elements elements{context.input(1).dims, strides_of(data), data[static_cast<std::size_t>(axis)], 0};
  std::swap(elements.stride, elements.strides[static_cast<std::size_t>(axis)]);
  return elements;
}

Result<std::unique_ptr<Kernel>> gather_elements_kernel(KernelContext& context) {
  const Elements elements = elements_of(context);
  const Status error = out_of_range(context);
  return dispatch_sizes(context.output(0).dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    return make_kernel([elements, error](const KernelRun& run) -> Status {
      const T* in = run.inputs[0].as<T>();
      T* out = run.outputs[0].out<T>();
      const bool valid = for_each_position(elements.dims, elements.strides, [&](std::int64_t at, std::int64_t offset) {
        std::int64_t index = index_at(run.inputs[1], at);
        if (!wrap(index, elements.dim)) {
          return false;
        }
        out[at] = in[offset + index * elements.stride];
        return true;
      });
      return valid ? Status() : error;
    });
  });
}

enum class Join : std::uint8_t { kReplace, kAdd, kMultiply };

Join join_of(const Node& node) {
  const std::string reduction = node.get_string("reduction", "none");
  return reduction == "add" ? Join::kAdd : reduction == "mul" ? Join::kMultiply : Join::kReplace;
}

Status check_reduction(const Node& node) {
  const std::string reduction = node.get_string("reduction", "none");
  return reduction == "none" || reduction == "add" || reduction == "mul"
             ? Status()
             : refuse(node, "reduction '" + reduction.substr(0, 40) + "' is not supported", "use none, add or mul");
}

Status refuse_bools(const ShapeContext& context) {
  return join_of(context.node()) != Join::kReplace && context.dtype(0) == DType::kBool
             ? refuse(context.node(), "a reduction of bools", "cast before it")
             : Status();
}

// Integers wrap.
template <class T>
void join(Join how, T& to, T value) {
  using C = std::conditional_t<kIsFloating<T>, ComputeType<T>, std::uint64_t>;
  if (how == Join::kReplace) {
    to = value;
  } else if (how == Join::kAdd) {
    to = static_cast<T>(static_cast<C>(to) + static_cast<C>(value));
  } else {
    to = static_cast<T>(static_cast<C>(to) * static_cast<C>(value));
  }
}

Status infer_scatter_elements(ShapeContext& context) {
  Status status = check_elements(context);
  status = status.ok() ? refuse_bools(context) : status;
  if (status.ok() && context.dims(1) != context.dims(2)) {
    status = context.error(Code::kInvalidArgument, "indices %s and updates %s differ in shape",
                           to_string(context.dims(1)).c_str(), to_string(context.dims(2)).c_str());
  }
  return status.ok() ? context.set(0, context.dims(0)) : status;
}

template <class T>
T* copied(const KernelRun& run, std::int64_t count) {
  std::copy_n(run.inputs[0].as<T>(), count, run.outputs[0].out<T>());
  return run.outputs[0].out<T>();
}

Result<std::unique_ptr<Kernel>> scatter_elements_kernel(KernelContext& context) {
  const Elements elements = elements_of(context);
  const Status error = out_of_range(context);
  const Join how = join_of(context.node());
  const std::int64_t count = element_count(context.input(0).dims);
  return dispatch_numbers(context.output(0).dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    return make_kernel([elements, error, how, count](const KernelRun& run) -> Status {
      T* out = copied<T>(run, count);
      const T* updates = run.inputs[2].as<T>();
      const bool valid = for_each_position(elements.dims, elements.strides, [&](std::int64_t at, std::int64_t offset) {
        std::int64_t index = index_at(run.inputs[1], at);
        if (!wrap(index, elements.dim)) {
          return false;
        }
        join(how, out[offset + index * elements.stride], updates[at]);
        return true;
      });
      return valid ? Status() : error;
    });
  });
}

// ---- GatherND, ScatterND: the last dimension of the indices leads to a slice of the data ----

struct Slices {
  std::int64_t batches = 1, batch_stride = 0;  // elements of the data between batches
  std::int64_t tuples = 0;                     // in a batch
  std::int64_t size = 1;                       // elements of a slice
  Dims dims, strides;                          // of the dimensions that a tuple indexes
};

Status check_tuples(ShapeContext& context, std::int64_t batch_dims) {
  const Dims &data = context.dims(0), &indices = context.dims(1);
  bool fits = !data.empty() && !indices.empty() && batch_dims >= 0 &&
              batch_dims < static_cast<std::int64_t>(std::min(data.size(), indices.size())) && indices.back() >= 1 &&
              indices.back() <= static_cast<std::int64_t>(data.size()) - batch_dims;
  for (std::int64_t d = 0; fits && d < batch_dims; ++d) {
    fits = data[static_cast<std::size_t>(d)] == indices[static_cast<std::size_t>(d)];
  }
  return fits ? Status()
              : context.error(Code::kInvalidArgument, "indices of shape %s do not fit %s", to_string(indices).c_str(),
                              to_string(data).c_str());
}

// The indices' shape without the last dimension, and then a slice's.
Dims tuple_dims(const Dims& data, const Dims& indices, std::int64_t batch_dims) {
  Dims dims(indices.begin(), indices.end() - 1);
  dims.insert(dims.end(), data.begin() + batch_dims + indices.back(), data.end());
  return dims;
}

Slices slices_of(const KernelContext& context, std::int64_t batch_dims) {
  const Dims &data = context.input(0).dims, &indices = context.input(1).dims;
  const Dims strides = strides_of(data);
  const auto first = static_cast<std::ptrdiff_t>(batch_dims),
             last = static_cast<std::ptrdiff_t>(first + indices.back());
  Slices slices;
  slices.batches = element_count(Dims(data.begin(), data.begin() + first));
  slices.batch_stride = element_count(Dims(data.begin() + first, data.end()));
  slices.tuples = element_count(Dims(indices.begin() + first, indices.end() - 1));
  slices.size = element_count(Dims(data.begin() + last, data.end()));
  slices.dims.assign(data.begin() + first, data.begin() + last);
  slices.strides.assign(strides.begin() + first, strides.begin() + last);
  return slices;
}

// Calls f(slice, offset) for each tuple; false if one of them is outside the data.
template <class F>
bool for_each_slice(const Slices& slices, const std::int64_t* indices, F&& f) {
  for (std::int64_t b = 0; b < slices.batches; ++b) {
    for (std::int64_t t = 0; t < slices.tuples; ++t) {
      std::int64_t offset = b * slices.batch_stride;
      for (std::size_t d = 0; d < slices.dims.size(); ++d) {
        std::int64_t index = *indices++;
        if (!wrap(index, slices.dims[d])) {
          return false;
        }
        offset += index * slices.strides[d];
      }
      f(b * slices.tuples + t, offset);
    }
  }
  return true;
}

Status infer_gather_nd(ShapeContext& context) {
  const std::int64_t batch_dims = context.node().get_int("batch_dims", 0);
  Status status = check_tuples(context, batch_dims);
  return status.ok() ? context.set(0, tuple_dims(context.dims(0), context.dims(1), batch_dims)) : status;
}

Result<std::unique_ptr<Kernel>> gather_nd_kernel(KernelContext& context) {
  const Slices slices = slices_of(context, context.node().get_int("batch_dims", 0));
  const auto bytes = static_cast<std::int64_t>(dtype_bytes(context.output(0).dtype));
  const Status error = out_of_range(context);
  return make_kernel([slices, bytes, error](const KernelRun& run) -> Status {
    const auto* in = run.inputs[0].as<std::byte>();
    auto* out = run.outputs[0].out<std::byte>();
    const bool valid =
        for_each_slice(slices, run.inputs[1].as<std::int64_t>(), [&](std::int64_t slice, std::int64_t offset) {
          if (slices.size > 0) {
            std::memcpy(out + slice * slices.size * bytes, in + offset * bytes,
                        static_cast<std::size_t>(slices.size * bytes));
          }
        });
    return valid ? Status() : error;
  });
}

Status infer_scatter_nd(ShapeContext& context) {
  Status status = check_tuples(context, 0);
  status = status.ok() ? refuse_bools(context) : status;
  if (status.ok() && context.dims(2) != tuple_dims(context.dims(0), context.dims(1), 0)) {
    status = context.error(Code::kInvalidArgument, "updates of shape %s do not fit indices of %s",
                           to_string(context.dims(2)).c_str(), to_string(context.dims(1)).c_str());
  }
  return status.ok() ? context.set(0, context.dims(0)) : status;
}

Result<std::unique_ptr<Kernel>> scatter_nd_kernel(KernelContext& context) {
  const Slices slices = slices_of(context, 0);
  const Status error = out_of_range(context);
  const Join how = join_of(context.node());
  const std::int64_t count = element_count(context.input(0).dims);
  return dispatch_numbers(context.output(0).dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    return make_kernel([slices, error, how, count](const KernelRun& run) -> Status {
      T* out = copied<T>(run, count);
      const T* updates = run.inputs[2].as<T>();
      const bool valid =
          for_each_slice(slices, run.inputs[1].as<std::int64_t>(), [&](std::int64_t slice, std::int64_t offset) {
            for (std::int64_t i = 0; i < slices.size; ++i) {
              join(how, out[offset + i], updates[slice * slices.size + i]);
            }
          });
      return valid ? Status() : error;
    });
  });
}

}  // namespace

void register_indexing(Registry& registry) {
  registry.add({.op = "GatherElements",
                .first = 11,
                .inputs = "data:T, indices:I",
                .outputs = "output:T",
                .attributes = "axis:int",
                .types = {{"T", kAllTypes}, {"I", kIndices}},
                .infer = infer_gather_elements,
                .kernel = gather_elements_kernel});
  registry.add({.op = "GatherND",
                .first = 11,
                .last = 11,
                .inputs = "data:T, indices:I",
                .outputs = "output:T",
                .types = {{"T", kAllTypes}, {"I", kInt64s}},
                .infer = infer_gather_nd,
                .kernel = gather_nd_kernel});
  registry.add({.op = "GatherND",
                .first = 12,
                .inputs = "data:T, indices:I",
                .outputs = "output:T",
                .attributes = "batch_dims:int",
                .types = {{"T", kAllTypes}, {"I", kInt64s}},
                .infer = infer_gather_nd,
                .kernel = gather_nd_kernel});
  const auto scatter_elements = [&](const char* op, int first, int last, const char* attributes) {
    registry.add({.op = op,
                  .first = first,
                  .last = last,
                  .inputs = "data:T, indices:I, updates:T",
                  .outputs = "output:T",
                  .attributes = attributes,
                  .types = {{"T", kAllTypes}, {"I", kIndices}},
                  .infer = infer_scatter_elements,
                  .kernel = scatter_elements_kernel,
                  .check = check_reduction});
  };
  scatter_elements("Scatter", 9, 10, "axis:int");
  scatter_elements("ScatterElements", 11, 15, "axis:int");
  scatter_elements("ScatterElements", 16, 17, "axis:int, reduction:string");
  const auto scatter_nd = [&](int first, int last, const char* attributes) {
    registry.add({.op = "ScatterND",
                  .first = first,
                  .last = last,
                  .inputs = "data:T, indices:I, updates:T",
                  .outputs = "output:T",
                  .attributes = attributes,
                  .types = {{"T", kAllTypes}, {"I", kInt64s}},
                  .infer = infer_scatter_nd,
                  .kernel = scatter_nd_kernel,
                  .check = check_reduction});
  };
  scatter_nd(11, 15, "");
  scatter_nd(16, 17, "reduction:string");
}

}  // namespace sluice::engine
