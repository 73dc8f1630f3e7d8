#!/usr/bin/env bash
# Compute the file of verl's figures anew with the real wheel, in a throwaway environment; with --check only compare.
# Takes 2 GB and two minutes on an idle machine. torch comes first, so that verl finds it and pulls no build for a GPU.
#
#     tests/algorithms/peers/regenerate.sh [--check]
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
python3 -m venv "$scratch/env"
"$scratch/env/bin/pip" install --quiet torch==2.13.0
"$scratch/env/bin/pip" install --quiet verl==0.9.1
OMP_NUM_THREADS=1 "$scratch/env/bin/python" "$here/verl_golden.py" "$@" "$here/verl-0.9.1.json"
