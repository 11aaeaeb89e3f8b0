// Computes at load what depends on constants only, so that later passes see weights and not how they are made.
#include "compile/specialize.h"
#include "passes/pass.h"

namespace sluice::engine {
namespace {

constexpr std::uint64_t kLargestGrowth = 1u << 20;  // bytes of a result that is larger than what it is made from

Result<std::size_t> run(Graph& graph, const PassContext&) { return fold_constants(graph, kLargestGrowth); }

}  // namespace

Pass make_constant_folding() {
  return {"constant_folding", "computes at load what depends on constants only", Pass::Stage::kModel, run};
}

}  // namespace sluice::engine
