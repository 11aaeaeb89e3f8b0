#include "cpu/kernels.h"

#include <fmt/format.h>

namespace sluice::engine::cpu {

#define KERNELS(name) void register_cpu_##name(Kernels& kernels);
#include "cpu_kernels.inc"
#undef KERNELS

const Kernels& Kernels::get() {
  static const Kernels all = [] {
    Kernels built;
#define KERNELS(name) register_cpu_##name(built);
#include "cpu_kernels.inc"
#undef KERNELS
    return built;
  }();
  return all;
}

void Kernels::add(std::string_view domain, std::string_view op, const char* implementation, MakeKernel maker) {
  makers_[fmt::format("{}.{}", domain, op)].push_back({implementation, maker});
}

Result<Kernels::Choice> Kernels::make(KernelContext& context, bool reference) const {
  const Node& node = context.node();
  const auto found = makers_.find(fmt::format("{}.{}", node.domain, node.op));
  if (!reference && found != makers_.end()) {
    for (const Maker& maker : found->second) {
      auto kernel = maker.make(context);
      if (!kernel.ok()) {
        return kernel.status();
      }
      if (*kernel != nullptr) {
        return Choice{std::move(*kernel), maker.implementation};
      }
    }
  }
  if (node.schema->definition.kernel == nullptr) {
    return refuse(node, "the device 'cpu' has no kernel for it", "switch off the pass that made it");
  }
  auto kernel = node.schema->definition.kernel(context);
  if (!kernel.ok()) {
    return kernel.status();
  }
  return Choice{std::move(*kernel), "reference"};
}

}  // namespace sluice::engine::cpu
