#!/bin/sh
# Runs the unit tests and every tests/test_*.py. The last line is "N passed, N failed, N skipped".
# Each test prints "ok NAME", "FAIL NAME: message" or "skip NAME: reason". BUILD is the build directory.
cd "$(dirname "$0")/.." || exit 1
BUILD=${BUILD:-build}
log=$(mktemp) || exit 1
trap 'rm -f "$log"' EXIT
export BUILD
suite() { # NAME COMMAND...: a suite that crashes counts as one failure
    name=$1; shift
    "$@" >>"$log" 2>&1 || echo "FAIL $name: ended with status $?" >>"$log"
}
suite unit "$BUILD/unit"
for f in tests/test_*.py; do
    [ -e "$f" ] || continue
    if command -v python3 >/dev/null 2>&1; then suite "$f" python3 "$f"; else echo "skip $f: no python3" >>"$log"; fi
done
grep -v '^ok ' "$log"
passed=$(grep -c '^ok ' "$log"); failed=$(grep -c '^FAIL ' "$log"); skipped=$(grep -c '^skip ' "$log")
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
