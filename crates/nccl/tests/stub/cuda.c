/* A CUDA driver whose devices are host memory and whose streams are done at once, for the tests of the loader. Handles that are gone
 * are known, contexts must be current, and every call is checked, so that what a card would only say later is said now.
 *
 *   DEVICES   how many there are
 *   INIT      what the start answers
 *   WITHOUT_CAPTURE   leaves a function out, as a driver too old does */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifndef DEVICES
#define DEVICES 2
#endif
#ifndef INIT
#define INIT 0
#endif

enum { SUCCESS = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, NO_CONTEXT = 201, INVALID_DEVICE = 101, INVALID_HANDLE = 400 };
enum { NOT_FOUND = 500, NOT_READY = 600, MANY = 256 };

typedef struct { int device, alive, flags, priority, recorded; } Thing;
typedef struct { char *start; size_t size; int host, open; } Block;
typedef struct { unsigned char bytes[64]; } Handle;

static Thing contexts[DEVICES], things[MANY];
static Block blocks[MANY];
static _Thread_local Thing *stack[16];
static _Thread_local int depth;
static int answer_next, busy_polls;
static int captures_high, retained;
static _Thread_local int capture_mode;
/* Over both tables. */
static pthread_mutex_t table = PTHREAD_MUTEX_INITIALIZER;

static int unlocked(int code) { return pthread_mutex_unlock(&table), code; }

static struct { unsigned blocks, threads; uint64_t first; float second; int count; } launched;

void stub_answer(int code) { answer_next = code; }
void stub_busy(int polls) { busy_polls = polls; }
void stub_capture(int high) { captures_high = high; }
int stub_depth(void) { return depth; }
/* The devices whose contexts were made, a bit each. */
int stub_retained(void) { return retained; }
int stub_capture_mode(void) { return capture_mode; }
void stub_launched(unsigned *grid, unsigned *threads, uint64_t *first, float *second) {
  *grid = launched.blocks;
  *threads = launched.threads;
  *first = launched.first;
  *second = launched.second;
}
int stub_alive(void) {
  int alive = 0;
  for (int i = 0; i < MANY; i++) alive += things[i].alive + (blocks[i].start != NULL) + blocks[i].open;
  return alive;
}

static int answer(void) {
  int code = answer_next;
  answer_next = SUCCESS;
  return code;
}

static Thing *current(void) { return depth > 0 ? stack[depth - 1] : NULL; }

static int born(void **out, int flags, int priority) {
  if (current() == NULL) return NO_CONTEXT;
  pthread_mutex_lock(&table);
  for (int i = 0; i < MANY; i++) {
    if (things[i].alive) continue;
    things[i] = (Thing){.device = current()->device, .alive = 1, .flags = flags, .priority = priority};
    *out = &things[i];
    return unlocked(answer());
  }
  return unlocked(OUT_OF_MEMORY);
}

static int known(void *handle) {
  Thing *thing = handle;
  if (thing < things || thing >= things + MANY || !thing->alive) return INVALID_HANDLE;
  return current() == NULL || current()->device != thing->device ? NO_CONTEXT : SUCCESS;
}

static int gone(void *handle) {
  Thing *thing = handle;
  if (thing < things || thing >= things + MANY || !thing->alive) return INVALID_HANDLE;
  thing->alive = 0;
  return SUCCESS;
}

static Block *block(uint64_t address, size_t size) {
  Block *found = NULL;
  pthread_mutex_lock(&table);
  for (int i = 0; i < MANY; i++) {
    uint64_t start = (uint64_t)(uintptr_t)blocks[i].start;
    if (start && address >= start && address + size <= start + blocks[i].size) found = &blocks[i];
  }
  pthread_mutex_unlock(&table);
  return found;
}

