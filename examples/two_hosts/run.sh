#!/bin/sh
# Two "hosts" on one machine: network namespaces that a veth pair joins, in which ranks see nothing of each other but
# the link. Needs root and iproute2.
#
#   run.sh [--rate 1gbit] [--delay 5ms] gloo|mpi RANKS_PER_HOST COMMAND...
#
# for instance
#
#   examples/two_hosts/run.sh gloo 2 build/tessera verify examples/tiny/model.onnx --mesh dp=2,tp=2
#
# runs ranks 0 and 1 on the first host, 2 and 3 on the second. With gloo, each process gets the variables that torchrun
# sets; with mpi, mpirun starts the second host's ranks through an agent that stands in for ssh. --rate throttles the
# link in both directions, and --delay makes each packet arrive later. The exit code is the command's, or 77 where
# namespaces cannot be made, or the link cannot be made so.
set -u

usage() {
  sed -n '2,15s/^# \{0,1\}//p' "$0" >&2
  exit 2
}

rate= delay=
while :; do
  case ${1-} in --rate) rate=${2-} ;; --delay) delay=${2-} ;; *) break ;; esac
  [ $# -gt 1 ] || usage
  shift 2
done
[ $# -ge 3 ] || usage
engine=$1 each=$2
shift 2
case $engine in gloo | mpi) ;; *) usage ;; esac

first=tessera_first_$$ second=tessera_second_$$
agent=$(mktemp)
clean_up() {
  for host in $first $second; do
    for process in $(ip netns pids $host 2>/dev/null); do kill -9 "$process" 2>/dev/null; done
    ip netns del $host 2>/dev/null
  done
  rm -f "$agent"
}
trap clean_up EXIT
trap 'exit 130' INT TERM

if ! { ip netns add $first && ip netns add $second; } 2>/dev/null; then
  echo "two_hosts: no network namespaces can be made here (that needs root and iproute2): skipped" >&2
  exit 77
fi
# What holds host $1, 1 or 2, on its half of the cores, if there are two: otherwise the system would let ranks of both
# share one while another rests, after they have waited.
held_host() {
  taskset -cp $$ 2>/dev/null | awk -v host="$1" '{
    ranges = split($NF, range, ",")
    for (r = 1; r <= ranges; ++r) {
      ends = split(range[r], end, "-")
      for (core = end[1]; core <= end[ends]; ++core) cores[++count] = core
    }
    half = int(count / 2)
    for (i = 1; i <= half; ++i) printf "%s%s", (i == 1 ? "taskset -c " : ","), cores[(host - 1) * half + i]
  }'
}
held1=$(held_host 1) held2=$(held_host 2)
# What passes at full speed after a pause: the bytes of a millisecond, since timers are not finer, and a packet.
burst_of() {
  case $1 in
    *gbit) echo $((${1%gbit} * 125))kb ;;
    *mbit) echo $((${1%mbit} * 125 + 2000))b ;;
    *) echo 256kb ;;
  esac
}

ip -n $first link add link0 type veth peer name link0 netns $second || exit 77
number=0
for host in $first $second; do
  number=$((number + 1))
  ip -n $host addr add 10.77.0.$number/24 dev link0
  ip -n $host link set lo up
  ip -n $host link set link0 up
  parent=root
  if [ -n "$rate" ]; then
    if ! tc -n $host qdisc add dev link0 root handle 1: tbf rate "$rate" burst "$(burst_of "$rate")" latency 50ms; then
      echo "two_hosts: the link cannot be throttled here: skipped" >&2
      exit 77
    fi
    parent="parent 1:1"
  fi
  # shellcheck disable=SC2086
  if [ -n "$delay" ] && ! tc -n $host qdisc add dev link0 $parent netem delay "$delay" limit 10000; then
    echo "two_hosts: packets cannot be delayed here (the kernel lacks netem): skipped" >&2
    exit 77
  fi
done

# On a host of that number: its network, and its name, by which Open MPI tells machines apart.
cat > "$agent" <<EOF
#!/bin/sh
case \$1 in 10.77.0.1) namespace=$first held='$held1' ;; *) namespace=$second held='$held2' ;; esac
name=host-\${1##*.}
shift
exec \$held ip netns exec \$namespace unshare --uts sh -c "hostname \$name; \$*"
EOF
chmod +x "$agent"

if [ "$engine" = mpi ]; then
  # The hosts share this machine's cores: bound to theirs, the ranks of both would be bound to the same ones.
  export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
  # shellcheck disable=SC2086
  $held1 ip netns exec $first unshare --uts sh -c 'hostname host-1; exec "$@"' sh \
    mpirun --mca plm_rsh_agent "$agent" --mca oob_tcp_if_include 10.77.0.0/24 --mca btl_tcp_if_include 10.77.0.0/24 \
    --mca btl tcp,vader,self --bind-to none --oversubscribe -n $((2 * each)) --host "10.77.0.1:$each,10.77.0.2:$each" "$@"
  code=$?
else
  processes= code=0 rank=0
  while [ $rank -lt $((2 * each)) ]; do
    host=$first held=$held1
    [ $rank -lt "$each" ] || { host=$second held=$held2; }
    # shellcheck disable=SC2086
    RANK=$rank WORLD_SIZE=$((2 * each)) LOCAL_RANK=$((rank % each)) LOCAL_WORLD_SIZE=$each \
      MASTER_ADDR=10.77.0.1 MASTER_PORT=29500 $held ip netns exec $host "$@" &
    processes="$processes $!"
    rank=$((rank + 1))
  done
  for process in $processes; do
    wait "$process" || { ended=$?; [ $ended -le $code ] || code=$ended; }
  done
fi
sent=$(ip netns exec $first cat /sys/class/net/link0/statistics/tx_bytes 2>/dev/null)
echo "two_hosts: ${sent:-unknown} bytes went from the first host to the second" >&2
exit $code
