#!/bin/sh
# Compares the speed of llama31 and llama.cpp on this machine, run alternately (A B A B ...).
#
#   scripts/bench_peers.sh -m MODEL [-r 5] [-t THREADS] [-n 32] [--tests p512,d0,d4096,b8,start] [--json] [-q]
#
# Tests (default p512,d0,b8,start):
#   pN     prefill of N tokens
#   dN     decoding of -n tokens at depth N
#   bN     decoding with N sequences
#   start  a whole process, from its start to its first token
#
# Environment:
#   LLAMA_BENCH=FILE        llama-bench; llama-batched-bench and llama-completion next to it serve bN and start
#   LLAMA31_PEER=DIRECTORY  or: where `npm install node-llama-cpp` was run
#   LLAMA31_PROGRAM=FILE    default: of this source tree or installation, or in PATH
#
# Prints medians and the median of the ratios of each turn, which depends less on other load. A ratio above 1 means that
# llama31 is faster.
set -u

here=$(cd "$(dirname "$0")" && pwd)
program=${LLAMA31_PROGRAM:-}
for path in "$here/../llama31" "$here/../../../bin/llama31" "$(command -v llama31)"; do
    if [ -z "$program" ] && [ -x "$path" ]; then program=$path; fi
done
model=${LLAMA31_MODEL:-}
threads=$(getconf _NPROCESSORS_ONLN 2>/dev/null || echo 1)
turns=5 n=32 tests=p512,d0,b8,start json=0 quiet=0
tmp=

fail() { # STATUS MESSAGE...
    status=$1
    shift
    echo "bench_peers: $*" >&2
    exit "$status"
}
trap '[ -z "$tmp" ] || rm -rf "$tmp"' EXIT
trap 'exit 130' HUP INT TERM

require_count() { # OPTION VALUE: a positive integer
    case $2 in
    '' | *[!0-9]* | 0*) fail 2 "$1: expected a positive integer, found \"$2\"" ;;
    esac
}

while [ $# -gt 0 ]; do
    case $1 in
    --json) json=1 ;;
    -q) quiet=1 ;;
    -m | -r | -t | -n | --tests)
        [ $# -gt 1 ] || fail 2 "$1: expected a value"
        case $1 in
        -m) model=$2 ;;
        -r) require_count "$1" "$2"; turns=$2 ;;
        -t) require_count "$1" "$2"; threads=$2 ;;
        -n) require_count "$1" "$2"; n=$2 ;;
        --tests) tests=$2 ;;
        esac
        shift
        ;;
    *) fail 2 "unknown option \"$1\" (-m -r -t -n --tests --json -q)" ;;
    esac
    shift
done

# Comma-separated sizes of each kind of test.
prompts='' depths='' batches='' most=0 starts=0
set -f
tests=$(echo "$tests" | tr -s ', ' ',')
for test in $(echo "${tests:-nothing}" | tr ',' ' '); do
    echo "$test" | grep -Exq 'p[1-9][0-9]{0,7}|d(0|[1-9][0-9]{0,7})|b([2-9]|[1-9][0-9]{1,2})|start' ||
        fail 2 "--tests: expected p512, d0, d4096, b8 (2 to 999) or start, found \"$test\""
    size=${test#?}
    case $test in
    p*) prompts=${prompts:+$prompts,}$size ;;
    d*) depths=${depths:+$depths,}$size ;;
    b*) batches=${batches:+$batches,}$size && [ "$size" -le "$most" ] || most=$size ;;
    start) starts=1 ;;
    esac
done

if [ -n "${LLAMA_BENCH:-}" ]; then
    [ -x "$LLAMA_BENCH" ] || fail 2 "LLAMA_BENCH: $LLAMA_BENCH: no such program"
    peer=llama-bench
