// From declarations to dependencies, places and priorities.
#include <algorithm>
#include <functional>
#include <queue>

#include "impl.h"
#include "offsets.h"

namespace sluice::graph {
namespace {

constexpr std::uint64_t kAlignment = 512;
std::uint64_t aligned(std::uint64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

}  // namespace

Status Pipeline::Impl::check_stages() {
  ranges.clear();
  for (StageInfo& stage : stages) {
    const char* name = stage.name.c_str();
    if (stage.kind == Kind::kKernel && stage.kernel.function == nullptr)
      return Status::error(Code::kInvalidArgument, "stage '%s': its kernel is null", name);
    if ((stage.kind == Kind::kHost && !stage.host) || (stage.kind == Kind::kCode && !stage.code))
      return Status::error(Code::kInvalidArgument, "stage '%s': its function is empty", name);
    stage.first_range = static_cast<std::uint32_t>(ranges.size());
    for (const Access& access : stage.accesses) {
      if (index_of(access.buffer) >= buffers.size())
        return Status::error(Code::kInvalidArgument, "stage '%s' names a buffer that was never added", name);
      const BufferInfo& buffer = buffers[index_of(access.buffer)];
      const bool to_end = access.bytes == kToEnd;
      if (access.offset >= buffer.bytes || (!to_end && access.bytes > buffer.bytes - access.offset))
        return Status::error(
            Code::kInvalidArgument, "stage '%s' accesses %llu bytes at %llu of buffer '%s', which has %llu", name,
            static_cast<unsigned long long>(to_end ? 0 : access.bytes), static_cast<unsigned long long>(access.offset),
            buffer.name.c_str(), static_cast<unsigned long long>(buffer.bytes));
      if (access.bytes == 0)
        return Status::error(Code::kInvalidArgument, "stage '%s' accesses 0 bytes of buffer '%s'", name,
                             buffer.name.c_str());
      if (access.mode != Mode::kRead && buffer.constant)
        return Status::error(Code::kInvalidArgument, "stage '%s' writes buffer '%s', which is declared constant", name,
                             buffer.name.c_str());
      if (buffer.released)
        return Status::error(Code::kFailedPrecondition, "stage '%s' uses buffer '%s', which was freed", name,
                             buffer.name.c_str());
      ranges.push_back({index_of(access.buffer), access.mode != Mode::kWrite, access.mode != Mode::kRead, access.offset,
                        to_end ? buffer.bytes : access.offset + access.bytes});
    }
    stage.ranges = static_cast<std::uint32_t>(ranges.size()) - stage.first_range;
    if (stage.kind != Kind::kKernel) continue;
    for (const Argument& argument : stage.kernel.arguments) {
      if (!argument.is_buffer) continue;
      const bool declared = std::any_of(stage.accesses.begin(), stage.accesses.end(),
                                        [&](const Access& a) { return a.buffer == argument.buffer; });
      if (!declared)
        return Status::error(
            Code::kInvalidArgument, "stage '%s' passes buffer '%s' to its kernel but does not declare it", name,
            index_of(argument.buffer) < buffers.size() ? buffers[index_of(argument.buffer)].name.c_str()
                                                       : "that was never added");
    }
  }
  return {};
}

Status Pipeline::Impl::check_buffers() {
  for (const RangeAccess& range : ranges) {
    BufferInfo& buffer = buffers[range.buffer];
    if (buffer.temporary || buffer.address == 0) continue;
    const auto user = [&] {
      const auto index = static_cast<std::uint32_t>(&range - ranges.data());
      const auto stage = std::find_if(stages.begin(), stages.end(), [index](const StageInfo& s) {
        return index >= s.first_range && index < s.first_range + s.ranges;
      });
      return stage->name.c_str();
    };
    unsigned type = 0;
    int ordinal = 0;
    if (calls->pointer_attribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, buffer.address) != CUDA_SUCCESS)
      return Status::error(Code::kFailedPrecondition,
                           "stage '%s' uses buffer '%s', whose memory was freed or is not CUDA's", user(),
                           buffer.name.c_str());
    if (type != CU_MEMORYTYPE_DEVICE) continue;
    if (calls->pointer_attribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, buffer.address) == CUDA_SUCCESS &&
        ordinal != device)
      return Status::error(Code::kFailedPrecondition, "stage '%s' uses buffer '%s' of device %d on device %d", user(),
                           buffer.name.c_str(), ordinal, device);
    CUdeviceptr base = 0;
    std::size_t bytes = 0;
    if (calls->address_range(&base, &bytes, buffer.address) == CUDA_SUCCESS &&
        buffer.address + buffer.bytes > base + bytes)
      return Status::error(Code::kInvalidArgument, "stage '%s' uses buffer '%s', which ends behind its memory", user(),
                           buffer.name.c_str());
  }
  return {};
}

