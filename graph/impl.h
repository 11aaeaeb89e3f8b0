// What a pipeline consists of. One file for each thing it does: declarations pipeline.cc, dependencies and places
// plan.cc, nodes nodes.cc, graphs and launches launch.cc, streams streams.cc, check.cc, report.cc.
#pragma once

#include <cuda.h>

#include <list>
#include <memory>
#include <string>
#include <vector>

#include "driver_calls.h"
#include "edges.h"
#include "sluice/graph.h"

namespace sluice::graph {

enum class Kind : std::uint8_t { kKernel, kCopy, kMemset, kHost, kCode };

struct BufferInfo {
  std::string name;
  CUdeviceptr address = 0;  // of a temporary: once there is an arena
  std::uint64_t bytes = 0;
  std::uint64_t place = 0;  // of a temporary, in the arena
  bool temporary = false, constant = false, released = false;
};

struct Transfer {  // a copy, or a memset where `from` is not used
  Buffer to{}, from{};
  std::uint64_t to_offset = 0, from_offset = 0, bytes = 0;
  std::uint8_t value = 0;
};

struct StageInfo {
  std::string name;
  Kind kind = Kind::kKernel;
  Priority priority = Priority::kDerived;
  double cost = 1;
  std::uint64_t version = 1;  // of what the driver was told about it
  std::uint32_t first_range = 0, ranges = 0;
  Kernel kernel;
  Transfer transfer;
  HostFunction host;
  StageCode code;
  std::vector<Access> accesses;
};

// Addresses as they were when a stage was told to the driver.
class AddressList final : public Addresses {
 public:
  CUdeviceptr of(Buffer buffer) const override { return list[static_cast<std::uint32_t>(buffer)]; }
  std::vector<CUdeviceptr> list;
};

struct HostCall {
  HostFunction function;
  AddressList addresses;
};

// The driver's parameters of one stage; what they point to lies in it too.
struct Parameters {
  CUDA_KERNEL_NODE_PARAMS_v1 kernel = {};
  std::vector<void*> pointers;
  std::vector<std::uint64_t> values;
  CUDA_MEMCPY3D copy = {};
  CUDA_MEMSET_NODE_PARAMS memset = {};
  CUDA_HOST_NODE_PARAMS host = {};
};

// A graph for one set of dependencies.
struct Instance {
  std::vector<std::uint32_t> key;  // of its edges
  CUgraph graph = nullptr;
  CUgraphExec exec = nullptr;
  std::vector<CUgraphNode> nodes;
  std::vector<std::uint64_t> applied;  // the stages' versions
  std::uint64_t last_used = 0;
};

class Pipeline::Impl {
 public:
  ~Impl();

  // pipeline.cc
  StageInfo* add(std::string name, Kind kind, std::vector<Access> accesses);
  void fail(Status status);  // keeps the first
  void touch_users(std::uint32_t buffer);

  // plan.cc
  Status plan();
  Status check_stages();
  Status check_buffers();
  Status derive();
  Status place_temporaries();
  Status move_temporaries();
  void derive_priorities();
  AddressList addresses() const;

  // nodes.cc
  CUresult fill(const StageInfo& stage, const AddressList& where, Parameters* out);
  Status add_node(std::uint32_t stage, const std::vector<CUgraphNode>& nodes, Instance* to);
  bool update_node(std::uint32_t stage, Instance* instance);
  Result<CUgraph> capture(const StageInfo& stage, int priority);
  HostCall* host_call(const StageInfo& stage, const AddressList& where);

  // launch.cc
  Status build();
  Status make_ready();
  Status instantiate(Instance* out);
  Status wait_for_launch();
  void destroy(Instance* instance);
  Status launch(CUstream stream);
  Status refused(const char* what, CUresult code, const std::string& stage) const;

  // streams.cc
  Status launch_on_streams(CUstream stream);
  Status run_stage(const StageInfo& stage, CUstream stream, const AddressList& where);

  const DriverCalls* calls = nullptr;
  Options options;
  CUcontext context = nullptr;
  CUdevice device = 0;
  int priority_low = 0, priority_high = 0;
  Status status;  // of the declarations
  std::vector<BufferInfo> buffers;
  std::vector<StageInfo> stages;
  std::vector<Edge> explicit_edges;

  bool planned = false;  // all below is of the declarations as they are
  std::vector<RangeAccess> ranges;
  std::vector<std::uint32_t> order, position;     // stages so that all edges go forward, and where each stands
  std::vector<std::uint32_t> edges, edges_begin;  // what each stage waits for: edges[edges_begin[s] .. [s + 1])
  std::vector<Priority> priorities;
  bool several_priorities = false;
  Reach reach;
  CUdeviceptr arena = 0;
  std::uint64_t arena_bytes = 0;

  bool ready = false;  // `current` is of the plan, and every stage's version is applied
  std::list<Instance> instances;
  Instance* current = nullptr;
  std::string why;
  CUstream own_stream = nullptr;  // for capture
  CUevent done = nullptr;         // behind the last launch
  CUstream last_stream = nullptr;
  std::vector<CUstream> streams;                      // for launches without a graph: one high, normal and low in turns
  std::vector<CUevent> events;                        // one a stage
  std::vector<std::unique_ptr<HostCall>> host_calls;  // one a stage: the driver knows their addresses
  Parameters scratch;
  AddressList address_scratch;  // as make_ready() found them
  std::vector<CUgraphNode> node_scratch;
  Stats stats;
};

inline std::uint32_t index_of(Buffer b) { return static_cast<std::uint32_t>(b); }
inline std::uint32_t index_of(Stage s) { return static_cast<std::uint32_t>(s); }

}  // namespace sluice::graph
