/* A library with NCCL's symbols that notes what it is called with, for the tests of the loader.
 *
 *   VERSION   what it says it is, in NCCL's own number
 *   SYMBOLS   up to which version it exports; VERSION unless it is given
 *
 * Nothing is sent anywhere. A communicator is one in a table, so that one that is gone is known. */
#include <limits.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#ifndef SYMBOLS
#define SYMBOLS VERSION
#endif

enum { SUCCESS = 0, INVALID_ARGUMENT = 4, IN_PROGRESS = 7 };
enum { COMMS = 64, TEXT = 1024 };

typedef struct { char internal[128]; } Id;
typedef struct { int used, alive, size, rank, polls, state; void **place; void *child; } Comm;

/* The configuration, written down once more: the compiler lays it out, and the tests compare. */
typedef struct {
  size_t size;
  unsigned int magic, version;
  int blocking, cgaClusterSize, minCTAs, maxCTAs;
  const char *netName;
  int splitShare;
#if VERSION >= 22500
  int trafficClass;
#endif
#if VERSION >= 22700
  const char *commName;
  int collnetEnable, CTAPolicy, shrinkShare, nvlsCTAs;
#endif
#if VERSION >= 22800
  int nChannelsPerNetPeer, nvlinkCentricSched;
#endif
#if VERSION >= 22900
  int graphUsageMode, numRmaCtx;
#endif
#if VERSION >= 23000
  int maxP2pPeers;
#endif
#if VERSION >= 23005
  int graphStreamOrdering;
#endif
#if VERSION >= 23100
  int launchOrderImplicit, numRmaSig, rmaEagerInit, hostCftMode;
#endif
#if VERSION >= 23200
  int nvlsHostMode;
#endif
} Config;

static Comm comms[COMMS];
static char last_error[TEXT];
static int answer_next, state_next, split_polls, grouped;
static Config config;

/* What the last call was given. */
typedef struct {
  const char *name;
  const void *send;
  void *recv;
  size_t count;
  int dtype, op, root;
  void *comm, *stream;
} Call;
static Call call;

/* What the tests say and ask. */
void stub_answer(int code) { answer_next = code; }
void stub_state(int state) { state_next = state; }
void stub_split_polls(int polls) { split_polls = polls; }
int stub_grouped(void) { return grouped; }
void stub_call(Call *out) { *out = call; }
int stub_config_is(int unset);
int stub_comms(void) {
  int alive = 0;
  for (int i = 0; i < COMMS; i++) alive += comms[i].alive;
  return alive;
}

static int end(const char *name, int code) {
  if (code != SUCCESS && code != IN_PROGRESS) snprintf(last_error, TEXT, "the stub's %s failed by order", name);
  return code;
}

static int answer(const char *name) {
  int code = answer_next;
  answer_next = SUCCESS;
  return end(name, code);
}

static Comm *known(const char *name, void *handle) {
  Comm *comm = handle;
  if (comm >= comms && comm < comms + COMMS && comm->alive) return comm;
  end(name, INVALID_ARGUMENT);
  return NULL;
}

static Comm *born(int size, int rank) {
  for (int i = 0; i < COMMS; i++) {
    if (comms[i].used) continue;
    comms[i] = (Comm){.used = 1, .alive = 1, .size = size, .rank = rank};
    return &comms[i];
  }
  return NULL;
}

static void fill(Id *id, int seed) {
  for (int i = 0; i < 128; i++) id->internal[i] = (char)(seed + 7 * i);
}

static int same(const Id *id, int seed) {
  Id wanted;
  fill(&wanted, seed);
  return memcmp(id, &wanted, sizeof wanted) == 0;
}

/* Takes a configuration in as the library does: no more than it says it is long. */
static int parse(const void *given) {
  size_t size;
  memcpy(&size, given, sizeof size);
  memset(&config, 0xee, sizeof config);
  memcpy(&config, given, size < sizeof config ? size : sizeof config);
  return size <= sizeof config && config.magic == 0xcafebeef ? SUCCESS : INVALID_ARGUMENT;
}

static int number(int value, int given, int unset) { return value == (unset ? INT_MIN : given); }

static int text(const char *value, const char *given, int unset) {
  return unset ? value == NULL : value != NULL && strcmp(value, given) == 0;
}

