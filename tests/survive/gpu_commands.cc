// Commands that use the GPU, by the driver API alone.
#include <dlfcn.h>
#include <fmt/format.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <thread>
#include <vector>

#include "actor.h"
#include "common/cuda.h"
#include "common/program.h"

namespace sluice::survive {
namespace {

constexpr unsigned kElements = 256;
constexpr int kSpinBatch = 10;  // kernels between two events of the spinner, of which two batches are in flight

// Entry points that the examples do not need, by the very names that programs ask for.
struct More {
  decltype(&::cuLaunchKernel) launch_per_thread;
  CUresult (*stream_synchronize_per_thread)(CUstream);
  CUresult (*context_synchronize)();
  decltype(&::cuMemFree) mem_free;
  CUresult (*copy_to_device)(CUdeviceptr, const void*, std::size_t);
  CUresult (*copy_to_host)(void*, CUdeviceptr, std::size_t);
  decltype(&::cuIpcGetEventHandle) get_event_handle;
  decltype(&::cuIpcOpenEventHandle) open_event_handle;
  decltype(&::cuStreamWaitEvent) stream_wait_event;
  decltype(&::cuLaunchHostFunc) launch_host_function;
  decltype(&::cuCtxGetCurrent) get_current;
  decltype(&::cuStreamBeginCapture) begin_capture;
  decltype(&::cuStreamEndCapture) end_capture;
  CUresult (*instantiate)(CUgraphExec*, CUgraph, unsigned long long);
  decltype(&::cuGraphLaunch) launch_graph;
};

example::Device device;
More more;
CUcontext context;
CUevent shared_event;
CUgraphExec graph;       // capture() makes it
CUdeviceptr ones, sums;  // work adds `ones` to `sums`

std::thread& spinner = *new std::thread;  // never destroyed: exit() may come while it runs
std::atomic<bool> spinning{false};
std::atomic<bool> leaving{false};  // from then on a failed launch of the spinner is what a driver at its end gives
std::atomic<long> spun{0};

void need(CUresult result, const char* what) {
  if (result == CUDA_SUCCESS) return;
  const Status failed = example::check(device, result, what);
  std::exit(example::fail("survive_actor", failed));
}

template <class F>
void load(F* function, const char* name) {
  void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  *function = reinterpret_cast<F>(dlsym(library, name));
  if (*function != nullptr) return;
  std::fprintf(stderr, "survive_actor: libcuda.so.1 has no %s\n", name);
  std::exit(1);
}

CUdeviceptr filled(float value) {
  const std::vector<float> values(kElements, value);
  CUdeviceptr memory = 0;
  need(device.api.mem_alloc(&memory, kElements * sizeof(float)), "cuMemAlloc");
  need(more.copy_to_device(memory, values.data(), kElements * sizeof(float)), "cuMemcpyHtoD");
  return memory;
}

// All kElements are equal, unless something went wrong.
double value_of(CUdeviceptr memory) {
  std::vector<float> values(kElements);
  need(more.copy_to_host(values.data(), memory, kElements * sizeof(float)), "cuMemcpyDtoH");
  for (const float value : values) {
    if (value == values[0]) continue;
    std::fprintf(stderr, "survive_actor: elements differ\n");
    std::exit(1);
  }
  return values[0];
}

CUresult launch_add(CUstream stream, CUdeviceptr to, decltype(&::cuLaunchKernel) launch) {
  unsigned n = kElements;
  float factor = 1;
  void* params[] = {&n, &factor, &ones, &to};
  return launch(device.saxpy, 1, 1, 1, kElements, 1, 1, 0, stream, params, nullptr);
}

std::string open(const std::string&) {
  if (Status status = example::open_device(&device); !status.ok()) std::exit(example::fail("survive_actor", status));
  load(&more.launch_per_thread, "cuLaunchKernel_ptsz");
  load(&more.stream_synchronize_per_thread, "cuStreamSynchronize_ptsz");
  load(&more.context_synchronize, "cuCtxSynchronize");
  load(&more.mem_free, "cuMemFree_v2");
  load(&more.copy_to_device, "cuMemcpyHtoD_v2");
  load(&more.copy_to_host, "cuMemcpyDtoH_v2");
  load(&more.get_event_handle, "cuIpcGetEventHandle");
  load(&more.open_event_handle, "cuIpcOpenEventHandle");
  load(&more.stream_wait_event, "cuStreamWaitEvent");
  load(&more.launch_host_function, "cuLaunchHostFunc");
  load(&more.get_current, "cuCtxGetCurrent");
  load(&more.begin_capture, "cuStreamBeginCapture_v2");
  load(&more.end_capture, "cuStreamEndCapture");
  load(&more.instantiate, "cuGraphInstantiateWithFlags");
  load(&more.launch_graph, "cuGraphLaunch");
  need(more.get_current(&context), "cuCtxGetCurrent");
  ones = filled(1);
  sums = filled(0);
  need(launch_add(device.stream, sums, device.api.launch_kernel), "cuLaunchKernel");
  need(more.context_synchronize(), "cuCtxSynchronize");
  return "open";
}

std::string work(const std::string& count) {
  for (int i = 0; i < std::atoi(count.c_str()); ++i)
    need(launch_add(device.stream, sums, device.api.launch_kernel), "cuLaunchKernel");
  return "launched";
}

// So many pieces of work as one graph, each behind a kernel that takes time.
std::string capture(const std::string& count) {
  CUgraph captured = nullptr;
  std::uint64_t ns = 2'000'000;
  void* params[] = {&ns};
  need(more.begin_capture(device.stream, CU_STREAM_CAPTURE_MODE_GLOBAL), "cuStreamBeginCapture");
  for (int i = 0; i < std::atoi(count.c_str()); ++i) {
    need(device.api.launch_kernel(device.spin, 1, 1, 1, 32, 1, 1, 0, device.stream, params, nullptr), "cuLaunchKernel");
    need(launch_add(device.stream, sums, device.api.launch_kernel), "cuLaunchKernel");
  }
  need(more.end_capture(device.stream, &captured), "cuStreamEndCapture");
  need(more.instantiate(&graph, captured, 0), "cuGraphInstantiateWithFlags");
  return "captured";
}

std::string launch_graph(const std::string&) {
  need(more.launch_graph(graph, device.stream), "cuGraphLaunch");
  return "launched";
}

std::string synchronise(const std::string&) {
  need(device.api.stream_synchronize(device.stream), "cuStreamSynchronize");
  return "synchronised";
}

std::string sum(const std::string&) {
  synchronise("");
  return fmt::format("sum {}", value_of(sums));
}

std::string allocate(const std::string&) {
  CUdeviceptr memory = 0;
  need(device.api.mem_alloc(&memory, 1 << 20), "cuMemAlloc");
  need(more.mem_free(memory), "cuMemFree");
  return "allocated";
}

// Launches kernels of `us` until rest(), never with less than a batch in flight.
void spin_loop(std::uint64_t us) {
  CUstream stream = nullptr;
  CUevent done[2] = {};
  const auto good = [](CUresult result, const char* what) {
    if (result != CUDA_SUCCESS && !leaving.load()) need(result, what);
    return result == CUDA_SUCCESS;
  };
  if (!good(device.api.set_current(context), "cuCtxSetCurrent") ||
      !good(device.api.stream_create(&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate"))
    return;
  for (CUevent& event : done) {
    if (!good(device.api.event_create(&event, CU_EVENT_DISABLE_TIMING), "cuEventCreate")) return;
  }
  std::uint64_t ns = us * 1000;
  void* params[] = {&ns};
  for (long batch = 0; spinning.load(); ++batch) {
    for (int i = 0; i < kSpinBatch; ++i) {
      if (!good(device.api.launch_kernel(device.spin, 1, 1, 1, 32, 1, 1, 0, stream, params, nullptr), "cuLaunchKernel"))
        return;
    }
    if (!good(device.api.event_record(done[batch % 2], stream), "cuEventRecord")) return;
    if (batch == 0) continue;
    if (!good(device.api.event_synchronize(done[(batch + 1) % 2]), "cuEventSynchronize")) return;
    spun.fetch_add(1);
  }
  good(device.api.stream_synchronize(stream), "cuStreamSynchronize");
}

std::string spin(const std::string& us) {
  spinning.store(true);
  spinner = std::thread(spin_loop, std::strtoull(us.c_str(), nullptr, 10));
  return "spinning";
}

std::string count(const std::string&) { return fmt::format("count {}", spun.load()); }

// Stops submitting at once; what is in flight ends by itself.
std::string rest(const std::string&) {
  spinning.store(false);
  return "resting";
}

std::string join(const std::string&) {
  rest("");
  if (spinner.joinable()) spinner.join();
  return "joined";
}

std::string leave_while_spinning(const std::string& code) {
  leaving.store(true);
  if (spinner.joinable()) spinner.detach();
  std::exit(std::atoi(code.c_str()));
}

// Work from what runs inside exit(), as the destructors of statics do.
std::string promise_late_work(const std::string&) {
  std::atexit([] {
    if (launch_add(device.stream, sums, device.api.launch_kernel) == CUDA_SUCCESS &&
        device.api.stream_synchronize(device.stream) == CUDA_SUCCESS) {
      std::printf("late %g\n", value_of(sums));
      std::fflush(stdout);
    }
  });
  return "promised";
}

// Each of `count` threads adds to a sum of its own, on a default, a per-thread or an explicit stream.
std::string threads(const std::string& count) {
  const int all = std::atoi(count.c_str());
  std::vector<CUdeviceptr> own(static_cast<std::size_t>(all));
  for (CUdeviceptr& memory : own) memory = filled(0);
  std::vector<std::thread> running;
  running.reserve(own.size());
  for (int i = 0; i < all; ++i) {
    running.emplace_back([i, memory = own[static_cast<std::size_t>(i)]] {
      need(device.api.set_current(context), "cuCtxSetCurrent");
      CUstream stream = nullptr;
      if (i % 3 == 2) need(device.api.stream_create(&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
      for (int n = 0; n < 100 + i; ++n) {
        need(launch_add(stream, memory, i % 3 == 1 ? more.launch_per_thread : device.api.launch_kernel),
             "cuLaunchKernel");
      }
      need(i % 3 == 1 ? more.stream_synchronize_per_thread(stream) : device.api.stream_synchronize(stream),
           "cuStreamSynchronize");
    });
  }
  for (std::thread& thread : running) thread.join();
  double total = 0;
  for (const CUdeviceptr memory : own) total += value_of(memory);
  return fmt::format("threads {}", total);
}

std::string share_event(const std::string&) {
  CUipcEventHandle handle;
  need(device.api.event_create(&shared_event, CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS), "cuEventCreate");
  need(more.get_event_handle(&handle, shared_event), "cuIpcGetEventHandle");
  std::string text = "event ";
  for (const char byte : handle.reserved) text += fmt::format("{:02x}", static_cast<unsigned char>(byte));
  return text;
}

std::string record(const std::string&) {
  need(device.api.event_record(shared_event, device.stream), "cuEventRecord");
  return "recorded";
}

std::string open_event(const std::string& hex) {
  CUipcEventHandle handle = {};
  for (std::size_t i = 0; i < sizeof handle.reserved && 2 * i + 1 < hex.size(); ++i)
    handle.reserved[i] = static_cast<char>(std::stoi(hex.substr(2 * i, 2), nullptr, 16));
  need(more.open_event_handle(&shared_event, handle), "cuIpcOpenEventHandle");
  return "opened";
}

// What follows on the stream runs after what the event was last recorded behind.
std::string follow(const std::string&) {
  need(more.stream_wait_event(device.stream, shared_event, 0), "cuStreamWaitEvent");
  return "following";
}

// The stream stands still until somebody writes into the file.
std::string call_reader(const std::string& path) {
  char* copy = strdup(path.c_str());
  const auto reader = [](void* user) {
    std::ifstream file(static_cast<char*>(user));
    std::string line;
    std::getline(file, line);
    std::free(user);
  };
  need(more.launch_host_function(device.stream, reader, copy), "cuLaunchHostFunc");
  return "called";
}

// After a fork the driver must refuse; what matters is that it answers.
std::string try_driver(const std::string&) {
  return device.api.init(0) != CUDA_SUCCESS && more.context_synchronize() != CUDA_SUCCESS ? "refused" : "accepted";
}

}  // namespace

std::map<std::string, Command> gpu_commands() {
  return {{"open", open},
          {"work", work},
          {"capture", capture},
          {"graph", launch_graph},
          {"sync", synchronise},
          {"sum", sum},
          {"alloc", allocate},
          {"spin", spin},
          {"count", count},
          {"rest", rest},
          {"join", join},
          {"leave-while-spinning", leave_while_spinning},
          {"late", promise_late_work},
          {"threads", threads},
          {"share-event", share_event},
          {"record", record},
          {"open-event", open_event},
          {"follow", follow},
          {"call-reader", call_reader},
          {"try-driver", try_driver}};
}

}  // namespace sluice::survive
