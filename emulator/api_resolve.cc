// How programs find the driver's functions.
#include "names.h"
#include "state.h"

using namespace sluice::emulator;

namespace {

// A version newer than the driver's is an error, as documented.
bool fine(const char* symbol, void** address, int version, cuuint64_t flags) {
  if (symbol == nullptr || address == nullptr || version > CUDA_VERSION) return false;
  return flags == CU_GET_PROC_ADDRESS_DEFAULT || flags == CU_GET_PROC_ADDRESS_LEGACY_STREAM ||
         flags == CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
}

}  // namespace

#undef cuGetProcAddress

// The ABI of CUDA 11.3.
EMU_API CUresult cuGetProcAddress(const char* symbol, void** address, int version, cuuint64_t flags) {
  if (!fine(symbol, address, version, flags)) return CUDA_ERROR_INVALID_VALUE;
  *address = look_up(symbol, version, flags).address;
  return *address != nullptr ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

// The ABI of CUDA 12.0, in which a name that is missing is no error.
EMU_API CUresult cuGetProcAddress_v2(const char* symbol, void** address, int version, cuuint64_t flags,
                                     CUdriverProcAddressQueryResult* status) {
  if (!fine(symbol, address, version, flags)) return CUDA_ERROR_INVALID_VALUE;
  const Lookup found = look_up(symbol, version, flags);
  *address = found.address;
  if (status != nullptr) {
    *status = found.address != nullptr ? CU_GET_PROC_ADDRESS_SUCCESS
              : found.known            ? CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT
                                       : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  }
  return CUDA_SUCCESS;
}

// The private tables that cudart needs are never imitated.
EMU_API CUresult cuGetExportTable(const void** table, const CUuuid*) {
  static std::once_flag once;
  std::call_once(once, [] {
    say("this program uses the CUDA runtime API (cudart), which cannot run on the emulator; use the driver API, or a "
        "machine with a GPU");
  });
  if (table != nullptr) *table = nullptr;
  return CUDA_ERROR_NOT_SUPPORTED;
}