/* Whether the last configuration was what the tests give, or one in which nothing is set. */
int stub_config_is(int unset) {
  int good = config.size == sizeof config && config.version == VERSION && config.blocking == !unset;
  good &= number(config.cgaClusterSize, 2, unset) && number(config.minCTAs, 3, unset);
  good &= number(config.maxCTAs, 4, unset) && text(config.netName, "Socket", unset);
  good &= number(config.splitShare, 1, unset);
#if VERSION >= 22500
  good &= number(config.trafficClass, 5, unset);
#endif
#if VERSION >= 22700
  good &= text(config.commName, "mesh", unset) && number(config.collnetEnable, 0, unset);
  good &= number(config.CTAPolicy, 6, unset) && number(config.shrinkShare, 1, unset);
  good &= number(config.nvlsCTAs, 7, unset);
#endif
#if VERSION >= 22800
  good &= number(config.nChannelsPerNetPeer, 8, unset) && number(config.nvlinkCentricSched, 1, unset);
#endif
#if VERSION >= 22900
  good &= config.graphUsageMode == INT_MIN && config.numRmaCtx == INT_MIN;
#endif
#if VERSION >= 23000
  good &= config.maxP2pPeers == INT_MIN;
#endif
#if VERSION >= 23005
  good &= config.graphStreamOrdering == INT_MIN;
#endif
#if VERSION >= 23100
  good &= config.launchOrderImplicit == INT_MIN && config.numRmaSig == INT_MIN;
  good &= config.rmaEagerInit == INT_MIN && config.hostCftMode == INT_MIN;
#endif
#if VERSION >= 23200
  good &= config.nvlsHostMode == INT_MIN;
#endif
  return good;
}

/* The last configuration as it came. */
void stub_config(void *out) { memcpy(out, &config, sizeof config); }
int stub_config_len(void) { return (int)sizeof config; }

int ncclGetVersion(int *version) {
  *version = VERSION;
  return SUCCESS;
}

const char *ncclGetErrorString(int code) {
  switch (code) {
    case SUCCESS: return "no error";
    case INVALID_ARGUMENT: return "invalid argument";
    case IN_PROGRESS: return "in progress";
#if VERSION >= 23000
    case 8: return "timeout";
#endif
    default: return "unknown result code";
  }
}

const char *ncclGetLastError(void *comm) {
  (void)comm;
  return last_error;
}

int ncclGetUniqueId(Id *id) {
  fill(id, 1);
  return answer("ncclGetUniqueId");
}

static int join(const char *name, void **place, int size, int rank, const void *given) {
  *place = NULL;
  if (rank < 0 || rank >= size || parse(given) != SUCCESS) return end(name, INVALID_ARGUMENT);
  int code = answer(name);
  if (code == SUCCESS || code == IN_PROGRESS) *place = born(size, rank);
  return code;
}

int ncclCommInitRankConfig(void **place, int size, Id id, int rank, void *given) {
  if (!same(&id, 1)) return end("ncclCommInitRankConfig", INVALID_ARGUMENT);
  return join("ncclCommInitRankConfig", place, size, rank, given);
}

#if SYMBOLS >= 22300
int ncclCommInitRankScalable(void **place, int size, int rank, int ids, Id *id, void *given) {
  for (int i = 0; i < ids; i++) {
    if (!same(&id[i], 1)) return end("ncclCommInitRankScalable", INVALID_ARGUMENT);
  }
  return join("ncclCommInitRankScalable", place, size, rank, given);
}
#endif

/* Made when the parent has been asked for it often enough: until then there is nothing in its place. */
static int derive(const char *name, void *parent, void **place, Comm *child, const void *given) {
  Comm *comm = known(name, parent);
  *place = NULL;
  if (comm == NULL || parse(given) != SUCCESS) return end(name, INVALID_ARGUMENT);
  if (split_polls == 0) {
    *place = child;
    return answer(name);
  }
  comm->polls = split_polls;
  comm->state = IN_PROGRESS;
  comm->place = place;
  comm->child = child;
  return IN_PROGRESS;
}

int ncclCommSplit(void *comm, int colour, int key, void **place, void *given) {
  return derive("ncclCommSplit", comm, place, colour == -1 ? NULL : born(colour + 10, key), given);
}

