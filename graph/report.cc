// What people read: the dependencies as DOT, findings as lines, and what a graph saves.
#include <algorithm>

#include "impl.h"
#include "sluice/base/clock.h"

namespace sluice::graph {
namespace {

const char* shape_of(Kind kind) {
  switch (kind) {
    case Kind::kKernel:
      return "box";
    case Kind::kCopy:
    case Kind::kMemset:
      return "cds";
    case Kind::kHost:
      return "house";
    case Kind::kCode:
      return "component";
  }
  return "box";
}

std::string quoted(const std::string& text) {
  std::string result = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') result += '\\';
    result += c == '\n' ? ' ' : c;
  }
  return result + '"';
}

double median_us(std::vector<std::uint64_t>* times) {
  const auto middle = times->begin() + static_cast<std::ptrdiff_t>(times->size() / 2);
  std::nth_element(times->begin(), middle, times->end());
  return static_cast<double>(*middle) / 1e3;
}

}  // namespace

std::string Finding::to_text() const {
  std::string text = "stage '" + stage + "' " + (is_write ? "writes" : "reads") + " buffer '" + buffer + "' at byte " +
                     std::to_string(offset) + " without declaring it";
  if (!other.empty()) text += ": it races with stage '" + other + "'";
  return text;
}

Result<std::string> Pipeline::to_dot() {
  if (Status s = impl_->plan(); !s.ok()) return s;
  std::string text = "digraph pipeline {\n";
  for (std::size_t s = 0; s < impl_->stages.size(); ++s) {
    const char* style = impl_->several_priorities && impl_->priorities[s] == Priority::kHigh ? ", penwidth=2"
                        : impl_->priorities[s] == Priority::kLow                             ? ", style=dashed"
                                                                                             : "";
    text += "  s" + std::to_string(s) + " [label=" + quoted(impl_->stages[s].name) +
            ", shape=" + shape_of(impl_->stages[s].kind) + style + "];\n";
  }
  for (std::size_t s = 0; s < impl_->stages.size(); ++s) {
    for (std::uint32_t e = impl_->edges_begin[s]; e < impl_->edges_begin[s + 1]; ++e)
      text += "  s" + std::to_string(impl_->edges[e]) + " -> s" + std::to_string(s) + ";\n";
  }
  return text + "}\n";
}

Result<Measured> Pipeline::measure(CUstream stream, int repeats) {
  Impl& impl = *impl_;
  if (repeats < 1) return Status::error(Code::kInvalidArgument, "measure(): %d repeats", repeats);
  if (Status s = launch(stream); !s.ok()) return s;
  Instance* graph = impl.current;
  if (graph == nullptr) return Status::error(Code::kFailedPrecondition, "there is no graph: %s", impl.why.c_str());
  std::vector<std::uint64_t> times[3];
  for (int i = 0; i <= repeats; ++i) {
    for (Instance* current : {graph, static_cast<Instance*>(nullptr)}) {
      if (impl.calls->stream_synchronize(stream) != CUDA_SUCCESS)
        return Status::error(Code::kInternal, "a launch failed");
      const std::uint64_t begun = now_ns();
      impl.current = current;
      Status s = launch(stream);
      impl.current = graph;
      if (!s.ok()) return s;
      if (impl.calls->stream_synchronize(stream) != CUDA_SUCCESS)
        return Status::error(Code::kInternal, "a launch failed");
      if (i > 0) times[current == nullptr].push_back(now_ns() - begun);  // the first also creates streams and events
    }
    const std::uint64_t begun = now_ns();
    Instance made;
    Status s = impl.instantiate(&made);
    times[2].push_back(now_ns() - begun);
    impl.destroy(&made);
    --impl.stats.instantiations;
    if (!s.ok()) return s;
  }
  Measured result;
  result.graph_us = median_us(&times[0]);
  result.stream_us = median_us(&times[1]);
  result.build_us = median_us(&times[2]);
  if (result.stream_us > result.graph_us) result.break_even = result.build_us / (result.stream_us - result.graph_us);
  return result;
}

}  // namespace sluice::graph
