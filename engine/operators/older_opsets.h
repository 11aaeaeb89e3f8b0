// Operators that opset 7 only took over: models of older opsets that use no others can be run.
#pragma once

#include <string_view>

namespace sluice::engine {

// Whether the operator of an opset below 7, where the schema of opset 7 takes the node, means what it means there.
bool holds_in_older_opset(std::string_view op, int opset);

}  // namespace sluice::engine
