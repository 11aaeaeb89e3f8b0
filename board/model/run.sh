#!/bin/sh
# Model-checks the two protocols with spin, and that a broken protocol is found out.
# Usage: run.sh [MODEL [MUTATION]]; without arguments, everything. Exit code 77: spin is not installed.
# SLUICE_MODEL_DEEP=1 searches death and stall together as well: tens of millions of states.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
command -v spin >/dev/null 2>&1 || { echo "skipped: spin is not installed (Debian package spin)"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# check MODEL DEFINES: succeeds if a complete search found no error.
check() {
  cp "$here/$1.pml" "$work/model.pml"
  # shellcheck disable=SC2086
  (cd "$work" && spin $2 -a model.pml >spin.log && ${CC:-cc} -O2 -w -DSAFETY -DCOLLAPSE -o pan pan.c) ||
    { cat "$work/spin.log"; echo "FAILED: $1 ($2) is no model"; exit 1; }
  (cd "$work" && ./pan -m200000 -w22 >pan.log 2>&1) || true
  if grep -q "max search depth too small\|out of memory" "$work/pan.log"; then
    cat "$work/pan.log"
    echo "FAILED: $1 ($2): the search was cut short"
    exit 1
  fi
  grep -q "errors: 0" "$work/pan.log"
}

# The searches of a model, each by its -D options: deaths and stalls apart, because together they are too many.
searches() {
  case $1 in
    gate)
      echo "-DDEATHS=0 -DSTALLS=1"
      echo "-DDEATHS=1 -DSTALLS=0"
      [ "${SLUICE_MODEL_DEEP:-0}" != 1 ] || echo "-DDEATHS=1 -DSTALLS=1"
      ;;
    *) echo "-DONLY" ;;
  esac
}

# run MODEL MUTATION|-
run() {
  found=
  searches "$1" >"$work/searches"
  while read -r defines; do
    if [ "$2" = - ]; then
      check "$1" "$defines" || { cat "$work/pan.log"; echo "FAILED: $1 ($defines): the protocol is broken"; exit 1; }
      echo "ok: $1 ($defines), $(sed -n 's/ *\([0-9.e+]*\) states, stored.*/\1/p' "$work/pan.log") states"
    elif [ -z "$found" ] && ! check "$1" "$defines -D$2"; then
      grep -q "errors: 1" "$work/pan.log" || { cat "$work/pan.log"; echo "FAILED: $1 ($2): no verdict"; exit 1; }
      found=yes
      echo "ok: $1 with $2 is found out"
    fi
  done <"$work/searches"
  [ "$2" = - ] || [ -n "$found" ] || { echo "FAILED: $1: nobody notices $2"; exit 1; }
}

case $# in
  0)
    for model in gate activity; do
      run "$model" -
      mutations=$(sed -n 's/^#ifn*def \(MUTATE_[A-Z_]*\).*/\1/p' "$here/$model.pml" | sort -u)
      for mutation in $mutations; do run "$model" "$mutation"; done
    done
    ;;
  1) run "$1" - ;;
  *) run "$1" "$2" ;;
esac