#if SYMBOLS >= 22700
int ncclCommShrink(void *comm, int *without, int count, void **place, void *given, int flags) {
  call = (Call){.name = "ncclCommShrink", .count = (size_t)count, .root = without[0], .op = flags, .comm = comm};
  return derive("ncclCommShrink", comm, place, born(1, 0), given);
}
#endif

#if SYMBOLS >= 22902
int ncclCommGetUniqueId(void *comm, Id *id) {
  fill(id, 2);
  return known("ncclCommGetUniqueId", comm) ? SUCCESS : INVALID_ARGUMENT;
}

int ncclCommGrow(void *comm, int size, const Id *id, int rank, void **place, void *given) {
  if (comm == NULL) {
    if (id == NULL || !same(id, 2)) return end("ncclCommGrow", INVALID_ARGUMENT);
    return join("ncclCommGrow", place, size, rank, given);
  }
  if (rank != -1) return end("ncclCommGrow", INVALID_ARGUMENT);
  return derive("ncclCommGrow", comm, place, born(size, 0), given);
}
#endif

#define ASK(NAME, VALUE)                        \
  int NAME(void *handle, int *out) {            \
    Comm *comm = known(#NAME, handle);          \
    if (comm == NULL) return INVALID_ARGUMENT;  \
    *out = VALUE;                               \
    return SUCCESS;                             \
  }
ASK(ncclCommCount, comm->size)
ASK(ncclCommUserRank, comm->rank)
ASK(ncclCommCuDevice, 0)

int ncclCommGetAsyncError(void *handle, int *out) {
  Comm *comm = known("ncclCommGetAsyncError", handle);
  if (comm == NULL) return INVALID_ARGUMENT;
  if (comm->polls > 0 && --comm->polls == 0) {
    comm->state = SUCCESS;
    *comm->place = comm->child;
  }
  *out = state_next != SUCCESS ? state_next : comm->state;
  return SUCCESS;
}

#define OF_COMM(NAME, AFTER)                   \
  int NAME(void *handle) {                     \
    Comm *comm = known(#NAME, handle);         \
    if (comm == NULL) return INVALID_ARGUMENT; \
    AFTER;                                     \
    return answer(#NAME);                      \
  }
OF_COMM(ncclCommFinalize, )
OF_COMM(ncclCommDestroy, comm->alive = 0)
OF_COMM(ncclCommAbort, comm->alive = 0)
#if SYMBOLS >= 22907
OF_COMM(ncclCommResume, )
int ncclCommSuspend(void *comm, int flags) {
  call = (Call){.name = "ncclCommSuspend", .op = flags, .comm = comm};
  return answer("ncclCommSuspend");
}
int ncclCommMemStats(void *comm, int stat, uint64_t *value) {
  *value = ((uint64_t)1 << 40) + (uint64_t)stat;
  return known("ncclCommMemStats", comm) ? SUCCESS : INVALID_ARGUMENT;
}
#endif
#if SYMBOLS >= 22807
int ncclCommRevoke(void *comm, int flags) {
  call = (Call){.name = "ncclCommRevoke", .op = flags, .comm = comm};
  return answer("ncclCommRevoke");
}
#endif

int ncclGroupStart(void) {
  grouped++;
  return SUCCESS;
}

int ncclGroupEnd(void) {
  grouped--;
  return answer("ncclGroupEnd");
}

#if SYMBOLS >= 22200
typedef struct { size_t size; unsigned int magic, version; float microseconds; } Simulation;
int ncclGroupSimulateEnd(Simulation *out) {
  if (out->size != sizeof *out || out->magic != 0x74685283 || out->version != VERSION) return INVALID_ARGUMENT;
  out->microseconds = 12.5f;
  grouped--;
  return SUCCESS;
}
#endif

#define SUBMIT(NAME) \
  return known(#NAME, comm) == NULL ? INVALID_ARGUMENT : answer(#NAME)

int ncclAllReduce(const void *send, void *recv, size_t count, int dtype, int op, void *comm, void *stream) {
  call = (Call){"ncclAllReduce", send, recv, count, dtype, op, -1, comm, stream};
  SUBMIT(ncclAllReduce);
}
int ncclBroadcast(const void *send, void *recv, size_t count, int dtype, int root, void *comm, void *stream) {
  call = (Call){"ncclBroadcast", send, recv, count, dtype, -1, root, comm, stream};
  SUBMIT(ncclBroadcast);
}
int ncclReduce(const void *send, void *recv, size_t count, int dtype, int op, int root, void *comm, void *stream) {
  call = (Call){"ncclReduce", send, recv, count, dtype, op, root, comm, stream};
  SUBMIT(ncclReduce);
}
int ncclAllGather(const void *send, void *recv, size_t count, int dtype, void *comm, void *stream) {
  call = (Call){"ncclAllGather", send, recv, count, dtype, -1, -1, comm, stream};
  SUBMIT(ncclAllGather);
}
int ncclReduceScatter(const void *send, void *recv, size_t count, int dtype, int op, void *comm, void *stream) {
  call = (Call){"ncclReduceScatter", send, recv, count, dtype, op, -1, comm, stream};
  SUBMIT(ncclReduceScatter);
}
int ncclSend(const void *send, size_t count, int dtype, int peer, void *comm, void *stream) {
  call = (Call){"ncclSend", send, NULL, count, dtype, -1, peer, comm, stream};
  SUBMIT(ncclSend);
}
int ncclRecv(void *recv, size_t count, int dtype, int peer, void *comm, void *stream) {
  call = (Call){"ncclRecv", NULL, recv, count, dtype, -1, peer, comm, stream};
  SUBMIT(ncclRecv);
}

#if SYMBOLS >= 22803
int ncclAlltoAll(const void *send, void *recv, size_t count, int dtype, void *comm, void *stream) {
  call = (Call){"ncclAlltoAll", send, recv, count, dtype, -1, -1, comm, stream};
  SUBMIT(ncclAlltoAll);
}
int ncclGather(const void *send, void *recv, size_t count, int dtype, int root, void *comm, void *stream) {
  call = (Call){"ncclGather", send, recv, count, dtype, -1, root, comm, stream};
  SUBMIT(ncclGather);
}
int ncclScatter(const void *send, void *recv, size_t count, int dtype, int root, void *comm, void *stream) {
  call = (Call){"ncclScatter", send, recv, count, dtype, -1, root, comm, stream};
  SUBMIT(ncclScatter);
}
#endif

/* A number far outside the library's own, as the real one gives. The factor is told in `count`. */
int ncclRedOpCreatePreMulSum(int *op, void *scalar, int dtype, int residence, void *comm) {
  call = (Call){.name = "ncclRedOpCreatePreMulSum", .send = scalar, .dtype = dtype, .op = residence, .comm = comm};
  if (residence == 1) memcpy(&call.count, scalar, sizeof call.count);
  *op = 0x12345678;
  return answer("ncclRedOpCreatePreMulSum");
}
int ncclRedOpDestroy(int op, void *comm) {
  return op == 0x12345678 && known("ncclRedOpDestroy", comm) ? SUCCESS : end("ncclRedOpDestroy", INVALID_ARGUMENT);
}

#if SYMBOLS >= 21900
static char arena[4096];
int ncclMemAlloc(void **address, size_t size) {
  *address = arena;
  return size <= sizeof arena ? answer("ncclMemAlloc") : end("ncclMemAlloc", 1);
}
int ncclMemFree(void *address) { return address == arena ? SUCCESS : INVALID_ARGUMENT; }
int ncclCommRegister(void *comm, void *address, size_t size, void **handle) {
  call = (Call){.name = "ncclCommRegister", .recv = address, .count = size, .comm = comm};
  *handle = &arena[1];
  return answer("ncclCommRegister");
}
int ncclCommDeregister(void *comm, void *handle) {
  return handle == &arena[1] && known("ncclCommDeregister", comm) ? SUCCESS : INVALID_ARGUMENT;
}
#endif

#if SYMBOLS >= 22700
int ncclCommWindowRegister(void *comm, void *address, size_t size, void **window, int flags) {
  call = (Call){.name = "ncclCommWindowRegister", .recv = address, .count = size, .op = flags, .comm = comm};
  *window = &call;
  return answer("ncclCommWindowRegister");
}
int ncclCommWindowDeregister(void *comm, void *window) {
  return window == &call && known("ncclCommWindowDeregister", comm) ? SUCCESS : INVALID_ARGUMENT;
}
#endif
