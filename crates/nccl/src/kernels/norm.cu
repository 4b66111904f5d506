// Norms of what lies in stretches, and what multiplies it: read after `carry.cu`, whose types these are. The plain Rust that this must equal,
// to the bit but for `pow`, is in `norm.rs` and `multiply.rs`. Sums are of doubles, in an order that neither the grid nor the alignment changes.

const u32 THREADS = 256;

// What becomes of an element: itself, its square, itself for the largest, or a power.
enum Way { ONES, SQUARES, LARGEST, POWERS };

static __device__ Way way_of(double p) { return p == 1.0 ? ONES : p == 2.0 ? SQUARES : p > 1.7976931348623157e308 ? LARGEST : POWERS; }

// The sum of two, or the larger; what is no number stays.
static __device__ double joined(double one, double other, Way way) {
    if (way != LARGEST) return __dadd_rn(one, other);
    return other > one || other != other ? other : one;
}

// It is long, and called for norms that are seldom asked for.
static __device__ __noinline__ double raised(double value, double p) { return pow(value, p); }

static __device__ double power(float element, Way way, double p) {
    const double value = fabs((double)element);
    return way == SQUARES ? __dmul_rn(value, value) : way == POWERS ? raised(value, p) : value;
}

// What all threads of a block have, as its first one gets it.
static __device__ double joined_by_block(double own, Way way) {
    __shared__ double lanes[THREADS];
    // What was here before is read by now.
    __syncthreads();
    lanes[threadIdx.x] = own;
    for (u32 half = THREADS / 2; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) lanes[threadIdx.x] = joined(lanes[threadIdx.x], lanes[threadIdx.x + half], way);
    }
    return lanes[0];
}

static __device__ double joined_values(const double* values, u64 count, Way way) {
    double own = 0.0;
    for (u64 at = threadIdx.x; at < count; at += THREADS) own = joined(own, values[at], way);
    return joined_by_block(own, way);
}

// So many elements: 16 bytes of each run of 256 times as many are a thread's.
template <class T, Way WAY> __device__ double measured(const typename T::Bits* source, u32 count, double p) {
    const u32 LEN = 16 / sizeof(typename T::Bits), AT_ONCE = 4;
    typedef Pack<typename T::Bits, LEN> In;
    double own = 0.0;
    const u32 whole = (u64)source % 16 == 0 ? count / LEN : 0;
    const In* packs = (const In*)source;
    for (u32 pack = threadIdx.x; pack < whole; pack += THREADS * AT_ONCE) {
        In in[AT_ONCE];
#pragma unroll
        for (u32 k = 0; k < AT_ONCE; k++)
            if (pack + k * THREADS < whole) in[k] = packs[pack + k * THREADS];
#pragma unroll
        for (u32 k = 0; k < AT_ONCE; k++)
            if (pack + k * THREADS < whole)
#pragma unroll
                for (u32 element = 0; element < LEN; element++) own = joined(own, power(T::widen(in[k].at[element]), WAY, p), WAY);
    }
    for (u32 at = whole * LEN; at < count; at++)
        if (at / LEN % THREADS == threadIdx.x) own = joined(own, power(T::widen(source[at]), WAY, p), WAY);
    return joined_by_block(own, WAY);
}

template <class T>
__device__ void measure(const char* data, const char* table, double* parts, u64 stretches, u64 first, u64 tiles, double p) {
    const u64 TILE = 8192;
    const Stretch* all = (const Stretch*)table;
    const u32* of = (const u32*)(all + stretches);
    for (u64 tile = first + blockIdx.x; tile < first + tiles; tile += gridDim.x) {
        const Stretch stretch = all[of[tile]];
        const u64 begin = (tile - stretch.first) * TILE;
        const u32 count = (u32)(stretch.len - begin < TILE ? stretch.len - begin : TILE);
        const typename T::Bits* source = (const typename T::Bits*)(data + stretch.from) + begin;
        double part;
        switch (way_of(p)) {
            case ONES: part = measured<T, ONES>(source, count, p); break;
            case SQUARES: part = measured<T, SQUARES>(source, count, p); break;
            case LARGEST: part = measured<T, LARGEST>(source, count, p); break;
            default: part = measured<T, POWERS>(source, count, p);
        }
        if (threadIdx.x == 0) parts[tile - first] = part;
    }
}

