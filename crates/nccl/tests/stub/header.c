/* A configuration as the header of an installed library lays it out, filled by the names of its fields as the tests fill theirs.
 * CUDA's headers, which it includes, are empty here: only the names of two types are needed. */
#include <stddef.h>
#include <string.h>

/* Older headers have this type only where CUDA has. */
#define __CUDA_BF16_TYPES_EXIST__ 1
typedef void *cudaStream_t;
typedef void *cudaEvent_t;
#include <nccl.h>

int header_len(void) { return (int)sizeof(ncclConfig_t); }

int header_name_at(int second) {
#if NCCL_VERSION_CODE >= 22700
  if (second) return (int)offsetof(ncclConfig_t, commName);
#endif
  return second ? -1 : (int)offsetof(ncclConfig_t, netName);
}

void header_config(void *out) {
  /* Static, so that what lies between the fields is zero. */
  static ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 1;
  config.cgaClusterSize = 2;
  config.minCTAs = 3;
  config.maxCTAs = 4;
  config.splitShare = 1;
#if NCCL_VERSION_CODE >= 22600
  config.trafficClass = 5;
#endif
#if NCCL_VERSION_CODE >= 22700
  config.collnetEnable = 0;
  config.CTAPolicy = 6;
  config.shrinkShare = 1;
  config.nvlsCTAs = 7;
#endif
#if NCCL_VERSION_CODE >= 22800
  config.nChannelsPerNetPeer = 8;
  config.nvlinkCentricSched = 1;
#endif
  memcpy(out, &config, sizeof config);
}

/* The functions as the loader calls them: one that is declared otherwise does not compile. */
#define IS(NAME, ...) _Static_assert(_Generic(&NAME, ncclResult_t (*)(__VA_ARGS__): 1, default: 0), #NAME)
#define SAYS(NAME, ...) _Static_assert(_Generic(&NAME, const char *(*)(__VA_ARGS__): 1, default: 0), #NAME)
#define AND const void *, void *, size_t, ncclDataType_t
#define ON ncclComm_t, cudaStream_t
IS(ncclGetVersion, int *);
IS(ncclGetUniqueId, ncclUniqueId *);
IS(ncclCommInitRankConfig, ncclComm_t *, int, ncclUniqueId, int, ncclConfig_t *);
IS(ncclCommSplit, ncclComm_t, int, int, ncclComm_t *, ncclConfig_t *);
IS(ncclCommCount, ncclComm_t, int *);
IS(ncclCommUserRank, ncclComm_t, int *);
IS(ncclCommCuDevice, ncclComm_t, int *);
IS(ncclCommGetAsyncError, ncclComm_t, ncclResult_t *);
IS(ncclCommFinalize, ncclComm_t);
IS(ncclCommDestroy, ncclComm_t);
IS(ncclCommAbort, ncclComm_t);
IS(ncclAllReduce, AND, ncclRedOp_t, ON);
IS(ncclBroadcast, AND, int, ON);
IS(ncclReduce, AND, ncclRedOp_t, int, ON);
IS(ncclAllGather, AND, ON);
IS(ncclReduceScatter, AND, ncclRedOp_t, ON);
IS(ncclSend, const void *, size_t, ncclDataType_t, int, ON);
IS(ncclRecv, void *, size_t, ncclDataType_t, int, ON);
IS(ncclRedOpCreatePreMulSum, ncclRedOp_t *, void *, ncclDataType_t, ncclScalarResidence_t, ncclComm_t);
IS(ncclRedOpDestroy, ncclRedOp_t, ncclComm_t);
SAYS(ncclGetErrorString, ncclResult_t);
SAYS(ncclGetLastError, ncclComm_t);
#if NCCL_VERSION_CODE >= 21900
IS(ncclMemAlloc, void **, size_t);
IS(ncclMemFree, void *);
IS(ncclCommRegister, ncclComm_t, void *, size_t, void **);
IS(ncclCommDeregister, ncclComm_t, void *);
#endif
#if NCCL_VERSION_CODE >= 22200
IS(ncclGroupSimulateEnd, ncclSimInfo_t *);
_Static_assert(sizeof(ncclSimInfo_t) == 24 && offsetof(ncclSimInfo_t, estimatedTime) == 16, "an estimate");
#endif
#if NCCL_VERSION_CODE >= 22300
IS(ncclCommInitRankScalable, ncclComm_t *, int, int, int, ncclUniqueId *, ncclConfig_t *);
#endif
#if NCCL_VERSION_CODE >= 22700
IS(ncclCommShrink, ncclComm_t, int *, int, ncclComm_t *, ncclConfig_t *, int);
IS(ncclCommWindowRegister, ncclComm_t, void *, size_t, ncclWindow_t *, int);
IS(ncclCommWindowDeregister, ncclComm_t, ncclWindow_t);
#endif
#if NCCL_VERSION_CODE >= 22803
IS(ncclAlltoAll, AND, ON);
IS(ncclGather, AND, int, ON);
IS(ncclScatter, AND, int, ON);
#endif
#if NCCL_VERSION_CODE >= 22807
IS(ncclCommRevoke, ncclComm_t, int);
#endif
#if NCCL_VERSION_CODE >= 22902
IS(ncclCommGetUniqueId, ncclComm_t, ncclUniqueId *);
IS(ncclCommGrow, ncclComm_t, int, const ncclUniqueId *, int, ncclComm_t *, ncclConfig_t *);
#endif
#if NCCL_VERSION_CODE >= 22907
IS(ncclCommSuspend, ncclComm_t, int);
IS(ncclCommResume, ncclComm_t);
IS(ncclCommMemStats, ncclComm_t, ncclCommMemStat_t, uint64_t *);
#endif
/* Numbers that cross as plain integers. */
_Static_assert(sizeof(ncclResult_t) == 4 && sizeof(ncclDataType_t) == 4 && sizeof(ncclRedOp_t) == 4, "integers");
_Static_assert(ncclInProgress == 7 && ncclBfloat16 == 9 && ncclAvg == 4 && ncclScalarHostImmediate == 1, "numbers");
_Static_assert(sizeof(ncclUniqueId) == 128 && NCCL_SPLIT_NOCOLOR == -1, "an id, and no colour");
