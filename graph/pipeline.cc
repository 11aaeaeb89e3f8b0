// Declarations, and the public face.
#include <utility>

#include "impl.h"

namespace sluice::graph {

Pipeline::Pipeline(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Pipeline::~Pipeline() = default;

Result<std::unique_ptr<Pipeline>> Pipeline::create(const Options& options) {
  Result<const DriverCalls*> calls = DriverCalls::get();
  if (!calls.ok()) return calls.status();
  if (options.kept_graphs == 0) return Status::error(Code::kInvalidArgument, "kept_graphs is 0: at least 1 is needed");
  auto impl = std::make_unique<Impl>();
  impl->calls = *calls;
  impl->options = options;
  if ((*calls)->current_context(&impl->context) != CUDA_SUCCESS || impl->context == nullptr ||
      (*calls)->context_device(&impl->device) != CUDA_SUCCESS)
    return Status::error(Code::kFailedPrecondition, "no CUDA context is current: call cuCtxSetCurrent first");
  (*calls)->priority_range(&impl->priority_low, &impl->priority_high);
  if (const CUresult e = (*calls)->stream_create(&impl->own_stream, CU_STREAM_NON_BLOCKING, 0); e != CUDA_SUCCESS)
    return Status::error(Code::kInternal, "cuStreamCreateWithPriority: %s", (*calls)->name_of(e));
  if (const CUresult e = (*calls)->event_create(&impl->done, CU_EVENT_DISABLE_TIMING); e != CUDA_SUCCESS)
    return Status::error(Code::kInternal, "cuEventCreate: %s", (*calls)->name_of(e));
  return std::unique_ptr<Pipeline>(new Pipeline(std::move(impl)));
}

Pipeline::Impl::~Impl() {
  static_cast<void>(wait_for_launch().ok());
  for (Instance& instance : instances) destroy(&instance);
  if (arena != 0 && options.pool != nullptr) static_cast<void>(options.pool->free(arena, own_stream).ok());
  if (arena != 0 && options.pool == nullptr) calls->free(arena);
  if (own_stream != nullptr && options.pool != nullptr) static_cast<void>(options.pool->forget(own_stream).ok());
  for (CUevent event : events) calls->event_destroy(event);
  for (CUstream stream : streams) {
    if (stream != nullptr) calls->stream_destroy(stream);
  }
  if (done != nullptr) calls->event_destroy(done);
  if (own_stream != nullptr) calls->stream_destroy(own_stream);
}

void Pipeline::Impl::fail(Status failed) {
  if (status.ok()) status = failed;
}

StageInfo* Pipeline::Impl::add(std::string name, Kind kind, std::vector<Access> accesses) {
  planned = ready = false;
  StageInfo& stage = stages.emplace_back();
  stage.name = std::move(name);
  stage.kind = kind;
  stage.accesses = std::move(accesses);
  return &stage;
}

void Pipeline::Impl::touch_users(std::uint32_t buffer) {
  ready = false;
  for (StageInfo& stage : stages) {
    for (const Access& access : stage.accesses) {
      if (index_of(access.buffer) == buffer) {
        ++stage.version;
        break;
      }
    }
  }
}

Buffer Pipeline::add_buffer(std::string name, CUdeviceptr address, std::uint64_t bytes, bool constant) {
  impl_->planned = impl_->ready = false;
  if (address == 0 || bytes == 0)
    impl_->fail(Status::error(Code::kInvalidArgument, "buffer '%s' has no %s", name.c_str(),
                              address == 0 ? "address" : "bytes"));
  impl_->buffers.push_back({std::move(name), address, bytes, 0, false, constant, false});
  return static_cast<Buffer>(impl_->buffers.size() - 1);
}

Buffer Pipeline::add_temporary(std::string name, std::uint64_t bytes) {
  impl_->planned = impl_->ready = false;
  if (bytes == 0) impl_->fail(Status::error(Code::kInvalidArgument, "temporary '%s' has no bytes", name.c_str()));
  impl_->buffers.push_back({std::move(name), 0, bytes, 0, true, false, false});
  return static_cast<Buffer>(impl_->buffers.size() - 1);
}

Stage Pipeline::add_kernel(std::string name, Kernel kernel, std::vector<Access> accesses) {
  impl_->add(std::move(name), Kind::kKernel, std::move(accesses))->kernel = std::move(kernel);
  return static_cast<Stage>(impl_->stages.size() - 1);
}

Stage Pipeline::add_copy(std::string name, Buffer to, Buffer from, std::uint64_t bytes, std::uint64_t to_offset,
                         std::uint64_t from_offset) {
  StageInfo* stage =
      impl_->add(std::move(name), Kind::kCopy, {writes(to, to_offset, bytes), reads(from, from_offset, bytes)});
  stage->transfer = {to, from, to_offset, from_offset, bytes, 0};
  return static_cast<Stage>(impl_->stages.size() - 1);
}

Stage Pipeline::add_memset(std::string name, Buffer to, std::uint8_t value, std::uint64_t offset, std::uint64_t bytes) {
  StageInfo* stage = impl_->add(std::move(name), Kind::kMemset, {writes(to, offset, bytes)});
  stage->transfer = {to, to, offset, 0, bytes, value};
  return static_cast<Stage>(impl_->stages.size() - 1);
}

Stage Pipeline::add_host(std::string name, HostFunction function, std::vector<Access> accesses) {
  impl_->add(std::move(name), Kind::kHost, std::move(accesses))->host = std::move(function);
  return static_cast<Stage>(impl_->stages.size() - 1);
}

Stage Pipeline::add_code(std::string name, StageCode code, std::vector<Access> accesses) {
  impl_->add(std::move(name), Kind::kCode, std::move(accesses))->code = std::move(code);
  return static_cast<Stage>(impl_->stages.size() - 1);
}

void Pipeline::after(Stage stage, Stage earlier) {
  impl_->planned = impl_->ready = false;
  if (index_of(stage) >= impl_->stages.size() || index_of(earlier) >= impl_->stages.size()) {
    impl_->fail(Status::error(Code::kInvalidArgument, "after(): no such stage"));
  } else {
    impl_->explicit_edges.emplace_back(index_of(earlier), index_of(stage));
  }
}

void Pipeline::set_priority(Stage stage, Priority priority) {
  if (index_of(stage) >= impl_->stages.size())
    return impl_->fail(Status::error(Code::kInvalidArgument, "no such stage"));
  impl_->planned = impl_->ready = false;
  impl_->stages[index_of(stage)].priority = priority;
}

void Pipeline::set_cost(Stage stage, double cost) {
  if (index_of(stage) >= impl_->stages.size())
    return impl_->fail(Status::error(Code::kInvalidArgument, "no such stage"));
  impl_->planned = impl_->ready = false;
  impl_->stages[index_of(stage)].cost = cost;
}

Status Pipeline::plan() { return impl_->plan(); }
Status Pipeline::build() { return impl_->build(); }
Status Pipeline::launch(CUstream stream) { return impl_->launch(stream); }
const std::string& Pipeline::why() const { return impl_->why; }
const Stats& Pipeline::stats() const { return impl_->stats; }

Status Pipeline::set_kernel(Stage stage, Kernel kernel) {
  if (index_of(stage) >= impl_->stages.size() || impl_->stages[index_of(stage)].kind != Kind::kKernel)
    return Status::error(Code::kInvalidArgument, "set_kernel(): no such kernel");
  StageInfo& info = impl_->stages[index_of(stage)];
  info.kernel = std::move(kernel);
  ++info.version;
  // The arguments are checked against what the stage declares before the next launch.
  impl_->planned = impl_->ready = false;
  return {};
}

Status Pipeline::set_accesses(Stage stage, std::vector<Access> accesses) {
  if (index_of(stage) >= impl_->stages.size())
    return Status::error(Code::kInvalidArgument, "set_accesses(): no such stage");
  StageInfo& info = impl_->stages[index_of(stage)];
  if (info.kind == Kind::kCopy || info.kind == Kind::kMemset)
    return Status::error(Code::kInvalidArgument, "stage '%s': its ranges follow from its parameters",
                         info.name.c_str());
  info.accesses = std::move(accesses);
  ++info.version;
  impl_->planned = impl_->ready = false;
  return {};
}

Status Pipeline::set_copy_bytes(Stage stage, std::uint64_t bytes) {
  if (index_of(stage) >= impl_->stages.size() || impl_->stages[index_of(stage)].kind != Kind::kCopy)
    return Status::error(Code::kInvalidArgument, "set_copy_bytes(): no such copy");
  StageInfo& info = impl_->stages[index_of(stage)];
  info.transfer.bytes = bytes;
  for (Access& access : info.accesses) access.bytes = bytes;
  ++info.version;
  impl_->planned = impl_->ready = false;
  return {};
}

Status Pipeline::set_buffer(Buffer buffer, CUdeviceptr address, std::uint64_t bytes) {
  if (index_of(buffer) >= impl_->buffers.size() || impl_->buffers[index_of(buffer)].temporary)
    return Status::error(Code::kInvalidArgument, "set_buffer(): no such buffer");
  BufferInfo& info = impl_->buffers[index_of(buffer)];
  if (address == 0 || bytes == 0)
    return Status::error(Code::kInvalidArgument, "buffer '%s' has no %s", info.name.c_str(),
                         address == 0 ? "address" : "bytes");
  info.address = address;
  info.bytes = bytes;
  info.released = false;
  impl_->touch_users(index_of(buffer));
  impl_->planned = false;
  return {};
}

Status Pipeline::resize(Buffer temporary, std::uint64_t bytes) {
  if (index_of(temporary) >= impl_->buffers.size() || !impl_->buffers[index_of(temporary)].temporary)
    return Status::error(Code::kInvalidArgument, "resize(): no such temporary");
  BufferInfo& info = impl_->buffers[index_of(temporary)];
  if (bytes == 0) return Status::error(Code::kInvalidArgument, "temporary '%s' has no bytes", info.name.c_str());
  info.bytes = bytes;
  impl_->touch_users(index_of(temporary));
  impl_->planned = false;
  return {};
}

Status Pipeline::release(Buffer buffer) {
  if (index_of(buffer) >= impl_->buffers.size())
    return Status::error(Code::kInvalidArgument, "release(): no such buffer");
  impl_->buffers[index_of(buffer)].released = true;
  impl_->planned = impl_->ready = false;
  return {};
}

}  // namespace sluice::graph
