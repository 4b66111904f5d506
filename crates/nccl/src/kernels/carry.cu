// Carries stretches of elements from one place to another: cast, divided, and followed by zeros. What lies where is a table, made by
// `plan.rs`; the plain Rust that this must equal is in `carry.rs`. No header is needed, so that NVRTC compiles it alone.

typedef unsigned long long u64;
typedef unsigned int u32;
typedef unsigned short u16;

struct Stretch {
    u64 from, to, len, zeros, first;
};

struct F32 {
    typedef u32 Bits;
    static __device__ float widen(u32 bits) { return __uint_as_float(bits); }
    static __device__ u32 narrow(float value) { return __float_as_uint(value); }
};

struct F16 {
    typedef u16 Bits;
    static __device__ float widen(u16 bits) {
        float value;
        asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
        return value;
    }
    static __device__ u16 narrow(float value) {
        u16 bits;
        asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
        return bits;
    }
};

struct BF16 {
    typedef u16 Bits;
    static __device__ float widen(u16 bits) { return __uint_as_float((u32)bits << 16); }
    static __device__ u16 narrow(float value) {
        u16 bits;
        asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(value));
        return bits;
    }
};

template <class A, class B> struct Same { enum { VALUE = false }; };
template <class A> struct Same<A, A> { enum { VALUE = true }; };

// So many elements that lie together, moved 16 bytes at a time.
template <class Bits, int LEN> struct __align__(16) Pack {
    Bits at[LEN];
};

template <class From, class To, bool ADDS>
__device__ typename To::Bits carried(typename From::Bits element, typename To::Bits old, float divisor) {
    if (Same<From, To>::VALUE && !ADDS && divisor == 1.0f) return (typename To::Bits)element;
    float value = From::widen(element);
    if (divisor != 1.0f) value = __fdiv_rn(value, divisor);
    return To::narrow(ADDS ? __fadd_rn(To::widen(old), value) : value);
}

template <class From, class To, bool ADDS>
__device__ void carry(char* into, const char* from, const char* table, u64 stretches, u64 first, u64 tiles, u64 skip, float divisor) {
    const u64 TILE = 8192;
    const int NARROW = sizeof(typename From::Bits) < sizeof(typename To::Bits) ? sizeof(typename From::Bits) : sizeof(typename To::Bits);
    const int LEN = 16 / NARROW;
    const int AT_ONCE = ADDS ? 1 : 64 / (LEN * sizeof(typename From::Bits));
    typedef Pack<typename From::Bits, LEN> In;
    typedef Pack<typename To::Bits, LEN> Out;
    const Stretch* all = (const Stretch*)table;
    const u32* of = (const u32*)(all + stretches);
    for (u64 tile = first + blockIdx.x; tile < first + tiles; tile += gridDim.x) {
        const Stretch stretch = all[of[tile]];
        const u64 begin = (tile - stretch.first) * TILE;
        const u64 whole = stretch.len + stretch.zeros;
        const u64 end = begin + TILE < whole ? begin + TILE : whole;
        const u64 full = stretch.len < begin ? begin : stretch.len < end ? stretch.len : end;
        const typename From::Bits* source = (const typename From::Bits*)(from + (stretch.from - skip));
        typename To::Bits* target = (typename To::Bits*)(into + stretch.to);
        u64 at = begin;
        if ((((u64)(source + begin)) | ((u64)(target + begin))) % 16 == 0) {
            const In* packs = (const In*)(source + begin);
            Out* places = (Out*)(target + begin);
            const u32 count = (u32)((full - begin) / LEN);
            for (u32 pack = threadIdx.x; pack < count; pack += blockDim.x * AT_ONCE) {
                In in[AT_ONCE];
                Out out[AT_ONCE];
#pragma unroll
                for (int k = 0; k < AT_ONCE; k++) {
                    const u32 number = pack + k * blockDim.x;
                    if (number < count) {
                        in[k] = packs[number];
                        if (ADDS) out[k] = places[number];
                    }
                }
#pragma unroll
                for (int k = 0; k < AT_ONCE; k++) {
                    const u32 number = pack + k * blockDim.x;
#pragma unroll
                    for (int element = 0; element < LEN; element++)
                        out[k].at[element] = carried<From, To, ADDS>(in[k].at[element], out[k].at[element], divisor);
                    if (number < count) places[number] = out[k];
                }
            }
            at = begin + (u64)count * LEN;
        }
        for (u64 element = at + threadIdx.x; element < full; element += blockDim.x)
            target[element] = carried<From, To, ADDS>(source[element], ADDS ? target[element] : 0, divisor);
        if (!ADDS)
            for (u64 element = full + threadIdx.x; element < end; element += blockDim.x) target[element] = 0;
    }
}

#define KERNEL(NAME, FROM, TO, ADDS)                                                                                                       \
    extern "C" __global__ void __launch_bounds__(256) NAME(char* into, const char* from, const char* table, u64 stretches, u64 first,     \
                                                           u64 tiles, u64 skip, float divisor) {                                          \
        carry<FROM, TO, ADDS>(into, from, table, stretches, first, tiles, skip, divisor);                                                  \
    }
#define PAIR(NAMES, FROM, TO) KERNEL(phalanx_put_##NAMES, FROM, TO, false) KERNEL(phalanx_add_##NAMES, FROM, TO, true)

PAIR(f32_f32, F32, F32)
PAIR(f32_f16, F32, F16)
PAIR(f32_bf16, F32, BF16)
PAIR(f16_f32, F16, F32)
PAIR(f16_f16, F16, F16)
PAIR(f16_bf16, F16, BF16)
PAIR(bf16_f32, BF16, F32)
PAIR(bf16_f16, BF16, F16)
PAIR(bf16_bf16, BF16, BF16)
