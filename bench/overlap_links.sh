#!/bin/bash
# Measures what overlap gains and costs: steps with --overlap off and auto, over links of several speeds.
#
#   bench/overlap_links.sh [--rounds 9] [--steps 8] [--only TEXT] [--engines "threads processes gloo mpi"]
#                          [--rates "1gbit 100mbit"] [--delays "0ms 5ms"] [--ranks "2 4"] [--machine FILE]
#
# Threads and processes share this machine. Gloo and MPI join two network namespaces, whose link has the given rates and
# delays (examples/two_hosts/run.sh; needs root and iproute2, and netem for delays). Off and auto take turns. A run's
# time is the median of its steps, and the table has the median of the rounds. --only: rows whose name contains TEXT,
# as "gpt fsdp=2 gloo 100mbit". The machine is calibrated first, unless a file is given; what plans need beyond it is
# measured once for each engine and link. With --machine none nothing is predicted, and auto chooses without times.
#
# "compute" and "waits" are what rank 0 does with --overlap off, where nothing is hidden: the longer of the two is the
# bound of any overlap. "hidden" is the share of the waits that auto saves. Rows where auto is more than 2 % slower end
# with !, and so does one whose time is more than 1.10 times the bound with auto.
set -euo pipefail
cd "$(dirname "$0")/.."
tessera=${TESSERA:-build/tessera}
rounds=9 steps=8 only= engines="threads processes gloo mpi" rates="1gbit 100mbit" delays="0ms 5ms" ranks="2 4" machine=
while [ $# -gt 1 ]; do
  case $1 in
    --rounds) rounds=$2 ;; --steps) steps=$2 ;; --only) only=$2 ;; --engines) engines=$2 ;; --rates) rates=$2 ;;
    --delays) delays=$2 ;; --ranks) ranks=$2 ;; --machine) machine=$2 ;; *) break ;;
  esac
  shift 2
done
if [ $# -gt 0 ]; then
  sed -n '2,17s/^# \{0,1\}//p' "$0" >&2
  exit 2
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM

case $machine in
  none) ;;
  "") "$tessera" calibrate --quick -o "$work/machine.json" --quiet ;;
  *) cp "$machine" "$work/machine.json" ;;
esac
examples/gpt/gpt.sh 4 256 4 2048 128 >"$work/gpt.onnxtxt"
examples/train_tiny/llama.sh 4 256 4 2048 >"$work/llama.onnxtxt"
for i in $(seq 4000); do echo "all of this is the same text, and line $i of it is like the others."; done >"$work/text"

# What the ranks run; $1: model, $2: the plan's options, $3: --overlap, $4: machine file.
command_of() {
  local common="--threads 1 --overlap $3 --json"
  [ ! -e "$4" ] || common="$common --machine $4"
  case $1 in
    tiny) echo "$tessera bench examples/tiny/model.onnx --shapes batch=8,sequence=37 $2 --iterations $((steps * 5)) $common" ;;
    *) echo "$tessera train $work/$1.onnxtxt --data $work/text --batch 8 --sequence 128 --steps $steps --output logits" \
      "--init *=normal:0.02 $2 $common" ;;
  esac
}

# Runs a command as $2 ranks over engine $1, with link $3 and $4; what rank 0 prints.
on() {
  local engine=$1 count=$2 rate=$3 delay=$4
  shift 4
  case $engine in
    threads) "$@" 2>"$work/errors" ;;
    processes) "$@" --spawn "$count" 2>"$work/errors" ;;
    *)
      local delayed=()
      [ "$delay" = 0ms ] || delayed=(--delay "$delay")
      examples/two_hosts/run.sh --rate "$rate" "${delayed[@]}" "$engine" $((count / 2)) "$@" 2>"$work/errors"
      ;;
  esac
}

