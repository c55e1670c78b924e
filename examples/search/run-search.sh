#!/usr/bin/env bash
# Distributed full-text search over the manuals of Python, PostgreSQL, Git and SQLite, in one command:
#   examples/search/run-search.sh "transaction isolation" [flags of search]
# Installs what is missing, builds, makes the index (once; build/search-index), starts four workers on free ports of
# 127.0.0.1, asks, and stops the workers. Without a query it answers each line that is typed.
set -euo pipefail
cd "$(dirname "$0")/../.."

shards=16
workers=4
index=build/search-index
bin=build/release/bin

tests/install-packages.sh build search
cmake --preset release >/dev/null
cmake --build --preset release --target search-index search-worker search

if [ ! -d "$index" ]; then
  corpus=(/usr/share/doc/{python3.11/html,postgresql-doc-15/html,git-doc,sqlite3})
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

# Each shard has two workers, so that one may be lost, or be hedged to.
for ((worker = 0; worker < workers; ++worker)); do
  mine=()
  for ((shard = 0; shard < shards; ++shard)); do
    if [ $((shard % workers)) = "$worker" ] || [ $(((shard + 1) % workers)) = "$worker" ]; then mine+=("$shard"); fi
  done
  "$bin/search-worker" --listen 127.0.0.1:0 --index "$index" --shards "$(IFS=,; echo "${mine[*]}")" \
    --ready-file "$run/$worker" 2>"$run/$worker.log" &
  pids+=($!)
done

addresses=()
for ((worker = 0; worker < workers; ++worker)); do
  until [ -s "$run/$worker" ]; do
    kill -0 "${pids[worker]}" 2>/dev/null || { cat "$run/$worker.log" >&2; exit 1; }
    sleep 0.05
  done
  addresses+=("$(<"$run/$worker")")
done

"$bin/search" --workers "$(IFS=,; echo "${addresses[*]}")" "$@"
