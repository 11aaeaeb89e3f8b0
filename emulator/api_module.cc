// Modules, libraries, functions, launches, occupancy.
#include <algorithm>
#include <cstring>
#include <fstream>
#include <iterator>
#include <set>

#include "both.h"

using namespace sluice::emulator;

namespace {

// Says what goes with `key` once a process. REQUIRES: State::mutex.
bool first_time(const std::string& key) {
  static std::set<std::string>& seen = *new std::set<std::string>;
  return seen.insert(key).second;
}

CUresult load(const void* image, Context* context, Module** out) {
  if (image == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const char* text = static_cast<const char*>(image);
  if (!looks_like_ptx(text)) {
    if (first_time("image")) {
      say("a module is not PTX text; the emulator runs known kernels by name from PTX, not compiled code");
    }
    return CUDA_ERROR_NO_BINARY_FOR_GPU;
  }
  sluice::Result<std::vector<PtxEntry>> parsed = parse_ptx(text);
  if (!parsed.ok()) {
    say("%s", parsed.status().message());
    return CUDA_ERROR_INVALID_PTX;
  }
  auto module = std::make_unique<Module>();
  module->context = context;
  for (PtxEntry& entry : *parsed) {
    std::string name = entry.name;
    module->entries.emplace(std::move(name), std::move(entry));
  }
  *out = module.get();
  state().modules.emplace(*out, std::move(module));
  return CUDA_SUCCESS;
}

CUresult get_function(Module* module, const char* name, Function** out) {
  if (name == nullptr || out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  auto made = module->functions.find(name);
  if (made != module->functions.end()) {
    *out = made->second.get();
    return CUDA_SUCCESS;
  }
  auto entry = module->entries.find(name);
  if (entry == module->entries.end()) return CUDA_ERROR_NOT_FOUND;
  const Kernel* kernel = find_kernel(name);
  if (kernel == nullptr) {
    if (first_time(name)) {
      say("kernel %s is not one that the emulator knows (emulator/kernels.h lists them)", name);
    }
    return CUDA_ERROR_NOT_FOUND;
  }
  const std::vector<PtxParam>& params = entry->second.params;
  const bool same = std::equal(params.begin(), params.end(), kernel->param_sizes.begin(), kernel->param_sizes.end(),
                               [](const PtxParam& p, std::size_t bytes) { return p.bytes == bytes; });
  if (!same) {
    if (first_time(name))
      say("kernel %s has other parameters than the emulator's (emulator/kernels.h lists them)", name);
    return CUDA_ERROR_NOT_FOUND;
  }
  auto function = std::make_unique<Function>();
  function->module = module;
  function->name = name;
  function->kernel = kernel;
  function->params = params;
  function->param_bytes = entry->second.param_bytes;
  for (const PtxParam& param : params) function->offsets.push_back(param.offset);
  *out = function.get();
  state().functions.insert(function.get());
  module->functions.emplace(name, std::move(function));
  return CUDA_SUCCESS;
}

CUresult unload(Module* module) {
  auto at = state().modules.find(module);
  if (at == state().modules.end()) return CUDA_ERROR_INVALID_HANDLE;
  for (const auto& [name, function] : module->functions) state().functions.erase(function.get());
  state().modules.erase(at);
  return CUDA_SUCCESS;
}

Module* find_module(const void* handle) {
  auto at = state().modules.find(static_cast<Module*>(const_cast<void*>(handle)));
  return at == state().modules.end() ? nullptr : at->second.get();
}

// CUfunction and CUkernel alike.
Function* find_function(const void* handle) {
  auto* at = static_cast<Function*>(const_cast<void*>(handle));
  return state().functions.count(at) != 0 ? at : nullptr;
}

}  // namespace

// ---- modules --------------------------------------------------------------------------------------------------

EMU_API CUresult cuModuleLoadData(CUmodule* module, const void* image) {
  Call call;
  if (call.error != CUDA_SUCCESS) return call.error;
  if (module == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Module* loaded = nullptr;
  if (CUresult e = load(image, call.context, &loaded); e != CUDA_SUCCESS) return e;
  *module = reinterpret_cast<CUmodule>(loaded);
  return CUDA_SUCCESS;
}
EMU_API CUresult cuModuleLoadDataEx(CUmodule* module, const void* image, unsigned, CUjit_option*, void**) {
  return cuModuleLoadData(module, image);
}
EMU_API CUresult cuModuleLoadFatBinary(CUmodule* module, const void* image) { return cuModuleLoadData(module, image); }

EMU_API CUresult cuModuleLoad(CUmodule* module, const char* path) {
  if (CUresult e = ready(); e != CUDA_SUCCESS) return e;
  if (path == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::ifstream file(path, std::ios::binary);
  if (!file) return CUDA_ERROR_FILE_NOT_FOUND;
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  return cuModuleLoadData(module, text.c_str());
}

EMU_API CUresult cuModuleUnload(CUmodule module) {
  Call call;
  return call.error != CUDA_SUCCESS ? call.error : unload(find_module(module));
}

EMU_API CUresult cuModuleGetFunction(CUfunction* function, CUmodule module, const char* name) {
  Call call;
  if (call.error != CUDA_SUCCESS) return call.error;
  Module* at = find_module(module);
  if (at == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  return get_function(at, name, reinterpret_cast<Function**>(function));
}

EMU_API CUresult cuModuleGetFunctionCount(unsigned* count, CUmodule module) {
  Call call;
  if (call.error != CUDA_SUCCESS) return call.error;
  Module* at = find_module(module);
  if (at == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *count = static_cast<unsigned>(at->entries.size());
  return CUDA_SUCCESS;
}

EMU_API CUresult cuModuleGetGlobal_v2(CUdeviceptr*, std::size_t*, CUmodule module, const char*) {
  Call call;
  if (call.error != CUDA_SUCCESS) return call.error;
  return find_module(module) == nullptr ? CUDA_ERROR_INVALID_HANDLE : CUDA_ERROR_NOT_FOUND;  // kernels only
}

EMU_API CUresult cuModuleGetLoadingMode(CUmoduleLoadingMode* mode) {
  if (mode == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *mode = CU_MODULE_EAGER_LOADING;
  return CUDA_SUCCESS;
}

// ---- libraries ------------------------------------------------------------------------------------------------

EMU_API CUresult cuLibraryLoadData(CUlibrary* library, const void* code, CUjit_option*, void**, unsigned,
                                   CUlibraryOption*, void**, unsigned) {
  Call call(false);
  if (call.error != CUDA_SUCCESS) return call.error;
  if (library == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Module* loaded = nullptr;
  if (CUresult e = load(code, nullptr, &loaded); e != CUDA_SUCCESS) return e;
  *library = reinterpret_cast<CUlibrary>(loaded);
  return CUDA_SUCCESS;
}

EMU_API CUresult cuLibraryUnload(CUlibrary library) {
  Call call(false);
  return call.error != CUDA_SUCCESS ? call.error : unload(find_module(library));
}

EMU_API CUresult cuLibraryGetKernel(CUkernel* kernel, CUlibrary library, const char* name) {
  Call call(false);
  if (call.error != CUDA_SUCCESS) return call.error;
  Module* at = find_module(library);
  if (at == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  return get_function(at, name, reinterpret_cast<Function**>(kernel));
}

EMU_API CUresult cuLibraryGetModule(CUmodule* module, CUlibrary library) {
  Call call;
  if (call.error != CUDA_SUCCESS) return call.error;
  if (find_module(library) == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (module == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *module = reinterpret_cast<CUmodule>(library);
  return CUDA_SUCCESS;
}

EMU_API CUresult cuKernelGetFunction(CUfunction* function, CUkernel kernel) {
  Call call;
  if (call.error != CUDA_SUCCESS) return call.error;
  if (find_function(kernel) == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (function == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *function = reinterpret_cast<CUfunction>(kernel);
  return CUDA_SUCCESS;
}

// ---- functions ------------------------------------------------------------------------------------------------

namespace {

CUresult name_of(const char** name, const void* handle) {
  Call call(false);
  if (call.error != CUDA_SUCCESS) return call.error;
  const Function* at = find_function(handle);
  if (at == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *name = at->name.c_str();
  return CUDA_SUCCESS;
}

CUresult param_info(const void* handle, std::size_t index, std::size_t* offset, std::size_t* bytes) {
  Call call(false);
  if (call.error != CUDA_SUCCESS) return call.error;
  const Function* at = find_function(handle);
  if (at == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (offset == nullptr || index >= at->params.size()) return CUDA_ERROR_INVALID_VALUE;
  *offset = at->params[index].offset;
  if (bytes != nullptr) *bytes = at->params[index].bytes;
  return CUDA_SUCCESS;
}

CUresult attribute_of(int* value, CUfunction_attribute attribute, const void* handle) {
  Call call(false);
  if (call.error != CUDA_SUCCESS) return call.error;
  const Function* at = find_function(handle);
  if (at == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (value == nullptr || attribute < 0 || attribute >= CU_FUNC_ATTRIBUTE_MAX) return CUDA_ERROR_INVALID_VALUE;
  const Profile& p = state().settings->profile;
  const int capability = p.compute_capability_major * 10 + p.compute_capability_minor;
  switch (attribute) {
    case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
      *value = 1024;
      break;
    case CU_FUNC_ATTRIBUTE_NUM_REGS:
      *value = 32;  // of code that is not compiled: enough for full occupancy
      break;
    case CU_FUNC_ATTRIBUTE_PTX_VERSION:
    case CU_FUNC_ATTRIBUTE_BINARY_VERSION:
      *value = capability;
      break;
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
      *value = at->max_dynamic_shared;
      break;
    default:
      *value = 0;
  }
  return CUDA_SUCCESS;
}

CUresult set_attribute(const void* handle, CUfunction_attribute attribute, int value) {
  Call call(false);
  if (call.error != CUDA_SUCCESS) return call.error;
  Function* at = find_function(handle);
  if (at == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (attribute != CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES) return CUDA_SUCCESS;
  if (value < 0 || static_cast<std::uint64_t>(value) > state().settings->profile.shared_bytes_per_block_optin) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  at->max_dynamic_shared = value;
  return CUDA_SUCCESS;
}

}  // namespace

EMU_API CUresult cuFuncGetName(const char** name, CUfunction function) { return name_of(name, function); }
EMU_API CUresult cuKernelGetName(const char** name, CUkernel kernel) { return name_of(name, kernel); }
EMU_API CUresult cuFuncGetParamInfo(CUfunction function, std::size_t index, std::size_t* offset, std::size_t* bytes) {
  return param_info(function, index, offset, bytes);
}
EMU_API CUresult cuKernelGetParamInfo(CUkernel kernel, std::size_t index, std::size_t* offset, std::size_t* bytes) {
  return param_info(kernel, index, offset, bytes);
}
EMU_API CUresult cuFuncGetAttribute(int* value, CUfunction_attribute attribute, CUfunction function) {
  return attribute_of(value, attribute, function);
}
EMU_API CUresult cuKernelGetAttribute(int* value, CUfunction_attribute attribute, CUkernel kernel, CUdevice) {
  return attribute_of(value, attribute, kernel);
}
EMU_API CUresult cuFuncSetAttribute(CUfunction function, CUfunction_attribute attribute, int value) {
  return set_attribute(function, attribute, value);
}
EMU_API CUresult cuKernelSetAttribute(CUfunction_attribute attribute, int value, CUkernel kernel, CUdevice) {
  return set_attribute(kernel, attribute, value);
}
EMU_API CUresult cuFuncSetCacheConfig(CUfunction function, CUfunc_cache) {
  Call call(false);
  if (call.error != CUDA_SUCCESS) return call.error;
  return find_function(function) == nullptr ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
}
EMU_API CUresult cuFuncGetModule(CUmodule* module, CUfunction function) {
  Call call(false);
  if (call.error != CUDA_SUCCESS) return call.error;
  const Function* at = find_function(function);
  if (at == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (module == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *module = reinterpret_cast<CUmodule>(at->module);
  return CUDA_SUCCESS;
}
EMU_API CUresult cuFuncIsLoaded(CUfunctionLoadingState* out, CUfunction function) {
  Call call(false);
  if (call.error != CUDA_SUCCESS) return call.error;
  if (find_function(function) == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *out = CU_FUNCTION_LOADING_STATE_LOADED;
  return CUDA_SUCCESS;
}
EMU_API CUresult cuFuncLoad(CUfunction function) { return cuFuncSetCacheConfig(function, CU_FUNC_CACHE_PREFER_NONE); }

// ---- launches -------------------------------------------------------------------------------------------------

namespace {

// Copies the parameters out of either form in which a launch takes them. False when there are none that fit.
bool gather(const Function& function, void** params, void** extra, std::vector<unsigned char>* out) {
  out->resize(function.param_bytes);
  if (params != nullptr) {
    for (std::size_t i = 0; i < function.params.size(); ++i) {
      std::memcpy(out->data() + function.params[i].offset, params[i], function.params[i].bytes);
    }
    return true;
  }
  if (extra == nullptr) return function.params.empty();
  const void* buffer = nullptr;
  std::size_t bytes = 0;
  for (int i = 0; extra[i] != CU_LAUNCH_PARAM_END; i += 2) {
    if (extra[i] == CU_LAUNCH_PARAM_BUFFER_POINTER) buffer = extra[i + 1];
    if (extra[i] == CU_LAUNCH_PARAM_BUFFER_SIZE) bytes = *static_cast<std::size_t*>(extra[i + 1]);
  }
  if (buffer == nullptr || bytes < function.param_bytes) return function.params.empty();
  std::memcpy(out->data(), buffer, function.param_bytes);
  return true;
}

}  // namespace

namespace sluice::emulator {

CUresult make_kernel(const void* handle, const Shape& shape, void** params, void** extra, Op* op) {
  const Function* function = find_function(handle);
  if (function == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  for (int i = 0; i < 3; ++i) {
    if (shape.grid[i] == 0 || shape.block[i] == 0 || (i > 0 && shape.grid[i] > 65535)) return CUDA_ERROR_INVALID_VALUE;
  }
  if (shape.grid[0] > 2147483647u ||
      static_cast<std::uint64_t>(shape.block[0]) * shape.block[1] * shape.block[2] > 1024 || shape.block[2] > 64 ||
      shape.shared > static_cast<unsigned>(function->max_dynamic_shared)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  op->kind = Op::Kind::kKernel;
  if (!gather(*function, params, extra, &op->kernel.params)) return CUDA_ERROR_INVALID_VALUE;
  op->kernel.function = function;
  op->kernel.shape = shape;
  op->kernel.kernel = function->kernel;
  op->kernel.offsets = function->offsets;
  const KernelCost cost = function->kernel->cost(KernelCall(op->kernel.params, op->kernel.offsets, nullptr, nullptr));
  const Settings& s = *state().settings;
  op->work_ns = s.real(std::max(
      {cost.fixed_ns, cost.bytes / s.profile.memory_bandwidth * 1e9, cost.operations / s.profile.flops_fp32 * 1e9}));
  op->cost_ns = std::max(op->work_ns, s.real(static_cast<double>(s.profile.launch_floor_ns)));
  return CUDA_SUCCESS;
}

}  // namespace sluice::emulator

namespace {

CUresult launch_shape(bool per_thread, CUfunction handle, const Shape& shape, CUstream stream, void** params,
                      void** extra) {
  EMU_SUBMIT(stream);
  Op op;
  if (CUresult e = make_kernel(handle, shape, params, extra, &op); e != CUDA_SUCCESS) return e;
  return put(at, std::move(op), call);
}

CUresult launch(bool per_thread, CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                unsigned bz, unsigned shared, CUstream stream, void** params, void** extra) {
  return launch_shape(per_thread, f, {{gx, gy, gz}, {bx, by, bz}, shared}, stream, params, extra);
}

CUresult launch_ex(bool per_thread, const CUlaunchConfig* c, CUfunction f, void** params, void** extra) {
  if (CUresult e = ready(); e != CUDA_SUCCESS) return e;
  if (c == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const Shape shape{
      {c->gridDimX, c->gridDimY, c->gridDimZ}, {c->blockDimX, c->blockDimY, c->blockDimZ}, c->sharedMemBytes};
  return launch_shape(per_thread, f, shape, c->hStream, params, extra);
}

// All blocks of a cooperative launch must be resident at once.
CUresult launch_cooperative(bool per_thread, CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                            unsigned by, unsigned bz, unsigned shared, CUstream stream, void** params) {
  int blocks = 0;
  const std::uint64_t threads = static_cast<std::uint64_t>(bx) * by * bz;
  if (CUresult e = cuOccupancyMaxActiveBlocksPerMultiprocessor(
          &blocks, f, static_cast<int>(std::min<std::uint64_t>(threads, 1 << 20)), shared);
      e != CUDA_SUCCESS) {
    return e;
  }
  const std::uint64_t room = static_cast<std::uint64_t>(blocks) * state().settings->profile.sm_count;
  if (static_cast<std::uint64_t>(gx) * gy * gz > room) return CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE;
  return launch(per_thread, f, gx, gy, gz, bx, by, bz, shared, stream, params, nullptr);
}

}  // namespace

EMU_BOTH(cuLaunchKernel, launch,
         (CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared,
          CUstream s, void** params, void** extra),
         (f, gx, gy, gz, bx, by, bz, shared, s, params, extra))
EMU_BOTH(cuLaunchKernelEx, launch_ex, (const CUlaunchConfig* c, CUfunction f, void** params, void** extra),
         (c, f, params, extra))
EMU_BOTH(cuLaunchCooperativeKernel, launch_cooperative,
         (CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared,
          CUstream s, void** params),
         (f, gx, gy, gz, bx, by, bz, shared, s, params))

// ---- occupancy: limited by threads, blocks and shared memory --------------------------------------------------

EMU_API CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, CUfunction function, int threads,
                                                             std::size_t shared) {
  Call call(false);
  if (call.error != CUDA_SUCCESS) return call.error;
  if (find_function(function) == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (blocks == nullptr || threads <= 0) return CUDA_ERROR_INVALID_VALUE;
  const Profile& p = state().settings->profile;
  const int warps = (threads + 31) / 32;
  int room = threads > 1024 ? 0 : std::min(p.max_blocks_per_sm, p.max_threads_per_sm / 32 / warps);
  if (shared > 0) room = std::min<int>(room, static_cast<int>(p.shared_bytes_per_sm / shared));
  *blocks = room;
  return CUDA_SUCCESS;
}
EMU_API CUresult cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, CUfunction function, int threads,
                                                                      std::size_t shared, unsigned) {
  return cuOccupancyMaxActiveBlocksPerMultiprocessor(blocks, function, threads, shared);
}
EMU_API CUresult cuOccupancyMaxPotentialBlockSize(int* grid, int* block, CUfunction function,
                                                  CUoccupancyB2DSize shared_of, std::size_t shared, int limit) {
  if (grid == nullptr || block == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *block = limit > 0 && limit < 1024 ? std::max(32, limit / 32 * 32) : 1024;
  int blocks = 0;
  const std::size_t bytes = shared_of != nullptr ? shared_of(*block) : shared;
  const CUresult result = cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, function, *block, bytes);
  if (result == CUDA_SUCCESS) *grid = blocks * state().settings->profile.sm_count;
  return result;
}
EMU_API CUresult cuOccupancyMaxPotentialBlockSizeWithFlags(int* grid, int* block, CUfunction function,
                                                           CUoccupancyB2DSize shared_of, std::size_t shared, int limit,
                                                           unsigned) {
  return cuOccupancyMaxPotentialBlockSize(grid, block, function, shared_of, shared, limit);
}