static int take(size_t size, int host, char **out) {
  if (current() == NULL) return NO_CONTEXT;
  if (size > (1u << 20)) return OUT_OF_MEMORY;
  pthread_mutex_lock(&table);
  for (int i = 0; i < MANY; i++) {
    if (blocks[i].start) continue;
    blocks[i] = (Block){calloc(1, size), size, host, 0};
    *out = blocks[i].start;
    return unlocked(answer());
  }
  return unlocked(OUT_OF_MEMORY);
}

static int give(uint64_t address, int host) {
  Block *at = block(address, 0);
  if (at == NULL || (uint64_t)(uintptr_t)at->start != address || at->host != host) return INVALID_VALUE;
  pthread_mutex_lock(&table);
  free(at->start);
  at->start = NULL;
  return unlocked(SUCCESS);
}

int cuInit(unsigned flags) { return flags == 0 ? INIT : INVALID_VALUE; }
int cuDriverGetVersion(int *version) { return *version = 12080, SUCCESS; }
int cuGetErrorName(int code, const char **out) {
  *out = code == 100 ? "CUDA_ERROR_NO_DEVICE" : code == 700 ? "CUDA_ERROR_ILLEGAL_ADDRESS" : NULL;
  return *out ? SUCCESS : INVALID_VALUE;
}
int cuGetErrorString(int code, const char **out) {
  *out = code == 100 ? "no CUDA-capable device is detected" : NULL;
  return *out ? SUCCESS : INVALID_VALUE;
}
int cuDeviceGetCount(int *count) { return *count = DEVICES, SUCCESS; }
int cuDeviceGet(int *device, int ordinal) {
  *device = ordinal + 100;
  return ordinal >= 0 && ordinal < DEVICES ? SUCCESS : INVALID_DEVICE;
}
int cuDeviceGetName(char *name, int len, int device) { return snprintf(name, len, "Stub %d", device - 100), SUCCESS; }
int cuDeviceGetAttribute(int *value, int attribute, int device) {
  (void)device;
  *value = attribute == 75 ? 9 : attribute == 76 ? 0 : attribute == 16 ? 132 : -1;
  return SUCCESS;
}
int cuDeviceGetPCIBusId(char *name, int len, int device) {
  return snprintf(name, len, "0000:3%c:00.0", 'A' + device - 100), SUCCESS;
}
int cuDeviceTotalMem_v2(size_t *all, int device) {
  (void)device;
  return *all = 1 << 21, SUCCESS;
}
int cuDevicePrimaryCtxRetain(void **context, int device) {
  contexts[device - 100].device = device - 100;
  retained |= 1 << (device - 100);
  *context = &contexts[device - 100];
  return SUCCESS;
}
int cuCtxPushCurrent_v2(void *context) { return stack[depth++] = context, SUCCESS; }
int cuCtxPopCurrent_v2(void **context) { return *context = stack[--depth], SUCCESS; }
int cuCtxSetCurrent(void *context) {
  depth += depth == 0;
  return stack[depth - 1] = context, SUCCESS;
}
int cuThreadExchangeStreamCaptureMode(int *mode) {
  int before = capture_mode;
  capture_mode = *mode;
  return *mode = before, SUCCESS;
}
int cuCtxGetStreamPriorityRange(int *least, int *greatest) { return *least = 0, *greatest = -5, SUCCESS; }
int cuMemGetInfo_v2(size_t *unused, size_t *all) {
  if (current() == NULL) return NO_CONTEXT;
  *unused = 1 << 20;
  *all = 1 << 21;
  return answer();
}

int cuMemAlloc_v2(uint64_t *address, size_t size) {
  char *start = NULL;
  int code = take(size, 0, &start);
  *address = (uint64_t)(uintptr_t)start;
  return code;
}
int cuMemFree_v2(uint64_t address) { return give(address, 0); }
int cuMemHostAlloc(void **address, size_t size, unsigned flags) {
  return flags == 1 ? take(size, 1, (char **)address) : INVALID_VALUE;
}
int cuMemFreeHost(void *address) { return give((uint64_t)(uintptr_t)address, 1); }
int cuMemGetAddressRange_v2(uint64_t *start, size_t *size, uint64_t address) {
  Block *at = block(address, 0);
  if (at == NULL) return INVALID_VALUE;
  *start = (uint64_t)(uintptr_t)at->start;
  *size = at->size;
  return SUCCESS;
}

