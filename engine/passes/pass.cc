#include "passes/pass.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdio>
#include <unordered_set>

namespace sluice::engine {

#define PASS(name) Pass make_##name();
#include "engine_passes.inc"
#undef PASS

const std::vector<Pass>& passes() {
  static const std::vector<Pass> all = {
#define PASS(name) make_##name(),
#include "engine_passes.inc"
#undef PASS
  };
  return all;
}

std::vector<std::string_view> pass_names() {
  std::vector<std::string_view> names;
  for (const Pass& pass : passes()) {
    names.emplace_back(pass.name);
  }
  return names;
}

std::uint64_t constant_bytes(const Graph& graph) {
  std::unordered_set<const std::byte*> seen;
  std::uint64_t bytes = 0;
  for (const Value& value : graph.values) {
    if (value.constant && seen.insert(value.constant->data()).second) {
      bytes += value.constant->bytes();
    }
  }
  return bytes;
}

Status run_passes(Graph& graph, Pass::Stage stage, const PassContext& context, const std::vector<std::string>& off,
                  bool print, std::vector<PassReport>* reports) {
  const auto is_off = [&](std::string_view name) { return std::find(off.begin(), off.end(), name) != off.end(); };
  const auto names = pass_names();
  for (const std::string& name : off) {
    if (name != "all" && std::find(names.begin(), names.end(), name) == names.end()) {
      return Status::error(Code::kInvalidArgument, "there is no pass '%.60s'; the passes are: %s", name.c_str(),
                           fmt::format("{}", fmt::join(names, ", ")).c_str());
    }
  }
  if (is_off("all")) {
    return {};
  }
  for (const Pass& pass : passes()) {
    if ((pass.stage != stage && pass.stage != Pass::Stage::kBoth) || is_off(pass.name)) {
      continue;
    }
    const std::string before = print ? to_text(graph) : "";
    PassReport report{pass.name, 0, graph.nodes.size(), 0, reports == nullptr ? 0 : constant_bytes(graph), 0};
    auto changes = pass.run(graph, context);
    if (!changes.ok()) {
      return Status::error(changes.status().code(), "pass %s: %s", pass.name, changes.status().message());
    }
    if (reports != nullptr) {
      report.changes = *changes;
      report.nodes_after = graph.nodes.size();
      report.constant_bytes_after = constant_bytes(graph);
      reports->push_back(report);
    }
    if (print && *changes > 0) {
      fmt::print(stderr, "--- before {}\n{}--- after {}: {} changes\n{}", pass.name, before, pass.name, *changes,
                 to_text(graph));
    }
  }
  return {};
}

}  // namespace sluice::engine