elif [ -n "${LLAMA31_PEER:-}" ]; then
    [ -d "$LLAMA31_PEER/node_modules/node-llama-cpp" ] ||
        fail 2 "LLAMA31_PEER: $LLAMA31_PEER: no node-llama-cpp; run npm install node-llama-cpp there"
    command -v node >/dev/null || fail 2 "LLAMA31_PEER: node is not installed"
    peer=node-llama-cpp
else
    fail 2 "no peer; set LLAMA_BENCH to llama-bench or LLAMA31_PEER to a directory with node-llama-cpp"
fi
[ -n "$model" ] || fail 2 "no model; give -m FILE or set LLAMA31_MODEL"
[ -f "$model" ] || fail 1 "$model: no such file"
[ -x "$program" ] || fail 1 "${program:-llama31}: no such program; run make"
tmp=$(mktemp -d) || exit 1

note() { [ "$quiet" = 1 ] || echo "bench_peers: $*" >&2; }

# Runs a program with output to $tmp/out. If it fails, exits with the last line of its stderr.
call() {
    "$@" >"$tmp/out" 2>"$tmp/err" </dev/null || fail 1 "$(basename "$1"): exit status $?: $(tail -n 1 "$tmp/err")"
}

# Converts JSON in $tmp/out to lines "TEST VALUE". The argument is the AWK code that prints the fields of a record.
rates() { # AWK PROGRAM
    tr '{' '\n' <"$tmp/out" | awk 'function field(name,  v) {
        v = $0
        if (!sub(".*\"" name "\": *\"?", "", v)) return ""
        sub(/[]",}].*/, "", v)
        return v
    }'"$1"
}

# Prints the wall-clock time of a process.
seconds() {
    from=$(date +%s.%N)
    call "$@"
    echo "start $from $(date +%s.%N)" | awk '{print $1, $3 - $2}'
}

listed() { echo "$tests" | tr ',' '\n' | grep -v '^start$' | paste -s -d, -; }

measure_llama31() {
    if [ -n "$prompts$depths$batches" ]; then
        call "$program" bench -m "$model" -t "$threads" -n "$n" --tests "$(listed)" --json
        rates '/"tokens_per_sec"/ {
            batch = field("batch")
            name = field("test") == "prefill" ? "p" field("n_tokens") : batch > 1 ? "b" batch : "d" field("depth")
            print name, field("tokens_per_sec")
        }'
    fi
    [ $starts = 0 ] || seconds "$program" run -m "$model" -t "$threads" --raw --temp 0 -n 1 -q Hello
}

measure_peer() {
    if [ $peer = node-llama-cpp ]; then
        # shellcheck disable=SC2046
        [ -z "$prompts$depths$batches" ] || {
            call node "$here/bench_peer.mjs" "$LLAMA31_PEER" "$model" "$threads" "$n" $(listed | tr ',' ' ')
            cat "$tmp/out"
        }
        [ $starts = 0 ] || seconds node "$here/bench_peer.mjs" "$LLAMA31_PEER" "$model" "$threads" 1 start
        return
    fi
    set -- -m "$model" -t "$threads" -ngl 0
    if [ -n "$prompts" ]; then
        call "$LLAMA_BENCH" "$@" -r 1 -o jsonl -n 0 -p "$prompts"
        rates '/"avg_ts"/ {print "p" field("n_prompt"), field("avg_ts")}'
    fi
    if [ -n "$depths" ]; then
        call "$LLAMA_BENCH" "$@" -r 1 -o jsonl -p 0 -n "$n" -d "$depths"
        rates '/"avg_ts"/ {print "d" field("n_depth"), field("avg_ts")}'
    fi
    if [ -n "$batches" ] && [ -x "$peer_dir/llama-batched-bench" ]; then
        call "$peer_dir/llama-batched-bench" "$@" -c $((most * (n + 1))) -npp 1 -ntg "$n" -npl "$batches" --output-format jsonl
        rates '/"speed_tg"/ {print "b" field("pl"), field("speed_tg")}'
    fi
    if [ $starts = 1 ] && [ -x "$peer_dir/llama-completion" ]; then
        seconds "$peer_dir/llama-completion" "$@" -c 512 -p Hello -n 1 -no-cnv --no-warmup --temp 0
    fi
}

