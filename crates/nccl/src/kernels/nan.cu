// The place of the first element whose bits, those of the mask alone, lie between two numbers. Compiled by NVRTC, which needs no headers.

typedef unsigned long long u64;

template <typename Bits>
static __device__ void look(const Bits* data, u64 count, u64 mask, u64 low, u64 high, u64* first) {
    u64 step = (u64)gridDim.x * blockDim.x;
    for (u64 at = (u64)blockIdx.x * blockDim.x + threadIdx.x; at < count; at += step) {
        u64 bits = (u64)data[at] & mask;
        if (bits >= low && bits <= high) {
            // What this thread finds later lies behind it.
            atomicMin(first, at);
            return;
        }
    }
}

extern "C" __global__ void phalanx_nan_8(const unsigned char* data, u64 count, u64 mask, u64 low, u64 high, u64* first) {
    look(data, count, mask, low, high, first);
}

extern "C" __global__ void phalanx_nan_16(const unsigned short* data, u64 count, u64 mask, u64 low, u64 high, u64* first) {
    look(data, count, mask, low, high, first);
}

extern "C" __global__ void phalanx_nan_32(const unsigned int* data, u64 count, u64 mask, u64 low, u64 high, u64* first) {
    look(data, count, mask, low, high, first);
}

extern "C" __global__ void phalanx_nan_64(const u64* data, u64 count, u64 mask, u64 low, u64 high, u64* first) {
    look(data, count, mask, low, high, first);
}