Status Pipeline::Impl::derive() {
  const std::size_t n = stages.size();
  if (n > Reach::kMaxStages)
    return Status::error(Code::kResourceExhausted, "%zu stages: a pipeline has at most %zu", n, Reach::kMaxStages);
  EdgeDeriver deriver(buffers.size());
  std::vector<std::vector<std::uint32_t>> extra(explicit_edges.empty() ? 0 : n);
  bool forward = true;
  for (const auto& [from, to] : explicit_edges) {
    extra[to].push_back(from);
    forward = forward && from < to;
  }
  std::vector<std::uint32_t> raw, raw_begin{0};
  raw.reserve(4 * n);
  raw_begin.reserve(n + 1);
  for (std::uint32_t s = 0; s < n; ++s) {
    deriver.add(s, &ranges[0] + stages[s].first_range, stages[s].ranges, &raw);
    if (!extra.empty()) raw.insert(raw.end(), extra[s].begin(), extra[s].end());
    raw_begin.push_back(static_cast<std::uint32_t>(raw.size()));
  }
  order.clear();
  position.assign(n, 0);
  if (forward) {
    for (std::uint32_t s = 0; s < n; ++s) order.push_back(s);
  } else {
    std::vector<std::vector<std::uint32_t>> later(n);
    std::vector<std::size_t> missing(n);
    for (std::uint32_t s = 0; s < n; ++s) {
      missing[s] = raw_begin[s + 1] - raw_begin[s];
      for (std::uint32_t i = raw_begin[s]; i < raw_begin[s + 1]; ++i) later[raw[i]].push_back(s);
    }
    std::priority_queue<std::uint32_t, std::vector<std::uint32_t>, std::greater<>> free_stages;
    for (std::uint32_t s = 0; s < n; ++s) {
      if (missing[s] == 0) free_stages.push(s);
    }
    while (!free_stages.empty()) {
      const std::uint32_t s = free_stages.top();
      free_stages.pop();
      order.push_back(s);
      for (const std::uint32_t next : later[s]) {
        if (--missing[next] == 0) free_stages.push(next);
      }
    }
    if (order.size() < n) {
      // Going back from a stage that never came free to one that it waits for ends in the cycle.
      auto s = static_cast<std::uint32_t>(std::find_if(missing.begin(), missing.end(), [](auto m) { return m > 0; }) -
                                          missing.begin());
      std::uint32_t before = s;
      for (std::size_t steps = 0; steps <= n; ++steps) {
        before = s;
        s = *std::find_if(raw.begin() + raw_begin[s], raw.begin() + raw_begin[s + 1],
                          [&](std::uint32_t f) { return missing[f] > 0; });
      }
      return Status::error(Code::kFailedPrecondition, "a cycle: stage '%s' waits for stage '%s', which waits for it",
                           stages[before].name.c_str(), stages[s].name.c_str());
    }
  }
  for (std::uint32_t i = 0; i < n; ++i) position[order[i]] = i;

  reach.reset(n);
  std::vector<std::uint32_t> from;
  edges.clear();
  edges_begin.assign(n + 1, 0);
  std::vector<std::uint32_t> kept, kept_begin(n), kept_end(n);
  kept.reserve(2 * n);
  for (const std::uint32_t s : order) {
    from.assign(raw.begin() + raw_begin[s], raw.begin() + raw_begin[s + 1]);
    reach.add(s, &from, position);
    kept_begin[s] = static_cast<std::uint32_t>(kept.size());
    kept.insert(kept.end(), from.begin(), from.end());
    kept_end[s] = static_cast<std::uint32_t>(kept.size());
  }
  for (std::uint32_t s = 0; s < n; ++s) {
    edges.insert(edges.end(), kept.begin() + kept_begin[s], kept.begin() + kept_end[s]);
    edges_begin[s + 1] = static_cast<std::uint32_t>(edges.size());
  }
  stats.stages = n;
  stats.edges = edges.size();
  return {};
}

