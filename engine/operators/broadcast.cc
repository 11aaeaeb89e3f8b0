#include "operators/broadcast.h"

#include <algorithm>

namespace sluice::engine {

Result<Dims> broadcast_dims(const ShapeContext& context, const Dims& a, const Dims& b) {
  Dims result(std::max(a.size(), b.size()), 1);
  for (std::size_t i = 0; i < result.size(); ++i) {
    const std::int64_t x = i < a.size() ? a[a.size() - 1 - i] : 1;
    const std::int64_t y = i < b.size() ? b[b.size() - 1 - i] : 1;
    if (x != y && x != 1 && y != 1) {
      return context.error(Code::kInvalidArgument, "shapes %s and %s do not broadcast", to_string(a).c_str(),
                           to_string(b).c_str());
    }
    result[result.size() - 1 - i] = x == 1 ? y : x;
  }
  return result;
}

Status infer_broadcast(ShapeContext& context) {
  Dims dims = context.dims(0);
  for (std::size_t i = 1; i < context.input_count(); ++i) {
    if (!context.has_input(i)) {
      continue;
    }
    auto both = broadcast_dims(context, dims, context.dims(i));
    if (!both.ok()) {
      return both.status();
    }
    dims = std::move(*both);
  }
  return context.set(0, std::move(dims));
}

Dims strides_of(const Dims& dims) {
  Dims strides(dims.size(), 1);
  for (std::size_t i = dims.size(); i-- > 1;) {
    strides[i - 1] = strides[i] * dims[i];
  }
  return strides;
}

}  // namespace sluice::engine