static int move(uint64_t to, uint64_t from, size_t size) {
  if (block(to, size) == NULL || block(from, size) == NULL) return INVALID_VALUE;
  memmove((void *)(uintptr_t)to, (void *)(uintptr_t)from, size);
  return SUCCESS;
}
int cuMemcpyAsync(uint64_t to, uint64_t from, size_t size, void *stream) {
  int code = known(stream);
  return code ? code : (code = answer()) ? code : move(to, from, size);
}
int cuMemsetD8Async(uint64_t address, unsigned char byte, size_t size, void *stream) {
  int code = known(stream);
  if (code != SUCCESS || block(address, size) == NULL) return code ? code : INVALID_VALUE;
  memset((void *)(uintptr_t)address, byte, size);
  return SUCCESS;
}

int cuStreamCreateWithPriority(void **stream, unsigned flags, int priority) {
  return flags == 1 ? born(stream, (int)flags, priority) : INVALID_VALUE;
}
int cuStreamDestroy_v2(void *stream) { return gone(stream); }
static int busy(void *handle) {
  int code = known(handle);
  return code ? code : (code = answer()) ? code : busy_polls > 0 ? (busy_polls--, NOT_READY) : SUCCESS;
}
int cuStreamQuery(void *stream) { return busy(stream); }
int cuStreamSynchronize(void *stream) { return known(stream); }
int cuStreamWaitEvent(void *stream, void *event, unsigned flags) {
  return known(stream) == SUCCESS && flags == 0 && ((Thing *)event)->alive ? SUCCESS : INVALID_HANDLE;
}
#ifndef WITHOUT_CAPTURE
int cuStreamIsCapturing(void *stream, int *state) {
  return *state = captures_high && ((Thing *)stream)->priority < 0, known(stream);
}
#endif
int cuLaunchHostFunc(void *stream, void (*run)(void *), void *with) {
  int code = known(stream);
  if (code == SUCCESS && (code = answer()) == SUCCESS) run(with);
  return code;
}

int cuEventCreate(void **event, unsigned flags) { return born(event, (int)flags, 0); }
int cuEventDestroy_v2(void *event) { return gone(event); }
int cuEventRecord(void *event, void *stream) {
  if (known(event) || known(stream)) return INVALID_HANDLE;
  ((Thing *)event)->recorded = 1;
  return SUCCESS;
}
int cuEventQuery(void *event) { return busy(event); }
int cuEventElapsedTime(float *milliseconds, void *from, void *to) {
  Thing *a = from, *b = to;
  *milliseconds = 1.5f;
  return known(from) || known(to) || !a->recorded || !b->recorded || ((a->flags | b->flags) & 2) ? INVALID_HANDLE : SUCCESS;
}

int cuModuleLoadData(void **module, const void *image) {
  *module = (void *)image;
  int is_known = !strncmp(image, "// ptx", 6) || !strncmp(image, "// made of ", 11);
  int code = answer();
  return current() == NULL ? NO_CONTEXT : code ? code : is_known ? SUCCESS : 218;
}
/* The kernels of this crate, over f32 and some over i32: they get their arguments as a device would. */
enum { PUT, ADD, MEASURE, MULTIPLY, FOLD, NORM, JOIN_F32, JOIN_I32, OTHERS };
static char kernels[OTHERS + 1];
static const char *names[OTHERS] = {"phalanx_put_f32_f32", "phalanx_add_f32_f32", "phalanx_measure_f32", "phalanx_multiply_f32",
                                    "phalanx_fold",        "phalanx_norm",        "phalanx_join_f32",    "phalanx_join_i32"};
