/* Sluice's C interface to the engine (load an ONNX model once, run it from any number of sessions) and to the pool of
 * device memory at the end.
 *
 *     sluice_model_options options = {sizeof options};
 *     options.threads = 2;
 *     sluice_model* model;
 *     sluice_session* session;
 *     if (sluice_model_load("resnet50.onnx", &options, &model) != SLUICE_OK) die(sluice_last_error());
 *     if (sluice_session_create(model, &session) != SLUICE_OK) die(sluice_last_error());
 *     const int64_t dims[] = {1, 3, 224, 224};
 *     sluice_session_set_input(session, "input", SLUICE_FLOAT, 4, dims, pixels);
 *     if (sluice_session_run(session) != SLUICE_OK) die(sluice_last_error());
 *     sluice_session_output(session, "logits", &dtype, &rank, &out_dims, &logits);
 *
 * Errors: every function that returns int returns SLUICE_OK (0) or another sluice_code; what was wrong, where, and what
 * to do is then in sluice_last_error(). A function that failed has changed none of its output parameters, and what it
 * worked on can be used again. A null pointer where none is allowed, or a name that the model lacks, is
 * SLUICE_INVALID_ARGUMENT, never a crash (the counts of a null model are 0). No function exits, throws across this
 * interface or prints.
 *
 * Threads: functions on different models and sessions may run at the same time. One session is used by one thread at a
 * time; the caller sees to that. A model may be used by many threads at once, except that it is released once.
 *
 * Growth: structs start with their size, codes and types only gain values, functions are only added. A program built
 * against an older header goes on working with a newer library. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define SLUICE_API __attribute__((visibility("default")))
#else
#define SLUICE_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* gRPC's codes. */
typedef enum sluice_code {
  SLUICE_OK = 0,
  SLUICE_INVALID_ARGUMENT = 3,    /* a name, type, shape, option or file that is wrong */
  SLUICE_NOT_FOUND = 5,           /* no such file */
  SLUICE_PERMISSION_DENIED = 7,   /* the file cannot be read, or names weights outside its own directory */
  SLUICE_RESOURCE_EXHAUSTED = 8,  /* out of memory, or over one of the importer's limits */
  SLUICE_FAILED_PRECONDITION = 9, /* called in the wrong order, such as run without all inputs */
  SLUICE_UNIMPLEMENTED = 12,      /* valid ONNX that the engine does not do; the message names operator and node */
  SLUICE_INTERNAL = 13,           /* a fault of Sluice's own */
  SLUICE_UNAVAILABLE = 14         /* no such device here */
} sluice_code;

/* Element types, numbered as ONNX numbers them (TensorProto.DataType). */
typedef enum sluice_dtype {
  SLUICE_FLOAT = 1,
  SLUICE_UINT8 = 2,
  SLUICE_INT8 = 3,
  SLUICE_UINT16 = 4,
  SLUICE_INT16 = 5,
  SLUICE_INT32 = 6,
  SLUICE_INT64 = 7,
  SLUICE_BOOL = 9, /* one byte, 0 or 1 */
  SLUICE_FLOAT16 = 10,
  SLUICE_DOUBLE = 11,
  SLUICE_UINT32 = 12,
  SLUICE_UINT64 = 13
} sluice_dtype;

#define SLUICE_ANY_RANK ((size_t)-1) /* the rank of an input whose number of dimensions the model leaves open */

typedef struct sluice_model sluice_model;     /* weights and graph; immutable */
typedef struct sluice_session sluice_session; /* bound inputs, working memory and outputs of one stream of runs */

/* Zero in a field is its default. */
typedef struct sluice_model_options {
  size_t size;            /* sizeof(sluice_model_options) in the caller's header */
  const char* device;     /* "cpu"; NULL is "cpu" */
  const char* precision;  /* "fp32" or "fp16"; NULL is "fp32" */
  int32_t threads;        /* CPU threads of one run, the caller's included; 0 is one a physical core */
  const char* passes_off; /* names of passes to leave out, with commas between, or "all"; NULL leaves none out */
} sluice_model_options;

