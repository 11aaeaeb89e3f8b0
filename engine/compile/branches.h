// If: the branch that is taken stands in the graph in place of the node.
#pragma once

#include <cstddef>

#include "ir/graph.h"

namespace sluice::engine {

inline constexpr const char* kBranches[] = {"then_branch", "else_branch"};

bool has_branches(const Node& node);

// Replaces node `at`, an If, by the nodes of the branch that its condition chooses, which may be none; those behind
// move. Errors: kUnimplemented (the condition is no constant), kInvalidArgument.
Status take_branch(Graph& graph, std::size_t at);

}  // namespace sluice::engine