typedef struct { uint64_t from, to, len, zeros, first; } Stretch;
static void carry(int adds, void **arguments) {
  char *into = *(char **)arguments[0];
  const char *from = *(char **)arguments[1], *table = *(char **)arguments[2];
  uint64_t stretches = *(uint64_t *)arguments[3], first = *(uint64_t *)arguments[4];
  uint64_t tiles = *(uint64_t *)arguments[5], skip = *(uint64_t *)arguments[6];
  float divisor = *(float *)arguments[7];
  for (uint64_t tile = first; tile < first + tiles; tile++) {
    const uint32_t *of = (const uint32_t *)(table + stretches * sizeof(Stretch));
    Stretch stretch = ((const Stretch *)table)[of[tile]];
    uint64_t begin = (tile - stretch.first) * 8192, end = begin + 8192, all = stretch.len + stretch.zeros;
    for (uint64_t at = begin; at < (end < all ? end : all); at++) {
      float *target = (float *)(into + stretch.to) + at, value = 0;
      if (at < stretch.len) value = ((const float *)(from + (stretch.from - skip)))[at] / divisor;
      *target = adds ? *target + value : value;
    }
  }
}
/* The norm of squares alone. */
static void measure(void **arguments) {
  const char *data = *(char **)arguments[0], *table = *(char **)arguments[1];
  double *parts = *(double **)arguments[2], p = *(double *)arguments[6];
  uint64_t stretches = *(uint64_t *)arguments[3], first = *(uint64_t *)arguments[4], tiles = *(uint64_t *)arguments[5];
  for (uint64_t tile = first; tile < first + tiles; tile++) {
    Stretch stretch = ((const Stretch *)table)[((const uint32_t *)(table + stretches * sizeof(Stretch)))[tile]];
    uint64_t begin = (tile - stretch.first) * 8192, end = begin + 8192 < stretch.len ? begin + 8192 : stretch.len;
    double sum = 0;
    for (uint64_t at = begin; at < end; at++) {
      double value = ((const float *)(data + stretch.from))[at];
      sum += value * value;
    }
    parts[tile - first] = p == 2 ? sum : 0;
  }
}
static double sum_of(const double *values, uint64_t count) {
  double sum = 0;
  for (uint64_t at = 0; at < count; at++) sum += values[at];
  return sum;
}
static void fold(void **arguments) { **(double **)arguments[3] = sum_of(*(double **)arguments[0], *(uint64_t *)arguments[1]); }
static void norm(void **arguments) {
  double sum = sum_of(*(double **)arguments[0], *(uint64_t *)arguments[1]), most = *(double *)arguments[3], root = 0;
  double *result = *(double **)arguments[4];
  /* By halves: there is no library of mathematics here. */
  for (double step = 1e12; step > 1e-12; step /= 2)
    if ((root + step) * (root + step) <= sum) root += step;
  result[0] = root;
  result[1] = most / (root + 1e-6) < 1 ? most / (root + 1e-6) : 1;
}
static void multiply(void **arguments) {
  char *data = *(char **)arguments[0];
  const char *table = *(char **)arguments[1];
  const double *factor = *(double **)arguments[2];
  uint64_t stretches = *(uint64_t *)arguments[4], first = *(uint64_t *)arguments[5], tiles = *(uint64_t *)arguments[6];
  double by = factor ? *factor : *(double *)arguments[3];
  for (uint64_t tile = first; tile < first + tiles; tile++) {
    Stretch stretch = ((const Stretch *)table)[((const uint32_t *)(table + stretches * sizeof(Stretch)))[tile]];
    uint64_t begin = (tile - stretch.first) * 8192, end = begin + 8192 < stretch.len ? begin + 8192 : stretch.len;
    for (uint64_t at = begin; at < end; at++) ((float *)(data + stretch.from))[at] *= by;
  }
}
/* Sums, averages, and what is scaled. */
static void join(int is_float, void **arguments) {
  uint64_t parts = *(uint64_t *)arguments[9], count = *(uint64_t *)arguments[10], way = *(uint64_t *)arguments[11];
  char *into = *(char **)arguments[0];
  const float *factor = *(float **)arguments[12] ? *(float **)arguments[12] : (float *)arguments[13];
  for (uint64_t at = 0; at < count; at++) {
    float sum = 0;
    int32_t whole = 0;
    for (uint64_t part = 0; part < parts; part++) {
      const char *from = *(char **)arguments[1 + part];
      if (is_float) sum += ((const float *)from)[at];
      if (!is_float) whole += ((const int32_t *)from)[at];
    }
    if (is_float) ((float *)into)[at] = way == 5 ? sum * *factor : way == 4 ? sum / parts : sum;
    if (!is_float) ((int32_t *)into)[at] = whole;
  }
}
int cuModuleGetFunction(void **function, void *module, const char *name) {
  (void)module;
  int which = 0;
  while (which < OTHERS && strcmp(name, names[which])) which++;
  *function = strncmp(name, "phalanx_", 8) ? (void *)&launched : &kernels[which];
  return strcmp(name, "fold") && *function == &launched ? NOT_FOUND : SUCCESS;
}
int cuLaunchKernel(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                   unsigned shared, void *stream, void **arguments, void **extra) {
  if (function >= (void *)kernels && function < (void *)&kernels[OTHERS] && !known(stream)) {
    int which = (char *)function - kernels;
    if (which <= ADD) carry(which == ADD, arguments);
    if (which == MEASURE) measure(arguments);
    if (which == MULTIPLY) multiply(arguments);
    if (which == FOLD) fold(arguments);
    if (which == NORM) norm(arguments);
    if (which == JOIN_F32 || which == JOIN_I32) join(which == JOIN_F32, arguments);
    return SUCCESS;
  }
  if (function != &launched || gy != 1 || gz != 1 || by != 1 || bz != 1 || shared || extra) return INVALID_VALUE;
  launched.blocks = gx;
  launched.threads = bx;
  memcpy(&launched.first, arguments[0], sizeof launched.first);
  memcpy(&launched.second, arguments[1], sizeof launched.second);
  return known(stream);
}

