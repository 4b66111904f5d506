// Joins elements that several ranks have given into one: read after `carry.cu`, whose types these are. The plain Rust that this must equal, to
// the bit, is in `join.rs`. Floats of 16 bits are joined as 32 and rounded once; what is no number has one form.

typedef long long i64;

// A type as it is joined: wide, and back. Sums of whole numbers are kept in 64 bits, of which the narrower types are the lower ones.
template <class T, class WIDE> struct Whole {
    typedef T Bits;
    typedef WIDE Wide;
    static __device__ WIDE widen(T bits) { return (WIDE)bits; }
    static __device__ T narrow(WIDE value) { return (T)value; }
};

template <class T, typename T::Bits NONE> struct Float {
    typedef typename T::Bits Bits;
    typedef float Wide;
    static __device__ float widen(Bits bits) { return T::widen(bits); }
    static __device__ Bits narrow(float value) { return value != value ? NONE : T::narrow(value); }
};

struct Double {
    typedef u64 Bits;
    typedef double Wide;
    static __device__ double widen(u64 bits) { return __longlong_as_double((i64)bits); }
    static __device__ u64 narrow(double value) { return value != value ? 0x7ff8000000000000ull : (u64)__double_as_longlong(value); }
};

enum JoinWay { SUM, PRODUCT, MAX, MIN, AVG, SCALE };

static __device__ float sum(float a, float b) { return __fadd_rn(a, b); }
static __device__ double sum(double a, double b) { return __dadd_rn(a, b); }
static __device__ u64 sum(u64 a, u64 b) { return a + b; }
static __device__ i64 sum(i64 a, i64 b) { return (i64)((u64)a + (u64)b); }

static __device__ float product(float a, float b) { return __fmul_rn(a, b); }
static __device__ double product(double a, double b) { return __dmul_rn(a, b); }
static __device__ u64 product(u64 a, u64 b) { return a * b; }
static __device__ i64 product(i64 a, i64 b) { return (i64)((u64)a * (u64)b); }

static __device__ float share(float total, u32 count) { return __fdiv_rn(total, (float)count); }
static __device__ double share(double total, u32 count) { return __ddiv_rn(total, (double)count); }
static __device__ u64 share(u64 total, u32 count) { return total / count; }
static __device__ i64 share(i64 total, u32 count) { return total / (i64)count; }

// Whether a zero is the one below zero; whole numbers have one.
static __device__ bool is_below(float value) { return __float_as_uint(value) >> 31; }
static __device__ bool is_below(double value) { return (u64)__double_as_longlong(value) >> 63; }
static __device__ bool is_below(u64) { return false; }
static __device__ bool is_below(i64) { return false; }

// The larger of two, or the smaller; what is no number stays.
template <class W> static __device__ W further(W a, W b, bool up) {
    if (a != a || b != b) return a != a ? a : b;
    return (a == b ? is_below(a) : a < b) == up ? b : a;
}

template <class W> static __device__ W joined(W a, W b, u32 way) {
    return way == PRODUCT ? product(a, b) : way == MAX || way == MIN ? further(a, b, way == MAX) : sum(a, b);
}

const u32 PARTS = 8;

struct Parts {
    const char* at[PARTS];
};

