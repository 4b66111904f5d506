/* A library with NCCL's symbols that notes what it is called with, for the tests of the loader.
 *
 *   VERSION   what it says it is, in NCCL's own number
 *   SYMBOLS   up to which version it exports; VERSION unless it is given
 *
 * Ranks are threads of one process, and the memory of devices is memory of the host. Once it is told to, a call waits for those of the
 * other ranks, and the last one to come moves the data. A communicator is one in a table, so that one that is gone is known. */
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifndef SYMBOLS
#define SYMBOLS VERSION
#endif

enum { SUCCESS = 0, INVALID_ARGUMENT = 4, IN_PROGRESS = 7 };
enum { COMMS = 256, TEXT = 1024, RANKS = 8, LETTERS = 64 };

typedef struct { char internal[128]; } Id;
typedef struct { int used, alive, size, rank, polls, state; void **place; void *child; struct World *world; } Comm;

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
static int answer_next, state_next, split_polls;
static _Thread_local int grouped;
static pthread_mutex_t table = PTHREAD_MUTEX_INITIALIZER;
static atomic_int hanging, hung, meeting, abort_hangs, aborting, keeps_begun, no_windows;
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
static _Thread_local Call call;
static Call last;

/* The ranks that joined with one id. */
typedef struct World {
  int id, size, members, arrived, turns, dead;
  Call calls[RANKS];
  struct { int from, to; size_t size; void *bytes; } letters[LETTERS];
  pthread_mutex_t lock;
  pthread_cond_t turn;
} World;
static World worlds[COMMS];

/* Calls that take, until the end of their group. */
static _Thread_local struct { Comm *comm; void *recv; size_t size; int from; } takes[LETTERS];
static _Thread_local int taking;

/* What the tests say and ask. */
void stub_answer(int code) { answer_next = code; }
void stub_state(int state) { state_next = state; }
void stub_split_polls(int polls) { split_polls = polls; }
/* The next calls of collectives hang until a communicator is aborted. */
void stub_hang(int on) { hanging = on; }
/* From now on calls wait for those of the other ranks, and data moves. */
void stub_meet(int on) { meeting = on; }
int stub_hung(void) { return hung; }
/* Aborts hang until they are let go on, and how many have begun. */
void stub_hang_aborts(int on) { abort_hangs = on; }
int stub_aborting(void) { return aborting; }
/* A communicator whose making fails is there all the same, as one that does not block may be. */
void stub_keep_begun(int on) { keeps_begun = on; }
/* Windows are not opened, though all is well. */
void stub_no_windows(int on) { no_windows = on; }
/* How many contexts are current on a thread, if that is to be looked at: who has none is refused. */
static int (*contexts)(void);
void stub_contexts(int (*ask)(void)) { contexts = ask; }
static int homeless(void) { return contexts && contexts() == 0; }
int stub_grouped(void) { return grouped; }
void stub_call(Call *out) { *out = last; }
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

static World *world_of(int id, int size) {
  for (int i = 0; i < COMMS; i++) {
    World *at = &worlds[i];
    if (at->members > 0 && (at->id != id || id == 0 || at->members == at->size)) continue;
    if (at->members == 0) {
      *at = (World){.id = id, .size = size};
      pthread_mutex_init(&at->lock, NULL);
      pthread_cond_init(&at->turn, NULL);
    }
    at->members++;
    return at;
  }
  abort();
}

/* A communicator of those that join with this id; 0 for one whose ranks never meet. */
static Comm *joined(int id, int size, int rank) {
  pthread_mutex_lock(&table);
  for (int i = 0; i < COMMS; i++) {
    if (comms[i].used) continue;
    comms[i] = (Comm){.used = 1, .alive = 1, .size = size, .rank = rank, .world = world_of(id, size)};
    pthread_mutex_unlock(&table);
    return &comms[i];
  }
  abort();
}

