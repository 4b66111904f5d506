// The C side of bench/kernels.sh: kernels and clock of limits.c (named by -DLIMITS), for the types and sizes measured there.
#define main limits_main
#include LIMITS
#undef main

// limits.c has no 32-bit integers; this is its i64 kernel at half the width.
static void k_i32(char *d, char *s, size_t n) {
  int32_t *restrict a = (int32_t *)d, *restrict b = (int32_t *)s;
  for (size_t i = 0; i < n / 4; i++) a[i] += b[i];
}

// Like bw() of limits.c with one thread, but in buffers of its own. Those of bw() lie 256 MiB apart, and addresses that
// agree in their lower 28 bits halve the rate within the caches of Zen 4: 24 GB/s where any other distance gives 48.
static double rate(kern k, char *d, char *s, size_t n) {
  enum { REPS = 15 };
  int inner = 256 * MiB / n;
  double t[REPS];
  for (int i = 0; i < inner; i++) k(d, s, n);
  for (int r = 0; r < REPS; r++) {
    double start = now();
    for (int i = 0; i < inner; i++) k(d, s, n);
    t[r] = (now() - start) / inner;
  }
  return n / med(t, REPS) / 1e9;
}

// One kernel at one size: kernels_c f32 64
int main(int argc, char **argv) {
  struct { const char *name; kern k; } kernels[] = {
    {"f32", k_add512}, {"f64", k_f64}, {"i32", k_i32}, {"bf16", k_bf16}, {"f16", k_f16},
  };
  if (argc != 3) return 2;
  size_t n = strtoul(argv[2], 0, 10) * MiB, mapped = n < 2 * MiB ? 2 * MiB : n;
  char *d = anon(mapped, 0, 1), *s = anon(mapped, 0, 1);
  for (size_t i = 0; i < sizeof kernels / sizeof *kernels; i++)
    if (!strcmp(kernels[i].name, argv[1])) printf("%.3f\n", rate(kernels[i].k, d, s, n));
}