static Handle exported(uint64_t what) {
  Handle handle;
  memset(&handle, 0xab, sizeof handle);
  memcpy(&handle.bytes[8], &what, sizeof what);
  return handle;
}
static int imported(const Handle *handle, uint64_t *what) {
  Handle wanted;
  memcpy(what, &handle->bytes[8], sizeof *what);
  wanted = exported(*what);
  return memcmp(&wanted, handle, sizeof wanted) == 0;
}
int cuIpcGetMemHandle(Handle *handle, uint64_t address) {
  Block *at = block(address, 0);
  *handle = exported(address);
  return at != NULL && (uint64_t)(uintptr_t)at->start == address ? SUCCESS : INVALID_VALUE;
}
int cuIpcOpenMemHandle_v2(uint64_t *address, Handle handle, unsigned flags) {
  if (flags != 1 || !imported(&handle, address) || block(*address, 0) == NULL) return INVALID_VALUE;
  block(*address, 0)->open++;
  return SUCCESS;
}
int cuIpcCloseMemHandle(uint64_t address) {
  Block *at = block(address, 0);
  if (at == NULL || at->open == 0) return INVALID_VALUE;
  at->open--;
  return SUCCESS;
}
int cuIpcGetEventHandle(Handle *handle, void *event) {
  *handle = exported((uint64_t)(uintptr_t)event);
  return known(event) || ((Thing *)event)->flags != 6 ? INVALID_HANDLE : SUCCESS;
}
int cuIpcOpenEventHandle(void **event, Handle handle) {
  uint64_t address;
  if (!imported(&handle, &address)) return INVALID_VALUE;
  return born(event, 6, 0);
}