template <class T>
static __device__ void join(char* into, const Parts& given, u32 parts, u64 count, u32 way, const char* place, u64 bits) {
    typedef typename T::Bits Bits;
    typedef typename T::Wide Wide;
    const u32 LEN = 16 / sizeof(Bits);
    typedef Pack<Bits, LEN> Some;
    Wide factor = T::widen(0);
    if (way == SCALE) factor = T::widen(place ? *(const Bits*)place : (Bits)bits);
    const u64 first = (u64)blockIdx.x * 256 + threadIdx.x, step = (u64)gridDim.x * 256;
    u64 places = (u64)into;
    for (u32 part = 0; part < parts; part++) places |= (u64)given.at[part];
    const u64 whole = places % 16 == 0 ? count / LEN : 0;
    for (u64 pack = first; pack < whole; pack += step) {
        Wide total[LEN];
        Some some = ((const Some*)given.at[0])[pack];
#pragma unroll
        for (u32 element = 0; element < LEN; element++) total[element] = T::widen(some.at[element]);
#pragma unroll 1
        for (u32 part = 1; part < parts; part++) {
            some = ((const Some*)given.at[part])[pack];
#pragma unroll
            for (u32 element = 0; element < LEN; element++) total[element] = joined(total[element], T::widen(some.at[element]), way);
        }
        if (way == AVG) {
#pragma unroll
            for (u32 element = 0; element < LEN; element++) total[element] = share(total[element], parts);
        }
        if (way == SCALE) {
#pragma unroll
            for (u32 element = 0; element < LEN; element++) total[element] = product(total[element], factor);
        }
#pragma unroll
        for (u32 element = 0; element < LEN; element++) some.at[element] = T::narrow(total[element]);
        ((Some*)into)[pack] = some;
    }
#pragma unroll 1
    for (u64 at = whole * LEN + first; at < count; at += step) {
        Wide total = T::widen(((const Bits*)given.at[0])[at]);
#pragma unroll 1
        for (u32 part = 1; part < parts; part++) total = joined(total, T::widen(((const Bits*)given.at[part])[at]), way);
        if (way == AVG) total = share(total, parts);
        if (way == SCALE) total = product(total, factor);
        ((Bits*)into)[at] = T::narrow(total);
    }
}

// The share of one of so few in a sum of 128 bits.
static __device__ u64 share_of(u64 high, u64 low, u64 count) {
    const u64 each = ~0ull / count, rest = ~0ull % count + 1;
    return high * each + low / count + (high * rest + low % count) / count;
}

// The average of whole numbers of 64 bits, whose sum is longer: toward zero, and exact.
static __device__ void average_longs(char* into, const Parts& given, u32 parts, u64 count, bool is_signed) {
    for (u64 at = (u64)blockIdx.x * 256 + threadIdx.x; at < count; at += (u64)gridDim.x * 256) {
        u64 high = 0, low = 0;
        for (u32 part = 0; part < parts; part++) {
            const u64 value = ((const u64*)given.at[part])[at];
            low += value;
            high += (low < value) - (is_signed ? value >> 63 : 0);
        }
        const bool is_negative = is_signed && high >> 63;
        if (is_negative) {
            low = ~low + 1;
            high = ~high + (low == 0);
        }
        const u64 each = share_of(high, low, parts);
        ((u64*)into)[at] = is_negative ? 0 - each : each;
    }
}

#define JOIN(NAME, FIRST, ...)                                                                                                             \
    extern "C" __global__ void __launch_bounds__(256)                                                                                      \
        phalanx_join_##NAME(char* into, const char* a, const char* b, const char* c, const char* d, const char* e, const char* f,          \
                            const char* g, const char* h, u64 parts, u64 count, u64 way, const char* place, u64 bits) {                    \
        const Parts given = {{a, b, c, d, e, f, g, h}};                                                                                    \
        FIRST join<__VA_ARGS__>(into, given, (u32)parts, count, (u32)way, place, bits);                                                    \
    }
#define LONGS(IS_SIGNED)                                                                                                                   \
    if (way == AVG) return average_longs(into, given, (u32)parts, count, IS_SIGNED);

JOIN(i8, , Whole<signed char, i64>)
JOIN(u8, , Whole<unsigned char, u64>)
JOIN(i32, , Whole<int, i64>)
JOIN(u32, , Whole<u32, u64>)
JOIN(i64, LONGS(true), Whole<i64, i64>)
JOIN(u64, LONGS(false), Whole<u64, u64>)
JOIN(f16, , Float<F16, 0x7e00>)
JOIN(f32, , Float<F32, 0x7fc00000>)
JOIN(f64, , Double)
JOIN(bf16, , Float<BF16, 0x7fc0>)
