// Decides which convolutions of 3 x 3 the CPU computes by Winograd's algorithm (cpu/winograd.cc): those where the
// products that it saves outweigh its transformations and four times the weights to read.
#include "cpu/avx2.h"
#include "passes/pass.h"
#include "passes/rewriter.h"

namespace sluice::engine {
namespace {

constexpr std::int64_t kTile = 4, kPositions = 36;
constexpr std::int64_t kTransform = 20;  // multiply-adds of 16 channels, that a position's transformation takes as long
constexpr std::int64_t kRead = 16;       // multiply-adds that take as long as reading a weight

bool is_faster(const Dims& x, const Dims& y) {
  const std::int64_t channels = 8 * x[1], filters = 8 * y[1], pixels = y[0] * y[2] * y[3];
  const std::int64_t tiles = y[0] * ((y[2] + kTile - 1) / kTile) * ((y[3] + kTile - 1) / kTile);
  const std::int64_t direct = channels * filters * 9 * (pixels + kRead);
  const std::int64_t winograd =
      kPositions * (channels * filters * (tiles + kRead) + kTransform * tiles * (channels + filters));
  return winograd < direct;
}

Result<std::size_t> run(Graph& graph, const PassContext& context) {
  if (context.device != "cpu" || !cpu::has_avx2()) {
    return 0;
  }
  std::size_t changes = 0;
  for (Node& node : graph.nodes) {
    if (node.domain != kOwnDomain || node.op != "BlockedConv" || node.get_int("group", 1) != 1) {
      continue;
    }
    const Dims& x = graph.value(node.inputs[0]).type.dims;
    const Dims& w = graph.value(node.inputs[1]).type.dims;
    const bool fits = x.size() == 5 && w[2] == 3 && w[3] == 3 && node.get_ints("strides") == Dims{1, 1} &&
                      node.get_ints("dilations") == Dims{1, 1};
    if (fits && is_faster(x, graph.value(node.outputs[0]).type.dims)) {
      node.set("winograd", std::int64_t{1});
      ++changes;
    }
  }
  return changes;
}

}  // namespace

Pass make_winograd() {
  return {"winograd", "which convolutions of 3 x 3 are computed by Winograd's algorithm", Pass::Stage::kProgram, run};
}

}  // namespace sluice::engine
