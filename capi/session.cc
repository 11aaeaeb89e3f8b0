#include <cstdint>
#include <cstring>

#include "error.h"
#include "handles.h"

namespace {

using sluice::Code;
using sluice::Status;
using sluice::capi::guarded;
using sluice::capi::null_argument;
namespace engine = sluice::engine;

// A name that the model lacks is a wrong argument here; "not found" is kept for files.
Status as_argument(const Status& status) {
  return status.code() == Code::kNotFound ? Status::error(Code::kInvalidArgument, "%s", status.message()) : status;
}

}  // namespace

int sluice_session_create(sluice_model* model, sluice_session** out) {
  return guarded([&] {
    if (model == nullptr || out == nullptr) {
      return null_argument("sluice_session_create", model == nullptr ? "model" : "out");
    }
    auto session = engine::Session::create(model->model);
    if (!session.ok()) {
      return session.status();
    }
    *out = new sluice_session{std::move(*session)};
    return Status();
  });
}

void sluice_session_destroy(sluice_session* session) { delete session; }

int sluice_session_set_input(sluice_session* session, const char* name, sluice_dtype dtype, size_t rank,
                             const int64_t* dims, const void* data) {
  return guarded([&] {
    if (session == nullptr || name == nullptr || (dims == nullptr && rank > 0)) {
      return null_argument("sluice_session_set_input", session == nullptr ? "session"
                                                       : name == nullptr  ? "name"
                                                                          : "dims");
    }
    // A C caller may pass any number; one that the enumeration lacks must not be read as one of it.
    std::uint32_t number = 0;
    static_assert(sizeof number == sizeof dtype);
    std::memcpy(&number, &dtype, sizeof number);
    const auto type = number <= UINT8_MAX ? static_cast<engine::DType>(number) : engine::DType::kUndefined;
    const std::size_t size = engine::dtype_bytes(type);
    if (size == 0) {
      return Status::error(Code::kInvalidArgument, "input '%.80s': there is no element type %u", name, number);
    }
    if (reinterpret_cast<std::uintptr_t>(data) % size != 0) {
      return Status::error(Code::kInvalidArgument, "input '%.80s': the data is not aligned to %zu bytes", name, size);
    }
    return as_argument(session->session->set_input(name, type, std::span(dims, rank), data));
  });
}

int sluice_session_bind_output(sluice_session* session, const char* name, void* data, size_t capacity) {
  return guarded([&] {
    if (session == nullptr || name == nullptr) {
      return null_argument("sluice_session_bind_output", session == nullptr ? "session" : "name");
    }
    return as_argument(session->session->bind_output(name, data, capacity));
  });
}

int sluice_session_run(sluice_session* session) {
  return guarded(
      [&] { return session == nullptr ? null_argument("sluice_session_run", "session") : session->session->run(); });
}

int sluice_session_output(sluice_session* session, const char* name, sluice_dtype* dtype, size_t* rank,
                          const int64_t** dims, const void** data) {
  return guarded([&] {
    if (session == nullptr || name == nullptr) {
      return null_argument("sluice_session_output", session == nullptr ? "session" : "name");
    }
    auto view = session->session->output(name);
    if (!view.ok()) {
      return as_argument(view.status());
    }
    if (dtype != nullptr) {
      *dtype = static_cast<sluice_dtype>(view->dtype);
    }
    if (rank != nullptr) {
      *rank = view->dims.size();
    }
    if (dims != nullptr) {
      *dims = view->dims.data();
    }
    if (data != nullptr) {
      *data = view->data;
    }
    return Status();
  });
}
