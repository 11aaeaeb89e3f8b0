#include "operators/older_opsets.h"

#include <algorithm>
#include <iterator>

namespace sluice::engine {
namespace {

struct Row {
  std::string_view op;
  int since;
};

// From ONNX's changelog. Where an older form had attributes of its own (consumed_inputs, broadcast, axis, is_test), a
// node that has them is refused, since opset 7 does not list them.
constexpr Row kRows[] = {
    {"Abs", 1},
    {"Add", 6},
    {"ArgMax", 1},
    {"ArgMin", 1},
    {"AveragePool", 1},
    {"Ceil", 1},
    {"Clip", 6},
    {"Concat", 4},
    {"Constant", 1},
    {"Conv", 1},
    {"ConvTranspose", 1},
    {"DepthToSpace", 1},
    {"Div", 6},
    {"Elu", 6},
    {"Exp", 1},
    {"Flatten", 1},
    {"Floor", 1},
    {"Gather", 1},
    {"GlobalAveragePool", 1},
    {"GlobalLpPool", 2},
    {"GlobalMaxPool", 1},
    {"HardSigmoid", 6},
    {"Hardmax", 1},
    {"Identity", 1},
    {"InstanceNormalization", 6},
    {"LRN", 1},
    {"LeakyRelu", 6},
    {"Log", 1},
    {"LogSoftmax", 1},
    {"LpNormalization", 1},
    {"LpPool", 2},
    {"MatMul", 1},
    {"Max", 6},
    {"MaxPool", 1},
    {"Mean", 6},
    {"Min", 6},
    {"Mul", 6},
    {"Neg", 1},
    {"Not", 1},
    {"Pad", 2},
    {"Pow", 1},
    {"Reciprocal", 1},
    {"ReduceL1", 1},
    {"ReduceL2", 1},
    {"ReduceLogSum", 1},
    {"ReduceLogSumExp", 1},
    {"ReduceMax", 1},
    {"ReduceMean", 1},
    {"ReduceMin", 1},
    {"ReduceProd", 1},
    {"ReduceSum", 1},
    {"ReduceSumSquare", 1},
    {"Relu", 1},
    {"Reshape", 5},
    {"Selu", 6},
    {"Shape", 1},
    {"Sigmoid", 1},
    {"Size", 1},
    {"Slice", 1},
    {"Softmax", 1},
    {"Softplus", 1},
    {"Softsign", 1},
    {"SpaceToDepth", 1},
    {"Split", 2},
    {"Sqrt", 1},
    {"Squeeze", 1},
    {"Sub", 6},
    {"Sum", 6},
    {"Tanh", 1},
    {"Tile", 6},
    {"Transpose", 1},
    {"Unsqueeze", 1},
};

}  // namespace

bool holds_in_older_opset(std::string_view op, int opset) {
  const auto* row = std::find_if(std::begin(kRows), std::end(kRows), [&](const Row& r) { return r.op == op; });
  return row != std::end(kRows) && opset >= row->since;
}

}  // namespace sluice::engine