// Rounded once, whatever it is narrowed to: the nearest float toward zero, its last bit set where that is not exact.
template <class T> struct Rounded {
    static __device__ typename T::Bits narrow(double wide) {
        const float near = __double2float_rz(wide);
        return T::narrow((double)near == wide ? near : __uint_as_float(__float_as_uint(near) | 1));
    }
};
template <> struct Rounded<F32> {
    static __device__ u32 narrow(double wide) { return __float_as_uint(__double2float_rn(wide)); }
};

template <class T>
__device__ void multiply(char* data, const char* table, const double* factor, u64 value, u64 stretches, u64 first, u64 tiles) {
    const u64 TILE = 8192;
    const u32 LEN = 16 / sizeof(typename T::Bits);
    typedef Pack<typename T::Bits, LEN> Elements;
    const Stretch* all = (const Stretch*)table;
    const u32* of = (const u32*)(all + stretches);
    const double by = factor ? *factor : __longlong_as_double((long long)value);
    // Nothing would change.
    if (by == 1.0) return;
    for (u64 tile = first + blockIdx.x; tile < first + tiles; tile += gridDim.x) {
        const Stretch stretch = all[of[tile]];
        const u64 begin = (tile - stretch.first) * TILE;
        const u32 count = (u32)(stretch.len - begin < TILE ? stretch.len - begin : TILE);
        typename T::Bits* target = (typename T::Bits*)(data + stretch.from) + begin;
        const u32 whole = (u64)target % 16 == 0 ? count / LEN : 0;
        Elements* packs = (Elements*)target;
        for (u32 pack = threadIdx.x; pack < whole; pack += THREADS) {
            Elements elements = packs[pack];
#pragma unroll
            for (u32 k = 0; k < LEN; k++) elements.at[k] = Rounded<T>::narrow(__dmul_rn((double)T::widen(elements.at[k]), by));
            packs[pack] = elements;
        }
        for (u32 at = whole * LEN + threadIdx.x; at < count; at += THREADS)
            target[at] = Rounded<T>::narrow(__dmul_rn((double)T::widen(target[at]), by));
    }
}

#define NORM_OF(NAME, TYPE)                                                                                                               \
    extern "C" __global__ void __launch_bounds__(256) phalanx_measure_##NAME(const char* data, const char* table, double* parts,          \
                                                                             u64 stretches, u64 first, u64 tiles, u64 p) {               \
        measure<TYPE>(data, table, parts, stretches, first, tiles, __longlong_as_double((long long)p));                                   \
    }                                                                                                                                     \
    extern "C" __global__ void __launch_bounds__(256) phalanx_multiply_##NAME(char* data, const char* table, const double* factor,        \
                                                                              u64 value, u64 stretches, u64 first, u64 tiles) {          \
        multiply<TYPE>(data, table, factor, value, stretches, first, tiles);                                                              \
    }

NORM_OF(f32, F32)
NORM_OF(f16, F16)
NORM_OF(bf16, BF16)

extern "C" __global__ void __launch_bounds__(256) phalanx_fold(const double* parts, u64 count, u64 p, double* sum) {
    const double all = joined_values(parts, count, way_of(__longlong_as_double((long long)p)));
    if (threadIdx.x == 0) *sum = all;
}

// The norm of what all ranks have, and what multiplies gradients so that it is at most `most`.
extern "C" __global__ void __launch_bounds__(256) phalanx_norm(const double* sums, u64 ranks, u64 p, u64 most, double* norm) {
    const double exponent = __longlong_as_double((long long)p);
    const Way way = way_of(exponent);
    const double all = joined_values(sums, ranks, way);
    if (threadIdx.x != 0) return;
    const double root = way == SQUARES ? __dsqrt_rn(all) : way == POWERS ? raised(all, __ddiv_rn(1.0, exponent)) : all;
    const double factor = __ddiv_rn(__longlong_as_double((long long)most), __dadd_rn(root, 1e-6));
    norm[0] = root;
    norm[1] = factor < 1.0 ? factor : 1.0;
}