Status Pipeline::Impl::place_temporaries() {
  std::vector<std::uint32_t> temporaries, number(buffers.size());
  for (std::uint32_t b = 0; b < buffers.size(); ++b) {
    if (!buffers[b].temporary) continue;
    number[b] = static_cast<std::uint32_t>(temporaries.size());
    temporaries.push_back(b);
  }
  stats.temporaries_bytes = stats.temporaries_peak_bytes = 0;
  if (temporaries.empty()) return {};
  const std::size_t n = temporaries.size();
  std::vector<std::vector<std::uint32_t>> users(n), firsts(n), lasts(n);
  for (const std::uint32_t s : order) {
    for (std::uint32_t i = 0; i < stages[s].ranges; ++i) {
      const RangeAccess& range = ranges[stages[s].first_range + i];
      if (!buffers[range.buffer].temporary) continue;
      std::vector<std::uint32_t>& list = users[number[range.buffer]];
      if (list.empty() && !range.writes)
        return Status::error(Code::kInvalidArgument, "stage '%s' reads temporary '%s' before any stage wrote it",
                             stages[s].name.c_str(), buffers[range.buffer].name.c_str());
      if (list.empty() || list.back() != s) list.push_back(s);
    }
  }
  for (std::size_t t = 0; t < n; ++t) {
    for (const std::uint32_t s : users[t]) {
      const auto& list = users[t];
      if (std::none_of(list.begin(), list.end(), [&](auto o) { return reach.before(o, s); })) firsts[t].push_back(s);
      if (std::none_of(list.begin(), list.end(), [&](auto o) { return reach.before(s, o); })) lasts[t].push_back(s);
    }
  }
  const auto ends_before = [&](std::size_t a, std::size_t b) {
    return std::all_of(lasts[a].begin(), lasts[a].end(), [&](std::uint32_t last) {
      return std::all_of(firsts[b].begin(), firsts[b].end(),
                         [&](std::uint32_t first) { return reach.before(last, first); });
    });
  };
  std::vector<std::vector<std::uint32_t>> conflicts(n);
  std::vector<std::uint64_t> sizes(n);
  for (std::uint32_t a = 0; a < n; ++a) {
    sizes[a] = aligned(buffers[temporaries[a]].bytes);
    stats.temporaries_bytes += sizes[a];
    for (std::uint32_t b = 0; b < a; ++b) {
      if (ends_before(a, b) || ends_before(b, a)) continue;
      conflicts[a].push_back(b);
      conflicts[b].push_back(a);
    }
  }
  for (auto& list : conflicts) std::sort(list.begin(), list.end());
  const Placement placement = place(sizes, conflicts);
  stats.temporaries_peak_bytes = placement.peak;
  for (std::size_t t = 0; t < n; ++t) buffers[temporaries[t]].place = placement.offsets[t];
  return {};
}

void Pipeline::Impl::derive_priorities() {
  const std::size_t n = stages.size();
  priorities.assign(n, Priority::kNormal);
  std::vector<double> until(n), from(n);  // the longest chain that ends, and that begins, with the stage
  double longest = 0;
  for (const std::uint32_t s : order) {
    for (std::uint32_t i = edges_begin[s]; i < edges_begin[s + 1]; ++i) until[s] = std::max(until[s], until[edges[i]]);
    until[s] += stages[s].cost;
    longest = std::max(longest, until[s]);
  }
  for (auto s = order.rbegin(); s != order.rend(); ++s) {
    from[*s] += stages[*s].cost;
    for (std::uint32_t i = edges_begin[*s]; i < edges_begin[*s + 1]; ++i)
      from[edges[i]] = std::max(from[edges[i]], from[*s]);
  }
  several_priorities = false;
  for (std::size_t s = 0; s < n; ++s) {
    const bool critical = until[s] + from[s] - stages[s].cost >= longest * (1 - 1e-9);
    priorities[s] = stages[s].priority != Priority::kDerived ? stages[s].priority
                    : critical                               ? Priority::kHigh
                                                             : Priority::kNormal;
    several_priorities = several_priorities || priorities[s] != priorities[0];
  }
}

Status Pipeline::Impl::plan() {
  if (!status.ok()) return status;
  if (planned) return {};
  if (stages.empty()) return Status::error(Code::kInvalidArgument, "the pipeline has no stages");
  if (Status s = check_stages(); !s.ok()) return s;
  if (Status s = derive(); !s.ok()) return s;
  if (Status s = place_temporaries(); !s.ok()) return s;
  derive_priorities();
  planned = true;
  ready = false;
  return {};
}

AddressList Pipeline::Impl::addresses() const {
  AddressList result;
  for (const BufferInfo& buffer : buffers) result.list.push_back(buffer.address);
  return result;
}

}  // namespace sluice::graph
