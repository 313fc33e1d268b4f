#!/usr/bin/env bash
# Print the newest Python from 3.11 on (with venv) whose core is not in a shared library: with that, programs in Python are
# an eighth slower. If there is none, the newest.
first=""
for path in $(type -ap python3.13 python3.12 python3.11 python3); do
  "$path" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || continue
  first=${first:-$path}
  if "$path" -c 'import sys; sys.exit("/libpython" in open("/proc/self/maps").read())' 2>/dev/null; then
    echo "$path"
    exit
  fi
done
echo "$first"