/* "MAJOR.MINOR.PATCH"; static. */
SLUICE_API const char* sluice_version(void);

/* The part of its batch that this job should take now: more than 0, at most 1. Less than 1 while a card of the job is
 * too hot, and only under `sluice run`. To be asked between two steps: it reads a small file. Never fails. */
SLUICE_API double sluice_batch_hint(void);

/* What the last failed call of this thread said, in UTF-8; "" before the first failure. The text belongs to the
 * library and stays until this thread's next call that fails. Never NULL. */
SLUICE_API const char* sluice_last_error(void);

/* Reads and prepares a model. `options` may be NULL: the defaults. The file may change or vanish once this returned.
 * On success *out is the caller's, to be given to sluice_model_release. */
SLUICE_API int sluice_model_load(const char* path, const sluice_model_options* options, sluice_model** out);

/* Gives the caller's hold on the model back; sessions made from it keep what they need. NULL does nothing. */
SLUICE_API void sluice_model_release(sluice_model* model);

/* The model's inputs (initializers are none) and outputs, in the file's order. Names, and the dims of
 * sluice_model_input, belong to the model. A dimension that the file leaves open is -1, a rank that it leaves open
 * SLUICE_ANY_RANK. `dtype`, `rank` and `dims` may be NULL. SLUICE_INVALID_ARGUMENT: index out of range. */
SLUICE_API size_t sluice_model_input_count(const sluice_model* model);
SLUICE_API size_t sluice_model_output_count(const sluice_model* model);
SLUICE_API int sluice_model_input(const sluice_model* model, size_t index, const char** name, sluice_dtype* dtype,
                                  size_t* rank, const int64_t** dims);
SLUICE_API int sluice_model_output(const sluice_model* model, size_t index, const char** name);

/* A session of the model. Sessions of one model share its weights and may run at the same time. On success *out is the
 * caller's, to be given to sluice_session_destroy. */
SLUICE_API int sluice_session_create(sluice_model* model, sluice_session** out);

/* Frees the session and its outputs' memory. NULL does nothing. */
SLUICE_API void sluice_session_destroy(sluice_session* session);

/* Binds an input: `rank` dims and their product of elements at `data`, row-major, without gaps. `dims` is copied;
 * `data` is not: it stays the caller's, must not change during sluice_session_run, and must stay valid until the input
 * is bound anew or the session is destroyed. The binding holds for all later runs, so that new values may be written
 * to the same place between runs; they must not be, where values decide shapes (such as Reshape's): bind those anew. A
 * scalar has rank 0, and then dims may be NULL. `data` is aligned for its type; it may be NULL where a dim is 0.
 * SLUICE_INVALID_ARGUMENT: no input of this name, or not its type or shape (a dimension that the file leaves open takes
 * any value). */
SLUICE_API int sluice_session_set_input(sluice_session* session, const char* name, sluice_dtype dtype, size_t rank,
                                        const int64_t* dims, const void* data);

/* Lets runs write an output to the caller's memory: `capacity` bytes at `data`, valid until bound anew or the session
 * is destroyed, aligned for the output's type. NULL undoes it. A run whose output does not fit fails with
 * SLUICE_INVALID_ARGUMENT and says the size that it needs. */
SLUICE_API int sluice_session_bind_output(sluice_session* session, const char* name, void* data, size_t capacity);

/* Computes all outputs and returns when they are there. The first run with a new combination of input shapes prepares
 * a program for it, which takes longer and allocates memory; later runs with these shapes allocate nothing. */
SLUICE_API int sluice_session_run(sluice_session* session);

/* An output of the last successful run. *dims and *data belong to the session (*data to the caller, where bound) and
 * stay until its next run, its next sluice_session_set_input or its destruction. `dtype`, `rank`, `dims` and `data` may
 * be NULL. SLUICE_FAILED_PRECONDITION: no run has succeeded yet. */
