#!/bin/bash
# `make run`: a trained byte-level language model, split over five meshes, each held to the answers that came with the
# model; then the text that it continues. Needs nothing but the programs that `make build` leaves.
set -euo pipefail
cd "$(dirname "$0")/../.."
build=${TESSERA_BUILD:-build}
model=examples/tiny/model.onnx
inputs=examples/tiny/inputs_0.npz     # 3 texts of 37 bytes
expected=examples/tiny/outputs_0.npz  # PyTorch's float32 logits
sizes=batch=3,sequence=37

# The value of the first `"key": value` on a line of the JSON that comes in.
value() { sed -n "s/^ *\"$1\": *\"\\{0,1\\}\\([^\",]*\\)\"\\{0,1\\},\\{0,1\\}\$/\\1/p" | head -n 1; }

# "12 all_reduce" for each kind of collective of a program, and what rank 0 receives in all of them, in KiB.
collectives() {
  awk -F'[:,]' '
    /"kind":/ { gsub(/[ "]/, "", $2); kind = $2 }
    /"count":/ { list = list (list ? ", " : "") $2 + 0 " " kind }
    /"bytes":/ && kind { bytes += $2; kind = "" }
    /"reshards":/ { exit }
    END { printf "%s|%.0f", list ? list : "none", bytes / 1024 }'
}

row='%-10s  %-18s  %5s  %-6s  %8s  %8s  %8s  %9s  %s\n'
printf "$row" mesh preset ranks answer 'max abs' 'max rel' 'peak MiB' 'comm. KiB' communication
good=1
verify() {
  local mesh=$1 preset=$2
  local -a plan=(--mesh "$mesh" --preset "$preset")
  local verdict=0 checked sharded
  checked=$("$build/tessera" verify "$model" "${plan[@]}" --inputs "$inputs" --expected "$expected" --json) || verdict=$?
  [ $verdict -le 1 ] || exit $verdict
  sharded=$("$build/tessera" shard "$model" "${plan[@]}" --shapes "$sizes" --dry-run --json)
  local ranks=1 axis pass=pass comm
  for axis in ${mesh//,/ }; do ranks=$((ranks * ${axis#*=})); done
  if [ $verdict != 0 ]; then
    pass=FAIL
    good=0
  fi
  comm=$(collectives <<<"$sharded")
  printf "$row" "$mesh" "$preset" "$ranks" "$pass" \
    "$(printf %.1e "$(value max_abs <<<"$checked")")" "$(printf %.1e "$(value max_rel <<<"$checked")")" \
    "$(value peak_bytes <<<"$sharded" | awk '{ printf "%.1f", $1 / 1048576 }')" "${comm#*|}" "${comm%|*}"
}

verify tp=2 megatron
verify tp=3 megatron
verify dp=2 dp
verify dp=2,tp=2 dp+megatron
verify tp=2 megatron+sequence
[ $good = 1 ] || exit 1
echo "Each passes if no logit is off by more than 2e-5 of the largest. Peak and communication are rank 0's, per run."
echo
echo "The text that the model continues, on 2 ranks (tp=2):"
echo
"$build/tessera" generate "$model" --mesh tp=2 --text "${1:-THE SOFTWARE IS PROVIDED }" --max-new 160 --quiet
