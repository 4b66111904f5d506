#!/usr/bin/env bash
# Sets the pairwise sum of phalanx-core beside hand-written C, on one core, and prints a Markdown table.
#
#   LIMITS=path/to/limits.c bench/kernels.sh [rounds]
#
# Both sides run in turn, kernel by kernel, since other work on the machine comes and goes. A round's rate is the median
# of its run, in bytes of the accumulator per second. Shown are the medians of the rounds with their ratio, and the best
# rounds, which say how quiet the machine was. The C side needs AVX-512 with bf16.
set -euo pipefail
cd "$(dirname "$0")/.."

limits=$(realpath -m -- "${LIMITS:-../shared/bench/limits.c}")
[[ -f $limits ]] || { printf 'kernels: no %s (LIMITS names where it is)\n' "$limits" >&2; exit 2; }
rounds=${1:-7}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cc -O3 -march=native -pthread -w "-DLIMITS=\"$limits\"" bench/kernels.c -o "$work/kernels_c"
bench=$(cargo bench -p phalanx-core --bench kernels --no-run --message-format=json 2>"$work/build.log" |
  sed -n 's/.*"name":"kernels".*"executable":"\([^"]*\)".*/\1/p') || { cat "$work/build.log" >&2; exit 1; }
[[ -x $bench ]] || { echo "kernels: cargo named no bench" >&2; exit 1; }

run_c() {
  taskset -c 0 "$work/kernels_c" "$1" "$2"
}

# Criterion leaves the median time in nanoseconds. A run that fails leaves that of the round before.
run_ours() {
  CRITERION_HOME="$work/criterion" taskset -c 0 "$bench" --bench --exact "fold_sum/$1/$2" >"$work/run.log" 2>&1 ||
    { cat "$work/run.log" >&2; return 1; }
  sed -E 's/.*"median":\{"confidence_interval":\{[^}]*\},"point_estimate":([0-9.e+]+).*/\1/' \
    "$work/criterion/fold_sum/$1/$2/new/estimates.json" | awk -v mib="$2" '{ print mib * 1048576 / $1 }'
}

for round in $(seq "$rounds"); do
  echo "round $round of $rounds" >&2
  for dtype in f32 f64 i32 bf16 f16; do
    for mib in 1 64; do
      theirs=$(run_c "$dtype" "$mib")
      ours=$(run_ours "$dtype" "$mib")
      [[ -n $theirs && -n $ours ]] || { echo "kernels: no rate for $dtype and $mib MiB" >&2; exit 1; }
      echo "$dtype $mib $theirs $ours"
    done
  done
done >"$work/rates"

# "best median" of the numbers on standard input.
summary() {
  sort -gr | awk '{ value[NR] = $1 } END { print value[1], value[int((NR + 1) / 2)] }'
}

echo "| dtype | MiB | C GB/s | ours GB/s | ratio | C best | ours best |"
echo "|---|--:|--:|--:|--:|--:|--:|"
for dtype in f32 f64 i32 bf16 f16; do
  for mib in 1 64; do
    rows=$(grep "^$dtype $mib " "$work/rates")
    echo "$dtype $mib $(cut -d' ' -f3 <<<"$rows" | summary) $(cut -d' ' -f4 <<<"$rows" | summary)"
  done
done | awk '{ printf "| %s | %d | %.1f | %.1f | %.0f %% | %.1f | %.1f |\n", $1, $2, $4, $6, 100 * $6 / $4, $3, $5 }'