SLUICE_API int sluice_session_output(sluice_session* session, const char* name, sluice_dtype* dtype, size_t* rank,
                                     const int64_t** dims, const void** data);

/* A pool of device memory: a fixed size, taken from the driver once; blocks that are reused in the order of streams,
 * without waiting for the device. These functions, and the two above that say version and error, are also all that
 * libsluice_pool.so has, which needs no library of the engine's. A stream is a CUstream or cudaStream_t; NULL is the
 * legacy default stream. Every function may be called from any thread at any time, except that a pool is destroyed
 * once and last. */
typedef struct sluice_pool sluice_pool;

/* Zero in a field is its default. */
typedef struct sluice_pool_options {
  size_t size;             /* sizeof(sluice_pool_options) in the caller's header */
  uint64_t capacity_bytes; /* never 0 */
  int32_t exportable;      /* 1: cuIpcGetMemHandle works on its blocks; free pieces cannot be moved together then */
} sluice_pool_options;

typedef struct sluice_pool_stats {
  size_t size;                 /* sizeof(sluice_pool_stats) in the caller's header; only that much is written */
  uint64_t reserved_bytes;     /* what the driver gave: active + kept + free */
  uint64_t active_bytes;       /* in allocated blocks, with what rounding up costs */
  uint64_t kept_bytes;         /* in free small blocks, kept for their size */
  uint64_t free_bytes;         /* the rest */
  uint64_t peak_bytes;         /* the most that active + kept ever was */
  uint64_t largest_free_bytes; /* in one piece */
  double fragmentation_ratio;  /* 1 - largest_free_bytes / free_bytes */
  uint64_t allocations, frees, failures;
  uint64_t waits;   /* times a stream was made to wait for another's work */
  uint64_t drains;  /* times a thread waited for the device */
  uint64_t gathers; /* times free pieces were moved together */
} sluice_pool_stats;

/* A pool on the current context's device. SLUICE_FAILED_PRECONDITION: no context is current. SLUICE_UNAVAILABLE: no
 * driver. SLUICE_RESOURCE_EXHAUSTED: the device has not that much free. */
SLUICE_API int sluice_pool_create(const sluice_pool_options* options, sluice_pool** out);

/* Waits for the device and gives the memory back, blocks still allocated included. NULL does nothing. */
SLUICE_API void sluice_pool_destroy(sluice_pool* pool);

/* *address is for work submitted to `stream` from now on. SLUICE_RESOURCE_EXHAUSTED: the message says what is reserved,
 * active and free, and how fragmented. */
SLUICE_API int sluice_pool_allocate(sluice_pool* pool, uint64_t bytes, void* stream, uint64_t* address);

/* Behind the work submitted to `stream` so far, which may be another one. SLUICE_INVALID_ARGUMENT: no block that is in
 * use starts there. */
SLUICE_API int sluice_pool_free(sluice_pool* pool, uint64_t address, void* stream);

/* Before a stream is destroyed: waits for it and forgets it. From the call on nobody uses the stream with this pool.
 * SLUICE_FAILED_PRECONDITION: it is being captured. */
SLUICE_API int sluice_pool_forget(sluice_pool* pool, void* stream);

SLUICE_API int sluice_pool_get_stats(sluice_pool* pool, sluice_pool_stats* stats);

/* For torch.cuda.memory.CUDAPluggableAllocator: a pool for each device, made at its first allocation, of
 * $SLUICE_POOL_SIZE (such as 8GiB), by default nine tenths of what the device then has free. As PyTorch asks for it, a
 * failure is a C++ exception, a std::runtime_error, which becomes a RuntimeError: the message is the pool's. */
SLUICE_API void* sluice_torch_allocate(ptrdiff_t bytes, int device, void* stream);
SLUICE_API void sluice_torch_free(void* address, ptrdiff_t bytes, int device, void* stream);

/* The statistics of the pool that the two functions above made for a device; SLUICE_NOT_FOUND before it is made. */
SLUICE_API int sluice_torch_get_stats(int device, sluice_pool_stats* stats);

#ifdef __cplusplus
}
#endif