static Comm *born(int size, int rank) { return joined(0, size, rank); }

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
  static atomic_int ids;
  fill(id, 1 + ids++);
  return answer("ncclGetUniqueId");
}

/* Whether it is one of these ids, whole. */
static int given_out(const Id *id) { return same(id, id->internal[0]); }

static int join(const char *name, void **place, int size, int rank, int id, const void *given) {
  *place = NULL;
  if (rank < 0 || rank >= size || parse(given) != SUCCESS) return end(name, INVALID_ARGUMENT);
  int code = answer(name);
  if (code == SUCCESS || code == IN_PROGRESS || keeps_begun) *place = joined(id, size, rank);
  return code;
}

int ncclCommInitRankConfig(void **place, int size, Id id, int rank, void *given) {
  if (!given_out(&id)) return end("ncclCommInitRankConfig", INVALID_ARGUMENT);
  return join("ncclCommInitRankConfig", place, size, rank, id.internal[0], given);
}

#if SYMBOLS >= 22300
int ncclCommInitRankScalable(void **place, int size, int rank, int ids, Id *id, void *given) {
  for (int i = 0; i < ids; i++) {
    if (!given_out(&id[i])) return end("ncclCommInitRankScalable", INVALID_ARGUMENT);
  }
  return join("ncclCommInitRankScalable", place, size, rank, 0, given);
}
#endif

/* Made when the parent has been asked for it often enough: until then there is nothing in its place. The library answers success all the
 * same, and the parent alone says that it is in progress. */
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
  return SUCCESS;
}

int ncclCommSplit(void *comm, int colour, int key, void **place, void *given) {
  return derive("ncclCommSplit", comm, place, colour == -1 ? NULL : born(colour + 10, key), given);
}

#if SYMBOLS >= 22700
int ncclCommShrink(void *comm, int *without, int count, void **place, void *given, int flags) {
  call = (Call){.name = "ncclCommShrink", .count = (size_t)count, .root = without[0], .op = flags, .comm = comm};
  last = call;
  return derive("ncclCommShrink", comm, place, born(1, 0), given);
}
#endif

#if SYMBOLS >= 22902
int ncclCommGetUniqueId(void *comm, Id *id) {
  fill(id, 100);
  return known("ncclCommGetUniqueId", comm) ? SUCCESS : INVALID_ARGUMENT;
}