# Figures of an answer: milliseconds of a step, the predicted ones, rank 0's computation and its waits.
figures() {
  python3 -c '
import json, sys
found = json.load(sys.stdin)
step = found["latency_ms"]["median"] if "latency_ms" in found else found["measured"]["step_ms"]
waits = sum(each["measured"]["exposed_ms"] + each["measured"]["late_peer_ms"]
            for each in found.get("overlap", {}).get("communications", []) if "measured" in each)
print(step, found.get("predicted", {}).get("step_ms", 0), max(step - waits, 0), waits)'
}

median() {
  sort -g "$1" | awk '{ value[NR] = $1 } END { print (value[int((NR + 1) / 2)] + value[int(NR / 2) + 1]) / 2 }'
}

# $1: model, $2: the plan's name, $3: its options, $4: engine, $5: ranks, $6: rate, $7: delay
row() {
  local name="$1 $2 $4"
  case $4 in gloo | mpi) name="$name $6$([ "$7" = 0ms ] || echo " $7")" ;; esac
  case $name in *"$only"*) ;; *) return 0 ;; esac
  local file=$work/machine.$4.$5.$6.$7.json mode code=0
  [ -e "$file" ] || [ ! -e "$work/machine.json" ] || cp "$work/machine.json" "$file"
  rm -f "$work"/off "$work"/auto
  # Measures what the file lacks, for both.
  for mode in off auto; do
    # shellcheck disable=SC2046
    (set -f && on "$4" "$5" "$6" "$7" $(command_of "$1" "$3" $mode "$file") >"$work/answer") || code=$?
    if [ $code -ne 0 ]; then
      printf '%-34s left out: %s\n' "$name" "$(grep -v bytes "$work/errors" | tail -n 1)"
      return 0
    fi
  done
  local predicted_off predicted_auto compute waits profile
  case $1 in tiny) profile= ;; *) profile="--profile $work/trace.json" ;; esac
  # shellcheck disable=SC2046
  (set -f && on "$4" "$5" "$6" "$7" $(command_of "$1" "$3 $profile" off "$file") >"$work/answer")
  read -r _ predicted_off compute waits < <(figures <"$work/answer")
  for ((round = 0; round < rounds; ++round)); do
    for mode in off auto; do
      # shellcheck disable=SC2046
      (set -f && on "$4" "$5" "$6" "$7" $(command_of "$1" "$3" $mode "$file") >"$work/answer")
      read -r step predicted _ _ < <(figures <"$work/answer")
      echo "$step" >>"$work/$mode"
      [ $mode = off ] || predicted_auto=$predicted
    done
  done
  awk -v name="$name" -v off="$(median "$work/off")" -v auto="$(median "$work/auto")" -v poff="$predicted_off" \
    -v pauto="$predicted_auto" -v compute="$compute" -v waits="$waits" 'BEGIN {
      bound = compute > waits ? compute : waits
      hidden = waits > 0 ? 100 * (off - auto) / waits : 0
      mark = auto > 1.02 * off || auto > 1.10 * bound ? " !" : ""
      printf "%-34s %9.2f %9.2f %6.2f %9.2f %9.2f %8.2f %8.2f %7.0f%% %6.2f%s\n", name, off, auto, off / auto, poff, pauto,
             compute, waits, hidden, auto / bound, mark
    }'
}

printf '%-34s %9s %9s %6s %9s %9s %8s %8s %8s %6s\n' "milliseconds a step" off auto gain "pred. off" "auto" compute waits \
  hidden "/bound"
for engine in $engines; do
  case $engine in gloo | mpi) links=$rates lags=$delays ;; *) links=- lags=0ms ;; esac
  for count in $ranks; do
    for rate in $links; do
      for delay in $lags; do
        for model in tiny gpt llama; do
          row $model "tp=$count" "--mesh tp=$count" $engine "$count" "$rate" "$delay"
          [ $model != tiny ] || continue
          row $model "dp=$count" "--mesh dp=$count" $engine "$count" "$rate" "$delay"
          row $model "fsdp=$count" "--mesh dp=$count --preset fsdp" $engine "$count" "$rate" "$delay"
          row $model "tp=$count sequence" "--mesh tp=$count --preset megatron+sequence" $engine "$count" "$rate" "$delay"
        done
      done
    done
  done
done
