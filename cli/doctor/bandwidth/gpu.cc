#include "gpu.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "sluice/driver.h"

namespace sluice::cli::doctor {
namespace {

constexpr std::uint64_t kHostBytes = std::uint64_t{256} << 20;
constexpr std::uint64_t kHostBytesOfEmulated = std::uint64_t{16} << 20;
constexpr std::size_t kProofBytes = 4096;  // compared after a copy, at its beginning, middle and end
constexpr int kTrials = 3;                 // of each shape
constexpr unsigned kNever = 0x5eed1e55;

constexpr KernelShape kShapes[] = {{256, 4}, {256, 8}, {256, 16}, {512, 4}, {512, 8}, {1024, 4}, {1024, 8}};
// Blocks in proportion to what the multiprocessors hold at once; 0: one for each tile.
constexpr double kFills[] = {0, 0.5, 1, 2, 4};

std::string uuid_text(const CUuuid& uuid) {
  std::string text = "GPU-";
  for (std::size_t i = 0; i < sizeof uuid.bytes; ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += fmt::format("{:02x}", static_cast<unsigned char>(uuid.bytes[i]));
  }
  return text;
}

}  // namespace

Result<BandwidthDriver> BandwidthDriver::open() {
  const Result<void*> library = driver::open_process_library();
  if (!library.ok()) return library.status();
  BandwidthDriver d = {};
  const char* missing = nullptr;
  const auto look = [&](const char* name, auto* out) {
    using F = std::remove_pointer_t<decltype(out)>;
    *out = driver::symbol<F>(*library, name);
    if (*out == nullptr && missing == nullptr) missing = name;
  };
  look("cuInit", &d.init);
  look("cuGetErrorName", &d.error_name);
  look("cuDeviceGetCount", &d.device_count);
  look("cuDeviceGet", &d.device_get);
  look("cuDeviceGetName", &d.device_name);
  look("cuDeviceGetUuid", &d.device_uuid);
  look("cuDeviceGetAttribute", &d.device_attribute);
  look("cuDeviceCanAccessPeer", &d.can_access_peer);
  look("cuDevicePrimaryCtxRetain", &d.retain);
  look("cuDevicePrimaryCtxRelease_v2", &d.release);
  look("cuCtxSetCurrent", &d.set_current);
  look("cuCtxEnablePeerAccess", &d.enable_peer);
  look("cuMemGetInfo_v2", &d.memory_info);
  look("cuMemAlloc_v2", &d.allocate);
  look("cuMemAllocHost_v2", &d.allocate_host);
  look("cuMemFreeHost", &d.free_host);
  look("cuModuleLoadData", &d.load_module);
  look("cuModuleGetFunction", &d.function);
  look("cuStreamCreate", &d.stream_create);
  look("cuStreamSynchronize", &d.stream_synchronize);
  look("cuEventCreate", &d.event_create);
  look("cuEventRecord", &d.event_record);
  look("cuEventElapsedTime", &d.event_elapsed);
  look("cuMemcpyHtoDAsync_v2", &d.to_device);
  look("cuMemcpyDtoHAsync_v2", &d.to_host);
  look("cuMemcpyDtoDAsync_v2", &d.on_device);
  look("cuMemcpyPeerAsync", &d.to_peer);
  look("cuLaunchKernel", &d.launch);
  if (missing != nullptr) return Status::error(Code::kUnavailable, "the driver has no %s: update it", missing);
  d.simulated = driver::is_emulator(*library);
  const CUresult result = d.init(0);
  if (result == CUDA_SUCCESS) return d;
  return Status::error(Code::kUnavailable, "%s", d.check(result, "cuInit").message());
}

Status BandwidthDriver::check(CUresult result, const char* what) const {
  if (result == CUDA_SUCCESS) return {};
  const char* name = nullptr;
  error_name(result, &name);
  return Status::error(Code::kInternal, "%s: %s", what, name == nullptr ? "an unknown error" : name);
}

#define SLUICE_TRY(result, what)                                   \
  do {                                                             \
    if (Status s = driver_.check(result, what); !s.ok()) return s; \
  } while (false)

Result<std::unique_ptr<BandwidthGpu>> BandwidthGpu::open(const BandwidthDriver& driver, int ordinal,
                                                         std::uint64_t asked_bytes) {
  std::unique_ptr<BandwidthGpu> gpu(new BandwidthGpu(driver, ordinal));
  if (Status s = gpu->prepare(asked_bytes); !s.ok()) return s;
  return gpu;
}

Result<BandwidthCard> BandwidthGpu::describe(const BandwidthDriver& driver, int ordinal) {
  BandwidthGpu gpu(driver, ordinal);
  if (Status s = gpu.describe(); !s.ok()) return s;
  return gpu.card_;
}

// With its context goes all that was allocated in it.
BandwidthGpu::~BandwidthGpu() {
  if (context_ == nullptr) return;
  driver_.set_current(context_);
  if (pinned_ != nullptr) driver_.free_host(pinned_);
  driver_.set_current(nullptr);
  driver_.release(device_);
}

Status BandwidthGpu::describe() {
  SLUICE_TRY(driver_.device_get(&device_, ordinal_), "cuDeviceGet");
  char name[256] = "";
  SLUICE_TRY(driver_.device_name(name, sizeof name, device_), "cuDeviceGetName");
  CUuuid uuid = {};
  SLUICE_TRY(driver_.device_uuid(&uuid, device_), "cuDeviceGetUuid");
  card_.index = ordinal_;
  card_.name = name;
  card_.uuid = uuid_text(uuid);
  const auto attribute = [&](CUdevice_attribute which) {
    int value = 0;
    return driver_.device_attribute(&value, which, device_) == CUDA_SUCCESS && value > 0 ? value : 0;
  };
  card_.memory_clock_khz = static_cast<std::uint64_t>(attribute(CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE));
  card_.bus_bits = static_cast<std::uint64_t>(attribute(CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH));
  card_.l2_bytes = static_cast<std::uint64_t>(attribute(CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE));
  multiprocessors_ = attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
  threads_per_multiprocessor_ = attribute(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR);
  return {};
}

Status BandwidthGpu::prepare(std::uint64_t asked_bytes) {
  if (Status s = describe(); !s.ok()) return s;
  SLUICE_TRY(driver_.retain(&context_, device_), "cuDevicePrimaryCtxRetain");
  SLUICE_TRY(driver_.set_current(context_), "cuCtxSetCurrent");
  std::size_t free = 0, total = 0;
  SLUICE_TRY(driver_.memory_info(&free, &total), "cuMemGetInfo");
  card_.free_bytes = free;
  const Result<std::uint64_t> bytes = buffer_bytes(card_.l2_bytes, free, asked_bytes, driver_.simulated);
  if (!bytes.ok()) return bytes.status();
  card_.buffer_bytes = *bytes;
  card_.host_bytes = std::min(*bytes, driver_.simulated ? kHostBytesOfEmulated : kHostBytes);
  SLUICE_TRY(driver_.stream_create(&stream_, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
  SLUICE_TRY(driver_.event_create(&begin_, CU_EVENT_DEFAULT), "cuEventCreate");
  SLUICE_TRY(driver_.event_create(&end_, CU_EVENT_DEFAULT), "cuEventCreate");
  SLUICE_TRY(driver_.allocate(&from_, card_.buffer_bytes), "cuMemAlloc");
  SLUICE_TRY(driver_.allocate(&to_, card_.buffer_bytes), "cuMemAlloc");
  // Every page is written, or all of them would be the same page of zeros.
  pageable_.assign(card_.host_bytes, 0x5a);
  no_pinned_ = driver_.check(driver_.allocate_host(&pinned_, card_.host_bytes), "cuMemAllocHost");
  if (no_pinned_.ok()) std::memset(pinned_, 0xa5, card_.host_bytes);
  return {};
}

Status BandwidthGpu::load(const KernelShape& shape) {
  auto kernels = std::make_unique<Kernels>();
  kernels->shape = shape;
  CUmodule module = nullptr;
  SLUICE_TRY(driver_.load_module(&module, bandwidth_ptx(shape).c_str()), "cuModuleLoadData");
  SLUICE_TRY(driver_.function(&kernels->read, module, kReadKernel), "cuModuleGetFunction");
  SLUICE_TRY(driver_.function(&kernels->write, module, kWriteKernel), "cuModuleGetFunction");
  SLUICE_TRY(driver_.function(&kernels->copy, module, kCopyKernel), "cuModuleGetFunction");
  kernels_.push_back(std::move(kernels));
  return {};
}

Status BandwidthGpu::launch(Road road, const Launch& how) {
  CUdeviceptr to = road == Road::kWrite ? from_ : to_, from = from_;
  std::uint64_t bytes = card_.buffer_bytes;
  unsigned never = kNever;
  void* read[] = {&from, &bytes, &never, &to};
  void* write[] = {&to, &bytes};
  void* copy[] = {&to, &from, &bytes};
  CUfunction function = how.kernels->copy;
  void** parameters = copy;
  if (road == Road::kRead) function = how.kernels->read, parameters = read;
  if (road == Road::kWrite) function = how.kernels->write, parameters = write;
  return driver_.check(
      driver_.launch(function, how.blocks, 1, 1, how.kernels->shape.threads, 1, 1, 0, stream_, parameters, nullptr),
      "cuLaunchKernel");
}

Result<double> BandwidthGpu::time(Road road, const Launch& how) {
  chosen_[road] = how;
  if (Status s = enqueue(road); !s.ok()) return s;
  return wait_seconds();
}

Status BandwidthGpu::tune() {
  SLUICE_TRY(driver_.set_current(context_), "cuCtxSetCurrent");
  const std::size_t shapes = driver_.simulated ? 1 : std::size(kShapes);  // an emulated kernel has no shape
  for (std::size_t i = 0; i < shapes; ++i) {
    if (Status s = load(kShapes[i]); !s.ok()) return s;
  }
  // Writing first, so that what is read later is not one page of zeros.
  for (const Road road : {Road::kWrite, Road::kRead, Road::kCopy}) {
    Launch best;
    double best_seconds = 0;
    for (const auto& kernels : kernels_) {
      const std::uint64_t tiles = card_.buffer_bytes / kernels->shape.tile_bytes();
      const double resident =
          static_cast<double>(multiprocessors_) * threads_per_multiprocessor_ / kernels->shape.threads;
      for (const double fill : kFills) {
        if (driver_.simulated && fill != kFills[0]) break;
        const auto blocks = fill == 0 ? tiles : static_cast<std::uint64_t>(std::max(1.0, resident * fill));
        const Launch how = {kernels.get(), static_cast<unsigned>(std::min(tiles, blocks))};
        for (int trial = 0; trial < (driver_.simulated ? 1 : kTrials); ++trial) {
          const Result<double> seconds = time(road, how);
          if (!seconds.ok()) return seconds.status();
          if (best.kernels != nullptr && *seconds >= best_seconds) continue;
          best = how;
          best_seconds = *seconds;
        }
      }
    }
    chosen_[road] = best;
  }
  return prove_copy();
}

Status BandwidthGpu::prove_copy() {
  if (Result<double> done = time(Road::kCopy, chosen_[Road::kCopy]); !done.ok()) return done.status();
  const std::uint64_t last = card_.buffer_bytes - kProofBytes;
  for (const std::uint64_t at : {std::uint64_t{0}, last / 2, last}) {
    unsigned char from[kProofBytes], to[kProofBytes];
    SLUICE_TRY(driver_.to_host(from, from_ + at, sizeof from, stream_), "cuMemcpyDtoHAsync");
    SLUICE_TRY(driver_.to_host(to, to_ + at, sizeof to, stream_), "cuMemcpyDtoHAsync");
    SLUICE_TRY(driver_.stream_synchronize(stream_), "cuStreamSynchronize");
    if (std::memcmp(from, to, sizeof from) != 0) {
      return Status::error(Code::kInternal, "GPU %d: a copy on the card differs from its source: run sluice doctor",
                           card_.index);
    }
  }
  return {};
}

std::string BandwidthGpu::shape(Road road) const {
  const auto found = chosen_.find(road);
  if (found == chosen_.end()) return "";
  const Launch& how = found->second;
  return fmt::format("{} blocks of {} threads, {} x 16 bytes", how.blocks, how.kernels->shape.threads,
                     how.kernels->shape.unroll);
}

bool BandwidthGpu::connect(BandwidthGpu* peer) {
  int can = 0;
  if (driver_.can_access_peer(&can, device_, peer->device_) != CUDA_SUCCESS || can == 0) return false;
  driver_.set_current(context_);
  const CUresult result = driver_.enable_peer(peer->context_, 0);
  return result == CUDA_SUCCESS || result == CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
}

std::uint64_t BandwidthGpu::bytes(Road road, const BandwidthGpu* peer) const {
  switch (road) {
    case Road::kHostToDevicePinned:
    case Road::kHostToDevicePageable:
    case Road::kDeviceToHostPinned:
    case Road::kDeviceToHostPageable:
      return card_.host_bytes;
    case Road::kRead:
    case Road::kWrite:
      return card_.buffer_bytes;
    case Road::kCopy:
    case Road::kDriverCopy:
      return 2 * card_.buffer_bytes;  // read and written
    case Road::kPeer:
      return std::min(card_.buffer_bytes, peer->card_.buffer_bytes);
  }
  return 0;
}

Status BandwidthGpu::go(Road road, BandwidthGpu* peer) {
  const std::size_t host = card_.host_bytes;
  switch (road) {
    case Road::kHostToDevicePinned:
      if (!no_pinned_.ok()) return no_pinned_;
      return driver_.check(driver_.to_device(to_, pinned_, host, stream_), "cuMemcpyHtoDAsync");
    case Road::kHostToDevicePageable:
      return driver_.check(driver_.to_device(to_, pageable_.data(), host, stream_), "cuMemcpyHtoDAsync");
    case Road::kDeviceToHostPinned:
      if (!no_pinned_.ok()) return no_pinned_;
      return driver_.check(driver_.to_host(pinned_, from_, host, stream_), "cuMemcpyDtoHAsync");
    case Road::kDeviceToHostPageable:
      return driver_.check(driver_.to_host(pageable_.data(), from_, host, stream_), "cuMemcpyDtoHAsync");
    case Road::kDriverCopy:
      return driver_.check(driver_.on_device(to_, from_, card_.buffer_bytes, stream_), "cuMemcpyDtoDAsync");
    case Road::kPeer:
      return driver_.check(driver_.to_peer(peer->to_, peer->context_, from_, context_, bytes(road, peer), stream_),
                           "cuMemcpyPeerAsync");
    case Road::kRead:
    case Road::kWrite:
    case Road::kCopy:
      return launch(road, chosen_.at(road));
  }
  return {};
}

// Once untimed before, so that clocks and address translation are as they are at work.
Status BandwidthGpu::enqueue(Road road, BandwidthGpu* peer) {
  SLUICE_TRY(driver_.set_current(context_), "cuCtxSetCurrent");
  if (Status s = go(road, peer); !s.ok()) return s;
  SLUICE_TRY(driver_.event_record(begin_, stream_), "cuEventRecord");
  if (Status s = go(road, peer); !s.ok()) return s;
  SLUICE_TRY(driver_.event_record(end_, stream_), "cuEventRecord");
  return {};
}

Result<double> BandwidthGpu::wait_seconds() {
  SLUICE_TRY(driver_.set_current(context_), "cuCtxSetCurrent");
  SLUICE_TRY(driver_.stream_synchronize(stream_), "cuStreamSynchronize");
  float milliseconds = 0;
  SLUICE_TRY(driver_.event_elapsed(&milliseconds, begin_, end_), "cuEventElapsedTime");
  if (milliseconds <= 0) return Status::error(Code::kInternal, "the driver says that a copy took no time");
  return milliseconds / 1e3;
}

#undef SLUICE_TRY

}  // namespace sluice::cli::doctor
