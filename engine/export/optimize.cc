#include <algorithm>
#include <map>

#include "compile/specialize.h"
#include "export/export.h"
#include "import/import.h"
#include "operators/registry.h"
#include "passes/pass.h"

namespace sluice::engine {
namespace {

Status fix_dims(Graph& graph, const std::vector<std::pair<std::string, std::int64_t>>& dims) {
  for (const auto& [name, length] : dims) {
    if (length < 1) {
      return Status::error(Code::kInvalidArgument, "dimension '%.60s' cannot be %lld; use 1 or more", name.c_str(),
                           static_cast<long long>(length));
    }
    bool found = false;
    for (auto* specs : {&graph.input_specs, &graph.output_specs}) {
      for (TensorSpec& spec : *specs) {
        for (std::size_t d = 0; d < spec.dims.size(); ++d) {
          if (spec.dims[d] < 0 && d < spec.symbols.size() && spec.symbols[d] == name) {
            spec.dims[d] = length;
            found = found || specs == &graph.input_specs;
          }
        }
      }
    }
    if (!found) {
      std::string known;
      for (const TensorSpec& spec : graph.input_specs) {
        for (const std::string& symbol : spec.symbols) {
          known += symbol.empty() || known.find("'" + symbol + "'") != std::string::npos ? "" : " '" + symbol + "'";
        }
      }
      return Status::error(Code::kInvalidArgument, "no input has a dimension '%.60s'; those with a name are:%.200s",
                           name.c_str(), known.empty() ? " none" : known.c_str());
    }
  }
  return {};
}

// Where all shapes of inputs are numbers, all that follows from them is folded, and the outputs' shapes are numbers
// too.
Status fold_shapes(Graph& graph, const Limits& limits) {
  const auto shape_inputs = find_shape_inputs(graph);
  for (std::size_t i = 0; i < graph.inputs.size(); ++i) {
    const TensorSpec& spec = graph.input_specs[i];
    const bool fixed =
        spec.has_rank && std::all_of(spec.dims.begin(), spec.dims.end(), [](std::int64_t d) { return d >= 0; });
    if (!fixed || shape_inputs[i]) {
      return {};
    }
  }
  for (std::size_t i = 0; i < graph.inputs.size(); ++i) {
    Value& value = graph.value(graph.inputs[i]);
    value.type.dims = graph.input_specs[i].dims;
    value.has_shape = true;
  }
  if (Status status = specialize(graph, limits.memory_bytes); !status.ok()) {
    return status;
  }
  for (std::size_t i = 0; i < graph.outputs.size(); ++i) {
    TensorSpec& spec = graph.output_specs[i];
    spec.has_rank = true;
    spec.dims = graph.value(graph.outputs[i]).type.dims;
    spec.symbols.assign(spec.dims.size(), "");
  }
  return {};
}

void count_precisions(const Graph& graph, OptimizeReport& report) {
  std::map<std::string, std::size_t> single;
  for (const Node& node : graph.nodes) {
    bool computes_half = false, computes_single = false;
    for (const ValueId id : node.outputs) {
      const DType dtype = id == kNoValue ? DType::kUndefined : graph.value(id).type.dtype;
      computes_half = computes_half || dtype == DType::kFloat16;
      computes_single = computes_single || dtype == DType::kFloat;
    }
    if (node.op != "Cast") {
      report.fp16_operators += computes_half ? 1 : 0;
      single[node.op] += computes_single ? 1 : 0;
    }
  }
  for (const auto& [op, count] : single) {
    if (count > 0) {
      report.fp32_operators.emplace_back(op, count);
    }
  }
}

}  // namespace

Result<OptimizeReport> optimize(const std::string& path, const std::string& out, const OptimizeOptions& options) {
  auto imported = import_onnx(path, options.limits);
  if (!imported.ok()) {
    return imported.status();
  }
  Graph& graph = *imported;
  OptimizeReport report;
  report.operators_before = graph.nodes.size();
  report.bytes_before = constant_bytes(graph);
  for (const Node& node : graph.nodes) {
    report.opset = node.domain.empty() ? node.opset : report.opset;
  }
  Status status = bind_schemas(graph);
  if (status.ok()) {
    status = fix_dims(graph, options.dims);
  }
  const bool folds = std::find(options.passes_off.begin(), options.passes_off.end(), "all") == options.passes_off.end();
  if (status.ok() && folds) {
    status = fold_shapes(graph, options.limits);
  }
  if (status.ok()) {
    const PassContext context{options.precision, "", options.fp32_weights};
    status = run_passes(graph, Pass::Stage::kModel, context, options.passes_off, options.print_passes, &report.passes);
  }
  if (!status.ok()) {
    return status;
  }
  auto written = export_onnx(graph, out, {options.external_data});
  if (!written.ok()) {
    return written.status();
  }
  report.operators_after = graph.nodes.size();
  report.bytes_after = constant_bytes(graph);
  report.file_bytes = written->file_bytes;
  report.external_data = written->external_data;
  if (options.precision == Precision::kFp16) {
    count_precisions(graph, report);
  }
  return report;
}

}  // namespace sluice::engine
