#!/usr/bin/env bash
# Distributed full-text search over the manuals of Python, PostgreSQL, Git and SQLite, in one command:
#   examples/search/run-search.sh "transaction isolation" [flags of search]
#   examples/search/run-search.sh --tree "transaction isolation" [flags of search]
# Installs missing packages, builds, creates the index (once; build/search-index), starts four workers on free ports of
# 127.0.0.1, runs the query, and stops the workers. Without a query it reads queries from standard input, one per line.
# With --tree, `search` calls two aggregators, and each of them calls the workers of half of the shards.
set -euo pipefail
cd "$(dirname "$0")/../.."

shards=16
workers=4
aggregators=0
if [ "${1:-}" = --tree ]; then
  aggregators=2
  shift
fi
index=build/search-index
bin=build/release/bin

tests/install-packages.sh build search
cmake --preset release >/dev/null
cmake --build --preset release --target search-index search-worker search-aggregator search

if [ ! -d "$index" ]; then
  corpus=(/usr/share/doc/{python3.*/html,postgresql-doc-*/html,git-doc,sqlite3})
  for folder in "${corpus[@]}"; do
    if [ ! -d "$folder" ]; then
      echo "$0: $folder is not there, though its package is installed: dpkg leaves out documentation here" \
        "(path-exclude in /etc/dpkg/dpkg.cfg.d, as in slim containers)." >&2
      echo "Make an index of other folders: $bin/search-index --out $index --shards $shards --skew 0.5 FOLDER..." >&2
      exit 1
    fi
  done
  "$bin/search-index" --out "$index" --shards "$shards" --skew 0.5 "${corpus[@]}"
fi

run=$(mktemp -d)
pids=()
stop() {
  [ ${#pids[@]} -eq 0 ] || kill "${pids[@]}" 2>/dev/null || true
  wait
  rm -rf "$run"
}
trap stop EXIT

# Each shard has two workers, so that one may fail, or serve hedges.
for ((worker = 0; worker < workers; ++worker)); do
  mine=()
  for ((shard = 0; shard < shards; ++shard)); do
    if [ $((shard % workers)) = "$worker" ] || [ $(((shard + 1) % workers)) = "$worker" ]; then mine+=("$shard"); fi
  done
  "$bin/search-worker" --listen 127.0.0.1:0 --index "$index" --shards "$(IFS=,; echo "${mine[*]}")" \
    --ready-file "$run/$worker" 2>"$run/$worker.log" &
  pids+=($!)
done

# Prints the addresses of the servers NAME..., once they serve. Their process ids are in the order in which they were
# started.
wait_for() {
  local first=$1 name
  shift
  addresses=()
  for name in "$@"; do
    until [ -s "$run/$name" ]; do
      kill -0 "${pids[first]}" 2>/dev/null || { cat "$run/$name.log" >&2; exit 1; }
      sleep 0.05
    done
    addresses+=("$(<"$run/$name")")
    first=$((first + 1))
  done
}

join() { (IFS=,; echo "$*"); }

wait_for 0 $(seq 0 $((workers - 1)))
if [ "$aggregators" -gt 0 ]; then
  names=()
  for ((part = 0; part < aggregators; ++part)); do
    "$bin/search-aggregator" --listen 127.0.0.1:0 --workers "$(join "${addresses[@]}")" --part "$part/$aggregators" \
      --ready-file "$run/part-$part" 2>"$run/part-$part.log" &
    pids+=($!)
    names+=("part-$part")
  done
  wait_for "$workers" "${names[@]}"
fi

"$bin/search" --workers "$(join "${addresses[@]}")" "$@"
