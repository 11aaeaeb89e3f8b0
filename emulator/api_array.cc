// Arrays and mipmapped arrays: made, described and destroyed. What reads them (textures, surfaces, copies) is missing.
#include <algorithm>

#include "both.h"

namespace sluice::emulator {
namespace {

// Bytes of an element of one channel; 0 for the planar and block-compressed formats, which are not supported.
unsigned channel_bytes(CUarray_format format) {
  switch (format) {
    case CU_AD_FORMAT_UNSIGNED_INT8:
    case CU_AD_FORMAT_SIGNED_INT8:
      return 1;
    case CU_AD_FORMAT_UNSIGNED_INT16:
    case CU_AD_FORMAT_SIGNED_INT16:
    case CU_AD_FORMAT_HALF:
      return 2;
    case CU_AD_FORMAT_UNSIGNED_INT32:
    case CU_AD_FORMAT_SIGNED_INT32:
    case CU_AD_FORMAT_FLOAT:
      return 4;
    default:
      return 0;
  }
}

CUDA_ARRAY3D_DESCRIPTOR level_of(const CUDA_ARRAY3D_DESCRIPTOR& whole, unsigned level) {
  CUDA_ARRAY3D_DESCRIPTOR part = whole;
  const auto shrink = [level](std::size_t extent) {
    return extent == 0 ? 0 : std::max<std::size_t>(extent >> level, 1);
  };
  part.Width = shrink(whole.Width);
  part.Height = shrink(whole.Height);
  if ((whole.Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP)) == 0) part.Depth = shrink(whole.Depth);
  return part;
}

std::size_t bytes_of(const CUDA_ARRAY3D_DESCRIPTOR& d) {
  return d.Width * std::max<std::size_t>(d.Height, 1) * std::max<std::size_t>(d.Depth, 1) * d.NumChannels *
         channel_bytes(d.Format);
}

CUresult create(CUarray* out, const CUDA_ARRAY3D_DESCRIPTOR& description, unsigned levels) {
  Call call(true, true);
  if (call.error != CUDA_SUCCESS) return call.error;
  constexpr unsigned kKnown = CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP | CUDA_ARRAY3D_SURFACE_LDST;
  if (out == nullptr || description.Width == 0) return CUDA_ERROR_INVALID_VALUE;
  if ((description.Flags & ~kKnown) != 0 || channel_bytes(description.Format) == 0) return CUDA_ERROR_NOT_SUPPORTED;
  if (description.NumChannels != 1 && description.NumChannels != 2 && description.NumChannels != 4)
    return CUDA_ERROR_INVALID_VALUE;
  std::size_t bytes = 0;
  for (unsigned level = 0; level < std::max(levels, 1u); ++level) bytes += bytes_of(level_of(description, level));
  auto array = std::make_unique<Array>();
  if (CUresult e = allocate(call.context, bytes, false, &array->address); e != CUDA_SUCCESS) return e;
  array->description = description;
  array->levels = levels;
  *out = reinterpret_cast<CUarray>(array.get());
  state().arrays.emplace(*out, std::move(array));
  return CUDA_SUCCESS;
}

// Null for a handle of the other kind.
Array* find(CUarray handle, bool mipmapped) {
  const auto at = state().arrays.find(handle);
  return at == state().arrays.end() || (at->second->levels != 0) != mipmapped ? nullptr : at->second.get();
}

CUresult destroy(CUarray handle, bool mipmapped) {
  Call call(true, true);
  if (call.error != CUDA_SUCCESS) return call.error;
  const Array* array = find(handle, mipmapped);
  if (array == nullptr || array->part) return CUDA_ERROR_INVALID_HANDLE;
  wait_idle(call.context, call.lock);
  if (array = find(handle, mipmapped); array == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  const std::uint64_t address = array->address;
  free_allocation(address);
  std::erase_if(state().arrays, [&](const auto& other) {
    return other.first == handle || (other.second->part && other.second->address == address);
  });
  return CUDA_SUCCESS;
}

CUarray plain(CUmipmappedArray handle) { return reinterpret_cast<CUarray>(handle); }

}  // namespace
}  // namespace sluice::emulator

using namespace sluice::emulator;

EMU_API CUresult cuArrayCreate_v2(CUarray* out, const CUDA_ARRAY_DESCRIPTOR* d) {
  if (d == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return create(out, {d->Width, d->Height, 0, d->Format, d->NumChannels, 0}, 0);
}
EMU_API CUresult cuArray3DCreate_v2(CUarray* out, const CUDA_ARRAY3D_DESCRIPTOR* description) {
  return description == nullptr ? CUDA_ERROR_INVALID_VALUE : create(out, *description, 0);
}
EMU_API CUresult cuArrayDestroy(CUarray array) { return destroy(array, false); }

EMU_API CUresult cuArray3DGetDescriptor_v2(CUDA_ARRAY3D_DESCRIPTOR* out, CUarray handle) {
  Call call;
  if (call.error != CUDA_SUCCESS) return call.error;
  const Array* array = find(handle, false);
  if (array == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *out = array->description;
  return CUDA_SUCCESS;
}

EMU_API CUresult cuMipmappedArrayCreate(CUmipmappedArray* out, const CUDA_ARRAY3D_DESCRIPTOR* description,
                                        unsigned levels) {
  if (description == nullptr || levels == 0 || levels > 32) return CUDA_ERROR_INVALID_VALUE;
  return create(reinterpret_cast<CUarray*>(out), *description, levels);
}
EMU_API CUresult cuMipmappedArrayDestroy(CUmipmappedArray array) { return destroy(plain(array), true); }

EMU_API CUresult cuMipmappedArrayGetLevel(CUarray* out, CUmipmappedArray handle, unsigned level) {
  Call call;
  if (call.error != CUDA_SUCCESS) return call.error;
  const Array* whole = find(plain(handle), true);
  if (whole == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (out == nullptr || level >= whole->levels) return CUDA_ERROR_INVALID_VALUE;
  auto part = std::make_unique<Array>();
  part->address = whole->address;  // of the whole: it goes with it
  part->description = level_of(whole->description, level);
  part->part = true;
  *out = reinterpret_cast<CUarray>(part.get());
  state().arrays.emplace(*out, std::move(part));
  return CUDA_SUCCESS;
}
