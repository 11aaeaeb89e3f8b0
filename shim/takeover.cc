#include "takeover.h"

#include "real.h"
#include "session.h"

namespace sluice::shim {
namespace {

// Of the first context that took over; a program with several serves its requests from one. Both live as long as the
// context does: nothing of ours outlives it, and nothing needs freeing before.
struct Claim {
  CUcontext context = nullptr;  // null: none yet
  CUstream stream = nullptr;    // null: could not be made
  CUdeviceptr word = 0;
};
Claim claim;  // guarded by claim_lock
Mutex claim_lock;

void prepare(CUcontext context) {
  RelaxedCapture relaxed;
  claim.context = context;
  claim.stream = nullptr;
  if (real.mem_alloc == nullptr || real.stream_create == nullptr || real.memset_d32_async == nullptr) return;
  if (real.mem_alloc(&claim.word, sizeof(unsigned)) != CUDA_SUCCESS) return;
  if (real.stream_create(&claim.stream, CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS) claim.stream = nullptr;
}

}  // namespace

void take_over(const StreamState& stream, cuda_abi::Kind kind) {
  const bool is_held = stream.session.load()->self->gate.load() != 0;  // by a job above: the GPU is not to be had
  if (is_held || kind == cuda_abi::Kind::kKernel || any_capture() || !claim_lock.try_lock()) return;
  const CUcontext context = stream.context.load();
  if (claim.context == nullptr) prepare(context);
  if (claim.context == context && claim.stream != nullptr) real.memset_d32_async(claim.word, 0, 1, claim.stream);
  claim_lock.unlock();
}

void forget_takeover(CUcontext context) {
  Guard guard(claim_lock);
  if (context == nullptr || claim.context == context) claim = Claim{};
}

}  // namespace sluice::shim
