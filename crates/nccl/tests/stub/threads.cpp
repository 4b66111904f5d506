/* The kernels of norms and of what joins elements, from the source that devices run, by threads of the host: a block of 256 of them at a time. What a device has of its
 * own is written here in C++; the types of `carry.cu`, which are in assembly there, as well. */
#include <cmath>
#include <cstdint>
#include <cstring>
#include <pthread.h>
#include <vector>

typedef unsigned long long u64;
typedef unsigned int u32;
typedef unsigned short u16;

struct Index {
  u32 x;
};
static thread_local Index threadIdx, blockIdx;
static Index gridDim;
static pthread_barrier_t all_come;
static void __syncthreads() { pthread_barrier_wait(&all_come); }

#define __device__
#define __global__
#define __shared__ static
#define __noinline__
#define __launch_bounds__(THREADS)

template <class To, class From> static To same_bits(From from) {
  To to;
  static_assert(sizeof to == sizeof from, "two of a size");
  memcpy(&to, &from, sizeof to);
  return to;
}
static double __dadd_rn(double a, double b) { return a + b; }
static double __dmul_rn(double a, double b) { return a * b; }
static double __ddiv_rn(double a, double b) { return a / b; }
static double __dsqrt_rn(double a) { return std::sqrt(a); }
static float __fadd_rn(float a, float b) { return a + b; }
static float __fmul_rn(float a, float b) { return a * b; }
static float __fdiv_rn(float a, float b) { return a / b; }
static float __double2float_rn(double a) { return (float)a; }
static float __double2float_rz(double a) {
  float near = (float)a;
  return std::fabs((double)near) > std::fabs(a) ? nextafterf(near, 0.0f) : near;
}
static float __uint_as_float(u32 bits) { return same_bits<float>(bits); }
static u32 __float_as_uint(float value) { return same_bits<u32>(value); }
static double __longlong_as_double(long long bits) { return same_bits<double>(bits); }
static long long __double_as_longlong(double value) { return same_bits<long long>(value); }

struct Stretch {
  u64 from, to, len, zeros, first;
};
struct F32 {
  typedef u32 Bits;
  static float widen(u32 bits) { return same_bits<float>(bits); }
  static u32 narrow(float value) { return same_bits<u32>(value); }
};
struct F16 {
  typedef u16 Bits;
  static float widen(u16 bits) { return same_bits<_Float16>(bits); }
  static u16 narrow(float value) { return same_bits<u16>((_Float16)value); }
};
struct BF16 {
  typedef u16 Bits;
  static float widen(u16 bits) { return same_bits<float>((u32)bits << 16); }
  static u16 narrow(float value) {
    u32 bits = same_bits<u32>(value);
    return value != value ? (bits >> 16) | 64 : (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
  }
};
template <class Bits, int LEN> struct alignas(16) Pack {
  Bits at[LEN];
};

#include "norm.cu"
#include "join.cu"

/* Kernels from this number on join elements. */
static const int JOINS = 8;

struct Seat {
  u32 block, thread;
  int kernel;
  const u64 *words;
};

template <class T> static T *at(u64 word) { return (T *)word; }

typedef void (*Join)(char *, const char *, const char *, const char *, const char *, const char *, const char *, const char *, const char *, u64, u64,
                     u64, const char *, u64);
/* By NCCL's numbers. */
static const Join joins[] = {phalanx_join_i8,  phalanx_join_u8,  phalanx_join_i32, phalanx_join_u32, phalanx_join_i64,
                             phalanx_join_u64, phalanx_join_f16, phalanx_join_f32, phalanx_join_f64, phalanx_join_bf16};

static void *play(void *given) {
  const Seat *seat = (Seat *)given;
  const u64 *w = seat->words;
  blockIdx.x = seat->block;
  threadIdx.x = seat->thread;
  if (seat->kernel >= JOINS) {
    const char *parts[PARTS];
    for (u32 part = 0; part < PARTS; part++) parts[part] = at<char>(w[1 + part]);
    joins[seat->kernel - JOINS](at<char>(w[0]), parts[0], parts[1], parts[2], parts[3], parts[4], parts[5], parts[6], parts[7], w[9], w[10], w[11],
                                at<char>(w[12]), w[13]);
    return nullptr;
  }
  switch (seat->kernel) {
  case 0: phalanx_measure_f32(at<char>(w[0]), at<char>(w[1]), at<double>(w[2]), w[3], w[4], w[5], w[6]); break;
  case 1: phalanx_measure_f16(at<char>(w[0]), at<char>(w[1]), at<double>(w[2]), w[3], w[4], w[5], w[6]); break;
  case 2: phalanx_measure_bf16(at<char>(w[0]), at<char>(w[1]), at<double>(w[2]), w[3], w[4], w[5], w[6]); break;
  case 3: phalanx_multiply_f32(at<char>(w[0]), at<char>(w[1]), at<double>(w[2]), w[3], w[4], w[5], w[6]); break;
  case 4: phalanx_multiply_f16(at<char>(w[0]), at<char>(w[1]), at<double>(w[2]), w[3], w[4], w[5], w[6]); break;
  case 5: phalanx_multiply_bf16(at<char>(w[0]), at<char>(w[1]), at<double>(w[2]), w[3], w[4], w[5], w[6]); break;
  case 6: phalanx_fold(at<double>(w[0]), w[1], w[2], at<double>(w[3])); break;
  default: phalanx_norm(at<double>(w[0]), w[1], w[2], w[3], at<double>(w[4]));
  }
  return nullptr;
}

/* One launch: which kernel, of how many blocks, and its arguments, a word each. */
extern "C" void threads_launch(int kernel, u32 blocks, const u64 *words) {
  gridDim.x = blocks;
  pthread_barrier_init(&all_come, nullptr, THREADS);
  for (u32 block = 0; block < blocks; block++) {
    std::vector<pthread_t> threads(THREADS);
    std::vector<Seat> seats(THREADS);
    for (u32 thread = 0; thread < THREADS; thread++) {
      seats[thread] = Seat{block, thread, kernel, words};
      pthread_create(&threads[thread], nullptr, play, &seats[thread]);
    }
    for (pthread_t thread : threads) pthread_join(thread, nullptr);
  }
  pthread_barrier_destroy(&all_come);
}
