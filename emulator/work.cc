#include "work.h"

namespace sluice::emulator {

CUresult make_memory_op(bool wait, bool wide, CUdeviceptr address, cuuint64_t value, unsigned flags, Op* op) {
  const std::size_t bytes = wide ? 8 : 4;
  if (address % bytes != 0 ||
      (find_host_range(address, bytes) == nullptr && find_allocation(address, bytes) == nullptr))
    return CUDA_ERROR_INVALID_VALUE;
  const unsigned known = wait ? 3u | CU_STREAM_WAIT_VALUE_FLUSH : 0u | CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER;
  if ((flags & ~known) != 0) return CUDA_ERROR_INVALID_VALUE;
  op->kind = wait ? Op::Kind::kWaitValue : Op::Kind::kWriteValue;
  op->word = reinterpret_cast<void*>(address);
  op->wide = wide;
  op->value = value;
  op->compare = flags & 3u;
  const Settings& s = *state().settings;
  if (wait) op->cost_ns = s.real(static_cast<double>(s.profile.gate_wait_ns));
  return CUDA_SUCCESS;
}

CUresult make_memory_op(const CUstreamBatchMemOpParams& p, Op* op, bool* nothing) {
  *nothing = false;
  switch (p.operation) {
    case CU_STREAM_MEM_OP_WAIT_VALUE_32:
      return make_memory_op(true, false, p.waitValue.address, p.waitValue.value, p.waitValue.flags, op);
    case CU_STREAM_MEM_OP_WAIT_VALUE_64:
      return make_memory_op(true, true, p.waitValue.address, p.waitValue.value64, p.waitValue.flags, op);
    case CU_STREAM_MEM_OP_WRITE_VALUE_32:
      return make_memory_op(false, false, p.writeValue.address, p.writeValue.value, p.writeValue.flags, op);
    case CU_STREAM_MEM_OP_WRITE_VALUE_64:
      return make_memory_op(false, true, p.writeValue.address, p.writeValue.value64, p.writeValue.flags, op);
    case CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES:
    case CU_STREAM_MEM_OP_BARRIER:
      *nothing = true;
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

}  // namespace sluice::emulator
