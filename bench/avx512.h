// The few instructions of AVX-512 that the prototype uses, by pairs of AVX2's: for processors that have no more.
// Included before anything else (`cc -include`).
#include <immintrin.h>

typedef struct { __m256 low, high; } pair_ps;
typedef struct { __m256i low, high; } pair_si;

static inline pair_ps load_ps(const void *from) {
  return (pair_ps){_mm256_loadu_ps(from), _mm256_loadu_ps((const float *)from + 8)};
}
static inline pair_si load_si(const void *from) {
  return (pair_si){_mm256_loadu_si256(from), _mm256_loadu_si256((const __m256i *)from + 1)};
}
static inline pair_ps add_ps(pair_ps a, pair_ps b) {
  return (pair_ps){_mm256_add_ps(a.low, b.low), _mm256_add_ps(a.high, b.high)};
}
static inline void store_ps(void *to, pair_ps x) {
  _mm256_storeu_ps(to, x.low);
  _mm256_storeu_ps((float *)to + 8, x.high);
}
static inline void stream_ps(void *to, pair_ps x) {
  _mm256_stream_ps(to, x.low);
  _mm256_stream_ps((float *)to + 8, x.high);
}
static inline void stream_si(void *to, pair_si x) {
  _mm256_stream_si256(to, x.low);
  _mm256_stream_si256((__m256i *)to + 1, x.high);
}

#define __m512 pair_ps
#define _mm512_loadu_ps load_ps
#define _mm512_loadu_si512 load_si
#define _mm512_add_ps add_ps
#define _mm512_storeu_ps store_ps
#define _mm512_stream_ps stream_ps
#define _mm512_stream_si512 stream_si