int ncclCommGrow(void *comm, int size, const Id *id, int rank, void **place, void *given) {
  if (comm == NULL) {
    if (id == NULL || !same(id, 100)) return end("ncclCommGrow", INVALID_ARGUMENT);
    return join("ncclCommGrow", place, size, rank, 0, given);
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

/* Whoever waits for an aborted rank is told. */
static void leave(Comm *comm) {
  pthread_mutex_lock(&comm->world->lock);
  comm->world->dead = 1;
  pthread_cond_broadcast(&comm->world->turn);
  pthread_mutex_unlock(&comm->world->lock);
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
static void begin_abort(void) {
  aborting++;
  while (abort_hangs) sched_yield();
}
OF_COMM(ncclCommAbort, (begin_abort(), comm->alive = hanging = 0, leave(comm)))
#if SYMBOLS >= 22907
OF_COMM(ncclCommResume, )
int ncclCommSuspend(void *comm, int flags) {
  call = (Call){.name = "ncclCommSuspend", .op = flags, .comm = comm};
  last = call;
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
  last = call;
  return answer("ncclCommRevoke");
}
#endif

int ncclGroupStart(void) {
  grouped++;
  return SUCCESS;
}

static int take_all(void);

int ncclGroupEnd(void) {
  grouped--;
  int code = take_all();
  return code == SUCCESS ? answer("ncclGroupEnd") : end("ncclGroupEnd", code);
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

static size_t size_of(int dtype) {
  static const size_t sizes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};
  return sizes[dtype];
}

#define FOLD(TYPE)                                                     \
  for (size_t i = 0; i < count; i++) {                                 \
    TYPE *a = (TYPE *)into + i, b = ((const TYPE *)from)[i];           \
    *a = op == 0 ? *a + b : op == 1 ? *a * b : (*a < b) == (op == 2) ? b : *a; \
  }                                                                    \
  return

/* Types of 16 bits are not folded. */
static void fold(void *into, const void *from, size_t count, int dtype, int op) {
  switch (dtype) {
    case 0: FOLD(int8_t);
    case 1: FOLD(uint8_t);
    case 2: FOLD(int32_t);
    case 4: FOLD(int64_t);
    case 7: FOLD(float);
    case 8: FOLD(double);
    default: abort();
  }
}

/* So many elements of what all ranks give, from this one on. */
static void *sum(World *world, size_t first, size_t count) {
  const Call *own = &world->calls[0];
  size_t size = size_of(own->dtype);
  char *into = malloc(count * size + 1);
  memcpy(into, (const char *)own->send + first * size, count * size);
  for (int rank = 1; rank < world->size; rank++) {
    fold(into, (const char *)world->calls[rank].send + first * size, count, own->dtype, own->op);
  }
  return into;
}

static int is(const Call *of, const char *name) { return strcmp(of->name, name) == 0; }

/* Moves the data of a collective that all ranks have called. What is given is read before anything is written. */
static void move_all(World *world) {
  const Call *own = &world->calls[0];
  size_t bytes = own->count * size_of(own->dtype), all = (size_t)world->size;
  int folds = is(own, "ncclAllReduce") || is(own, "ncclReduce");
  char *whole = NULL;
  if (folds || is(own, "ncclReduceScatter")) {
    whole = sum(world, 0, folds ? own->count : own->count * all);
  } else {
    int one = is(own, "ncclBroadcast") || is(own, "ncclScatter");
    whole = malloc(bytes * all * all + 1);
    for (int rank = 0; rank < world->size; rank++) {
      size_t given = is(own, "ncclAlltoAll") || is(own, "ncclScatter") ? bytes * all : bytes;
      if (!one || rank == own->root) memcpy(whole + (one ? 0 : rank * given), world->calls[rank].send, given);
    }
  }
  for (int rank = 0; rank < world->size; rank++) {
    char *recv = world->calls[rank].recv;
    size_t at = (size_t)rank * bytes;
    if (is(own, "ncclAllReduce") || is(own, "ncclBroadcast")) memcpy(recv, whole, bytes);
    else if (is(own, "ncclReduce")) { if (rank == own->root) memcpy(recv, whole, bytes); }
    else if (is(own, "ncclAllGather")) memcpy(recv, whole, bytes * all);
    else if (is(own, "ncclGather")) { if (rank == own->root) memcpy(recv, whole, bytes * all); }
    else if (is(own, "ncclReduceScatter") || is(own, "ncclScatter")) memcpy(recv, whole + at, bytes);
    else for (size_t from = 0; from < all; from++) memcpy(recv + from * bytes, whole + from * bytes * all + at, bytes);
  }
  free(whole);
}

/* Waits for the other ranks' calls; the last to come does what is to be done. */
static int meet(Comm *comm) {
  World *world = comm->world;
  pthread_mutex_lock(&world->lock);
  int turn = world->turns;
  world->calls[comm->rank] = call;
  if (++world->arrived == world->size) {
    move_all(world);
    world->arrived = 0;
    world->turns++;
    pthread_cond_broadcast(&world->turn);
  }
  while (world->turns == turn && !world->dead) pthread_cond_wait(&world->turn, &world->lock);
  int code = world->turns == turn ? 6 : SUCCESS;
  pthread_mutex_unlock(&world->lock);
  return code;
}

static int post(Comm *comm, int to, const void *send, size_t size) {
  World *world = comm->world;
  int code = 3;
  pthread_mutex_lock(&world->lock);
  for (int i = 0; i < LETTERS && code != SUCCESS; i++) {
    if (world->letters[i].bytes) continue;
    world->letters[i].from = comm->rank;
    world->letters[i].to = to;
    world->letters[i].size = size;
    world->letters[i].bytes = memcpy(malloc(size + 1), send, size);
    code = SUCCESS;
  }
  pthread_cond_broadcast(&world->turn);
  pthread_mutex_unlock(&world->lock);
  return code;
}

static int take_one(Comm *comm, int from, void *recv, size_t size) {
  World *world = comm->world;
  int code = IN_PROGRESS;
  pthread_mutex_lock(&world->lock);
  while (code == IN_PROGRESS) {
    for (int i = 0; i < LETTERS && code == IN_PROGRESS; i++) {
      if (!world->letters[i].bytes || world->letters[i].from != from || world->letters[i].to != comm->rank) continue;
      code = world->letters[i].size == size ? SUCCESS : INVALID_ARGUMENT;
      memcpy(recv, world->letters[i].bytes, code == SUCCESS ? size : 0);
      free(world->letters[i].bytes);
      world->letters[i].bytes = NULL;
    }
    if (code == IN_PROGRESS && world->dead) code = 6;
    if (code == IN_PROGRESS) pthread_cond_wait(&world->turn, &world->lock);
  }
  pthread_mutex_unlock(&world->lock);
  return code;
}

static int take_all(void) {
  int code = SUCCESS;
  for (int i = 0; grouped == 0 && i < taking && code == SUCCESS; i++) {
    code = take_one(takes[i].comm, takes[i].from, takes[i].recv, takes[i].size);
  }
  if (grouped == 0) taking = 0;
  return code;
}

static int submit(const char *name, Comm *comm) {
  last = call;
  if (comm == NULL) return INVALID_ARGUMENT;
  if (homeless()) return end(name, 1);
  if (hanging) {
    hung++;
    while (hanging) sched_yield();
    return end(name, 6);
  }
  if (!meeting || comm->world->id == 0) return answer(name);
  size_t size = call.count * size_of(call.dtype);
  int code;
  if (is(&call, "ncclSend")) {
    code = post(comm, call.root, call.send, size);
  } else if (is(&call, "ncclRecv")) {
    takes[taking].comm = comm;
    takes[taking].from = call.root;
    takes[taking].recv = call.recv;
    takes[taking++].size = size;
    code = take_all();
  } else {
    code = meet(comm);
  }
  return code == SUCCESS ? answer(name) : end(name, code);
}
#define SUBMIT(NAME) return submit(#NAME, known(#NAME, comm))

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
  last = call;
  if (residence == 1) memcpy(&last.count, scalar, sizeof last.count);
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
  last = call;
  *handle = &arena[1];
  if (homeless()) return end("ncclCommRegister", 1);
  return answer("ncclCommRegister");
}
int ncclCommDeregister(void *comm, void *handle) {
  if (homeless()) return end("ncclCommDeregister", 1);
  return handle == &arena[1] && known("ncclCommDeregister", comm) ? SUCCESS : INVALID_ARGUMENT;
}
#endif

#if SYMBOLS >= 22700
int ncclCommWindowRegister(void *comm, void *address, size_t size, void **window, int flags) {
  call = (Call){.name = "ncclCommWindowRegister", .recv = address, .count = size, .op = flags, .comm = comm};
  last = call;
  *window = no_windows ? NULL : &last;
  if (homeless()) return end("ncclCommWindowRegister", 1);
  return answer("ncclCommWindowRegister");
}
int ncclCommWindowDeregister(void *comm, void *window) {
  if (homeless()) return end("ncclCommWindowDeregister", 1);
  return window == &last && known("ncclCommWindowDeregister", comm) ? SUCCESS : INVALID_ARGUMENT;
}
#endif
