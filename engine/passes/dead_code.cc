// Removes nodes whose results nobody uses.
#include "passes/pass.h"

namespace sluice::engine {
namespace {

Result<std::size_t> run(Graph& graph, const PassContext&) { return graph.remove_dead(); }

}  // namespace

Pass make_dead_code() { return {"dead_code", "removes nodes whose results nobody uses", Pass::Stage::kModel, run}; }

}  // namespace sluice::engine
