// Copies and memsets, synchronous and not.
#include <algorithm>
#include <cstring>

#include "both.h"

using namespace sluice::emulator;

namespace {

// Up to so much pageable memory is copied aside at the call; for more the call waits until the copy is done.
constexpr std::size_t kStageBytes = 64 * 1024;

enum class Side { kPageable, kPinned, kDevice, kInvalid };

Side side_of(std::uint64_t address, std::size_t bytes) {
  if (find_allocation(address, bytes) != nullptr) return Side::kDevice;
  // An address inside an allocation whose end the range overruns is an error, not host memory.
  if (find_allocation(address, 0) != nullptr || address == 0) return Side::kInvalid;
  return find_host_range(address, bytes) != nullptr ? Side::kPinned : Side::kPageable;
}

// Bytes from the first to behind the last that the copy touches on one side.
std::size_t extent(const CopyWork& c, std::size_t pitch, std::size_t slice) {
  return (c.depth - 1) * slice + (c.height - 1) * pitch + c.width;
}

enum class Wait { kAsync, kSync };
enum class Expect { kAny, kHost, kDevice };

bool fits(Side side, Expect expect) {
  if (side == Side::kInvalid) return false;
  // A host pointer that is registered is a device pointer too.
  return expect != Expect::kDevice || side != Side::kPageable;
}

// What it takes, and which sides it has.
CUresult price(Op* op, Expect to, Expect from, Side* to_side, Side* from_side) {
  CopyWork& work = op->copy;
  op->kind = Op::Kind::kCopy;
  *to_side = side_of(reinterpret_cast<std::uint64_t>(work.to), extent(work, work.to_pitch, work.to_slice));
  *from_side = side_of(reinterpret_cast<std::uint64_t>(work.from), extent(work, work.from_pitch, work.from_slice));
  if (!fits(*to_side, to) || !fits(*from_side, from)) return CUDA_ERROR_INVALID_VALUE;
  const Settings& s = *state().settings;
  const bool to_device = *to_side == Side::kDevice, from_device = *from_side == Side::kDevice;
  work.direction = to_device == from_device ? Direction::kDtoD : to_device ? Direction::kHtoD : Direction::kDtoH;
  const double bytes = static_cast<double>(work.width) * static_cast<double>(work.height * work.depth);
  // Within the card every byte is read and written.
  const double bytes_per_s = to_device && from_device ? s.profile.memory_bandwidth / 2 : s.profile.pcie_bandwidth;
  op->cost_ns = s.real(static_cast<double>(s.profile.copy_latency_ns) + bytes / bytes_per_s * 1e9);
  return CUDA_SUCCESS;
}

// Takes the source's bytes aside, so that the caller may reuse its memory.
void stage(CopyWork* work) {
  work->staged.resize(work->width * work->height * work->depth);
  unsigned char* row = work->staged.data();
  for (std::size_t z = 0; z < work->depth; ++z) {
    for (std::size_t y = 0; y < work->height; ++y, row += work->width) {
      std::memcpy(row, work->from + z * work->from_slice + y * work->from_pitch, work->width);
    }
  }
  work->from = work->staged.data();
  work->from_pitch = work->width;
  work->from_slice = work->width * work->height;
}

CUresult copy(Stream* at, Call& call, CopyWork work, Expect to, Expect from, Wait wait) {
  if (work.width == 0 || work.height == 0 || work.depth == 0) return CUDA_SUCCESS;
  Op op;
  op.copy = std::move(work);
  Side to_side, from_side;
  if (CUresult e = price(&op, to, from, &to_side, &from_side); e != CUDA_SUCCESS) return e;
  if (at->capture != nullptr) return wait == Wait::kSync ? forbid(at) : put(at, std::move(op), call);
  bool must_wait = wait == Wait::kSync && !(to_side == Side::kDevice && from_side == Side::kDevice);
  if (from_side == Side::kPageable && !must_wait) {
    if (op.copy.width * op.copy.height * op.copy.depth <= kStageBytes) {
      stage(&op.copy);
    } else {
      must_wait = true;
    }
  }
  if (to_side == Side::kPageable) must_wait = true;
  Context* context = at->context;
  std::uint64_t id = 0;
  put(at, std::move(op), call, &id);
  if (must_wait) wait_done(at, id, call.lock);
  return context->error;
}

CopyWork flat(std::uint64_t to, std::uint64_t from, std::size_t bytes) {
  CopyWork work;
  work.to = reinterpret_cast<unsigned char*>(to);
  work.from = reinterpret_cast<const unsigned char*>(from);
  work.width = bytes;
  return work;
}
std::uint64_t number(const void* pointer) { return reinterpret_cast<std::uint64_t>(pointer); }

template <Wait kWait>
CUresult any(bool per_thread, CUdeviceptr to, CUdeviceptr from, std::size_t bytes, CUstream stream) {
  EMU_SUBMIT(stream);
  return copy(at, call, flat(to, from, bytes), Expect::kAny, Expect::kAny, kWait);
}
template <Wait kWait>
CUresult htod(bool per_thread, CUdeviceptr to, const void* from, std::size_t bytes, CUstream stream) {
  EMU_SUBMIT(stream);
  return copy(at, call, flat(to, number(from), bytes), Expect::kDevice, Expect::kHost, kWait);
}
template <Wait kWait>
CUresult dtoh(bool per_thread, void* to, CUdeviceptr from, std::size_t bytes, CUstream stream) {
  EMU_SUBMIT(stream);
  return copy(at, call, flat(number(to), from, bytes), Expect::kHost, Expect::kDevice, kWait);
}
template <Wait kWait>
CUresult dtod(bool per_thread, CUdeviceptr to, CUdeviceptr from, std::size_t bytes, CUstream stream) {
  EMU_SUBMIT(stream);
  return copy(at, call, flat(to, from, bytes), Expect::kDevice, Expect::kDevice, kWait);
}
template <Wait kWait>
CUresult peer(bool per_thread, CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context,
              std::size_t bytes, CUstream stream) {
  EMU_SUBMIT(stream);
  for (CUcontext context : {to_context, from_context}) {
    if (state().contexts.count(reinterpret_cast<Context*>(context)) == 0) return CUDA_ERROR_INVALID_CONTEXT;
  }
  return copy(at, call, flat(to, from, bytes), Expect::kDevice, Expect::kDevice, kWait);
}

// The address that one side of a 2D or 3D copy starts at; false for arrays, which the emulator has not.
bool start_of(CUmemorytype type, const void* host, CUdeviceptr device, std::uint64_t* out) {
  if (type == CU_MEMORYTYPE_ARRAY) return false;
  *out = type == CU_MEMORYTYPE_HOST ? number(host) : device;
  return true;
}
Expect expected(CUmemorytype type) {
  return type == CU_MEMORYTYPE_DEVICE ? Expect::kDevice : type == CU_MEMORYTYPE_HOST ? Expect::kHost : Expect::kAny;
}

template <Wait kWait>
CUresult copy_2d(bool per_thread, const CUDA_MEMCPY2D* p, CUstream stream) {
  EMU_SUBMIT(stream);
  if (p == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::uint64_t to = 0, from = 0;
  if (!start_of(p->dstMemoryType, p->dstHost, p->dstDevice, &to) ||
      !start_of(p->srcMemoryType, p->srcHost, p->srcDevice, &from)) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  CopyWork work = flat(0, 0, p->WidthInBytes);
  work.height = p->Height;
  work.to_pitch = p->dstPitch != 0 ? p->dstPitch : p->WidthInBytes;
  work.from_pitch = p->srcPitch != 0 ? p->srcPitch : p->WidthInBytes;
  if (work.to_pitch < work.width || work.from_pitch < work.width) return CUDA_ERROR_INVALID_VALUE;
  work.to = reinterpret_cast<unsigned char*>(to + p->dstXInBytes + p->dstY * work.to_pitch);
  work.from = reinterpret_cast<const unsigned char*>(from + p->srcXInBytes + p->srcY * work.from_pitch);
  return copy(at, call, std::move(work), expected(p->dstMemoryType), expected(p->srcMemoryType), kWait);
}

// False for arrays, which the emulator cannot copy.
bool work_of(const CUDA_MEMCPY3D& p, CopyWork* out) {
  std::uint64_t to = 0, from = 0;
  if (!start_of(p.dstMemoryType, p.dstHost, p.dstDevice, &to) ||
      !start_of(p.srcMemoryType, p.srcHost, p.srcDevice, &from)) {
    return false;
  }
  CopyWork work = flat(0, 0, p.WidthInBytes);
  work.height = p.Height;
  work.depth = p.Depth;
  work.to_pitch = p.dstPitch != 0 ? p.dstPitch : p.WidthInBytes;
  work.from_pitch = p.srcPitch != 0 ? p.srcPitch : p.WidthInBytes;
  work.to_slice = work.to_pitch * (p.dstHeight != 0 ? p.dstHeight : p.Height);
  work.from_slice = work.from_pitch * (p.srcHeight != 0 ? p.srcHeight : p.Height);
  work.to = reinterpret_cast<unsigned char*>(to + p.dstXInBytes + p.dstY * work.to_pitch + p.dstZ * work.to_slice);
  work.from = reinterpret_cast<const unsigned char*>(from + p.srcXInBytes + p.srcY * work.from_pitch +
                                                     p.srcZ * work.from_slice);
  *out = std::move(work);
  return true;
}

template <Wait kWait>
CUresult copy_3d(bool per_thread, const CUDA_MEMCPY3D* p, CUstream stream) {
  EMU_SUBMIT(stream);
  if (p == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CopyWork work;
  if (!work_of(*p, &work)) return CUDA_ERROR_NOT_SUPPORTED;
  if (work.to_pitch < work.width || work.from_pitch < work.width) return CUDA_ERROR_INVALID_VALUE;
  return copy(at, call, std::move(work), expected(p->dstMemoryType), expected(p->srcMemoryType), kWait);
}

// ---- memsets --------------------------------------------------------------------------------------------------

}  // namespace

namespace sluice::emulator {

CUresult make_copy(const CUDA_MEMCPY3D& p, Op* op) {
  if (!work_of(p, &op->copy)) return CUDA_ERROR_NOT_SUPPORTED;
  const CopyWork& work = op->copy;
  if (work.width == 0 || work.height == 0 || work.depth == 0 || work.to_pitch < work.width ||
      work.from_pitch < work.width) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  Side to_side, from_side;
  return price(op, expected(p.dstMemoryType), expected(p.srcMemoryType), &to_side, &from_side);
}

// A memset is a kernel: it takes its turn on the SMs. None waits for its end, as on the driver for device memory.
CUresult make_fill(CUdeviceptr to, std::size_t pitch, unsigned value, unsigned element, std::size_t width,
                   std::size_t height, Op* op) {
  if (to % element != 0 || (height > 1 && (pitch < width * element || pitch % element != 0)))
    return CUDA_ERROR_INVALID_VALUE;
  const Side side = side_of(to, (height - 1) * pitch + width * element);
  if (side != Side::kDevice && side != Side::kPinned) return CUDA_ERROR_INVALID_VALUE;
  const Settings& s = *state().settings;
  op->kind = Op::Kind::kFill;
  op->fill = {reinterpret_cast<unsigned char*>(to), width, height, pitch, value, element};
  op->work_ns =
      s.real(static_cast<double>(width * element) * static_cast<double>(height) / s.profile.memory_bandwidth * 1e9);
  op->cost_ns = std::max(op->work_ns, s.real(static_cast<double>(s.profile.launch_floor_ns)));
  return CUDA_SUCCESS;
}

}  // namespace sluice::emulator

namespace {

template <class T>
CUresult fill(bool per_thread, CUdeviceptr to, std::size_t pitch, T value, std::size_t width, std::size_t height,
              CUstream stream) {
  EMU_SUBMIT(stream);
  if (width == 0 || height == 0) return CUDA_SUCCESS;
  Op op;
  if (CUresult e = make_fill(to, pitch, value, sizeof(T), width, height, &op); e != CUDA_SUCCESS) return e;
  return put(at, std::move(op), call);
}

template <class T>
CUresult fill_row(bool per_thread, CUdeviceptr to, T value, std::size_t count, CUstream stream) {
  return fill<T>(per_thread, to, 0, value, count, 1, stream);
}

}  // namespace

using Bytes = std::size_t;
EMU_BOTH_DS(cuMemcpy, any<Wait::kSync>, (CUdeviceptr d, CUdeviceptr s, Bytes n), (d, s, n, nullptr))
EMU_BOTH(cuMemcpyAsync, any<Wait::kAsync>, (CUdeviceptr d, CUdeviceptr s, Bytes n, CUstream t), (d, s, n, t))
EMU_BOTH_DS(cuMemcpyHtoD_v2, htod<Wait::kSync>, (CUdeviceptr d, const void* s, Bytes n), (d, s, n, nullptr))
EMU_BOTH(cuMemcpyHtoDAsync_v2, htod<Wait::kAsync>, (CUdeviceptr d, const void* s, Bytes n, CUstream t), (d, s, n, t))
EMU_BOTH_DS(cuMemcpyDtoH_v2, dtoh<Wait::kSync>, (void* d, CUdeviceptr s, Bytes n), (d, s, n, nullptr))
EMU_BOTH(cuMemcpyDtoHAsync_v2, dtoh<Wait::kAsync>, (void* d, CUdeviceptr s, Bytes n, CUstream t), (d, s, n, t))
EMU_BOTH_DS(cuMemcpyDtoD_v2, dtod<Wait::kSync>, (CUdeviceptr d, CUdeviceptr s, Bytes n), (d, s, n, nullptr))
EMU_BOTH(cuMemcpyDtoDAsync_v2, dtod<Wait::kAsync>, (CUdeviceptr d, CUdeviceptr s, Bytes n, CUstream t), (d, s, n, t))
EMU_BOTH_DS(cuMemcpyPeer, peer<Wait::kSync>, (CUdeviceptr d, CUcontext dc, CUdeviceptr s, CUcontext sc, Bytes n),
            (d, dc, s, sc, n, nullptr))
EMU_BOTH(cuMemcpyPeerAsync, peer<Wait::kAsync>,
         (CUdeviceptr d, CUcontext dc, CUdeviceptr s, CUcontext sc, Bytes n, CUstream t), (d, dc, s, sc, n, t))
EMU_BOTH_DS(cuMemcpy2D_v2, copy_2d<Wait::kSync>, (const CUDA_MEMCPY2D* p), (p, nullptr))
EMU_BOTH_DS(cuMemcpy2DUnaligned_v2, copy_2d<Wait::kSync>, (const CUDA_MEMCPY2D* p), (p, nullptr))
EMU_BOTH(cuMemcpy2DAsync_v2, copy_2d<Wait::kAsync>, (const CUDA_MEMCPY2D* p, CUstream t), (p, t))
EMU_BOTH_DS(cuMemcpy3D_v2, copy_3d<Wait::kSync>, (const CUDA_MEMCPY3D* p), (p, nullptr))
EMU_BOTH(cuMemcpy3DAsync_v2, copy_3d<Wait::kAsync>, (const CUDA_MEMCPY3D* p, CUstream t), (p, t))

using U8 = unsigned char;
using U16 = unsigned short;
using U32 = unsigned;
#define EMU_MEMSET(bits)                                                                                               \
  EMU_BOTH_DS(cuMemsetD##bits##_v2, fill_row<U##bits>, (CUdeviceptr d, U##bits v, Bytes n), (d, v, n, nullptr))        \
  EMU_BOTH(cuMemsetD##bits##Async, fill_row<U##bits>, (CUdeviceptr d, U##bits v, Bytes n, CUstream t), (d, v, n, t))   \
  EMU_BOTH_DS(cuMemsetD2D##bits##_v2, fill<U##bits>, (CUdeviceptr d, Bytes p, U##bits v, Bytes w, Bytes h),            \
              (d, p, v, w, h, nullptr))                                                                                \
  EMU_BOTH(cuMemsetD2D##bits##Async, fill<U##bits>, (CUdeviceptr d, Bytes p, U##bits v, Bytes w, Bytes h, CUstream t), \
           (d, p, v, w, h, t))
EMU_MEMSET(8)
EMU_MEMSET(16)
EMU_MEMSET(32)
