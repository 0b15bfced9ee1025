#!/bin/sh
# Runs the unit tests and every tests/test_*.py, or the suites given as arguments (`unit`, files), JOBS suites at a time
# (default: one more than the number of cores, because some suites wait for timers).
# Prints a line per suite as it ends, followed by its failures, then the skipped tests grouped by reason. The last line is
# "N passed, N failed, N skipped". Each test prints "ok NAME", "FAIL NAME: message" or "skip NAME: reason". BUILD is the
# build directory.
cd "$(dirname "$0")/.." || exit 1
export BUILD="${BUILD:-build}"
# Threads of OpenMP sleep instead of spinning for milliseconds: there are more of them than cores.
export OMP_WAIT_POLICY="${OMP_WAIT_POLICY:-passive}"

count() { # WORD FILE...: lines that begin with WORD
    word=$1; shift
    cat "$@" | grep -c "^$word "
}

# LOGS SUITE: runs a suite and keeps its output in LOGS. A suite that crashes counts as one failure.
run_suite() {
    log=$1/$(basename "$2" .py).log start=$(date +%s)
    case $2 in
    unit) "$BUILD/unit" ;;
    *) if [ "$PYTHON" ]; then "$PYTHON" "$2"; else echo "skip $2: no python3"; fi ;;
    esac >"$log" 2>&1 || echo "FAIL $2: ended with status $?" >>"$log"
    printf '%-24s %4d passed, %d failed, %d skipped, %d s\n' "$(basename "$2" .py)" "$(count ok "$log")" \
        "$(count FAIL "$log")" "$(count skip "$log")" $(($(date +%s) - start)) >"$log.line"
    if grep -q '^FAIL ' "$log"; then grep -v '^ok \|^skip ' "$log" >>"$log.line"; fi
    cat "$log.line" # in one piece, because other suites print at the same time
}
if [ "${1:-}" = --suite ]; then run_suite "$2" "$3"; exit 0; fi

begin=$(date +%s)
logs=$(mktemp -d) || exit 1
trap 'rm -rf "$logs"' EXIT
trap 'exit 130' INT TERM
jobs=${JOBS:-$(($(nproc 2>/dev/null || getconf _NPROCESSORS_ONLN 2>/dev/null || echo 1) + 1))}
PYTHON=$(python3 -c 'import sys; print(sys.executable)' 2>/dev/null) # without the shell script of a version manager
export PYTHON
# First the unit tests and Slurm, which mostly waits, then large files: their tests tend to take longest.
# shellcheck disable=SC2046
[ $# -gt 0 ] || set -- unit tests/test_slurm.py $(ls -S tests/test_*.py | grep -v slurm)
printf '%s\n' "$@" | xargs -n 1 -P "$jobs" sh tests/run.sh --suite "$logs"

# Skipped tests by reason. The reason begins after the first colon of a line, in unit.log after the last one. A missing
# file has one reason, whatever its name.
awk '
/^skip / {
    line = substr($0, 6)
    pattern = FILENAME ~ /unit.log$/ ? "^.*: " : "^[^:]*: "
    match(line, pattern)
    name = substr(line, 1, RLENGTH - 2)
    reason = substr(line, RLENGTH + 1)
    if (reason ~ /^no [^ ]*\/[^ ]*$/ || reason ~ /LLAMA31_DATA$/ || reason ~ /^no [^ ]* in [^$ ]*$/)
        reason = "no reference data in $LLAMA31_DATA"
    if (!n[reason]++) order[++n_reasons] = reason
    if (n[reason] <= 3) names[reason] = names[reason] (n[reason] > 1 ? "; " : "") name
}
END {
    if (n_reasons) print "skipped:"
    for (i = 1; i <= n_reasons; i++) {
        reason = order[i]
        printf("%5d  %s: %s%s\n", n[reason], reason, names[reason], (n[reason] > 3 ? "; ..." : ""))
    }
}' "$logs"/*.log
passed=$(count ok "$logs"/*.log) failed=$(count FAIL "$logs"/*.log) skipped=$(count skip "$logs"/*.log)
echo "$(($(date +%s) - begin)) s, $jobs suites at a time"
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