if [ $starts = 1 ] && ! date +%N | grep -q '^[0-9]*$'; then
    note "start is left out: date has no fractions of a second"
    starts=0
fi
if [ $peer = llama-bench ]; then
    peer_dir=$(dirname "$LLAMA_BENCH")
    [ -z "$batches" ] || [ -x "$peer_dir/llama-batched-bench" ] || note "no llama-batched-bench next to llama-bench"
    [ $starts = 0 ] || [ -x "$peer_dir/llama-completion" ] || note "no llama-completion next to llama-bench"
fi

cat "$model" >/dev/null || exit 1 # into the page cache
turn=1
while [ $turn -le "$turns" ]; do
    for side in llama31 peer; do
        note "turn $turn of $turns: $side"
        "measure_$side" >"$tmp/rates" || exit
        sed "s/^/$turn $side /" "$tmp/rates" >>"$tmp/all"
    done
    turn=$((turn + 1))
done

NAME=$(basename "$model" | tr -d '[:cntrl:]') \
    awk -v tests="$tests" -v turns="$turns" -v json="$json" -v threads="$threads" -v peer="$peer" -v n="$n" '
# The median of values[1..n], which are sorted.
function median(values, n,  i, j, v) {
    for (i = 2; i <= n; i++) {
        v = values[i]
        for (j = i - 1; j > 0 && values[j] > v; j--) values[j + 1] = values[j]
        values[j + 1] = v
    }
    return n % 2 ? values[(n + 1) / 2] : (values[n / 2] + values[n / 2 + 1]) / 2
}
function side_median(who, test,  list, k, n) {
    for (k = 1; k <= turns; k++) if ((k, who, test) in value) list[++n] = value[k, who, test]
    return n ? median(list, n) : ""
}
function ratio_median(test,  list, k, n, a, b) {
    for (k = 1; k <= turns; k++) if ((k, "llama31", test) in value && (k, "peer", test) in value) {
        a = value[k, "llama31", test]
        b = value[k, "peer", test]
        if (a > 0 && b > 0) list[++n] = test == "start" ? b / a : a / b
    }
    return n ? median(list, n) : ""
}
function format_value(v) {
    if (json) return v == "" ? "null" : sprintf("%.6g", v)
    return v == "" ? "-" : sprintf(v < 10 ? "%.3f" : "%.2f", v)
}
{ value[$1, $2, $3] = $4 }
END {
    model = ENVIRON["NAME"]
    if (json) gsub(/["\\]/, "\\\\&", model)
    n_tests = split(tests, names, ",")
    if (json) printf "{\"model\":\"%s\",\"peer\":\"%s\",\"threads\":%d,\"turns\":%d,\"n_tokens\":%d,\"results\":[", \
                     model, peer, threads, turns, n
    else printf "%s, %d threads, %d turns against %s\n%-8s %10s %10s %8s\n", \
                model, threads, turns, peer, "test", "llama31", "llama.cpp", "ratio"
    for (i = 1; i <= n_tests; i++) {
        t = names[i]
        a = format_value(side_median("llama31", t))
        b = format_value(side_median("peer", t))
        r = format_value(ratio_median(t))
        if (json) printf "%s{\"test\":\"%s\",\"unit\":\"%s\",\"llama31\":%s,\"peer\":%s,\"ratio\":%s}", \
                         (i == 1 ? "" : ","), t, (t == "start" ? "sec" : "tokens_per_sec"), a, b, r
        else printf "%-8s %10s %10s %8s  %s\n", t, a, b, r, (t == "start" ? "s" : "tokens/s")
    }
    if (json) print "]}"
}' "$tmp/all"
