#!/usr/bin/env bash
# Checks for Java 17 or newer. Fails with a hint; with --notice it only prints what will be skipped.
set -euo pipefail

java=${JAVA_HOME:+$JAVA_HOME/bin/}java
# "17.0.15", "21", "1.8.0_402": the major version is the first number that is not "1".
found=$("$java" -version 2>&1 | sed -nE '1s/.*version "(1\.)?([0-9]+).*/\2/p' || true)
[ "${found:-0}" -lt 17 ] || exit 0

reason=${found:+"Java $found ($java) is too old: 17 or newer is needed."}
reason=${reason:-"Java 17 or newer was not found."}
prefix=$([ "$(id -u)" = 0 ] || printf 'sudo ')
fix="${prefix}apt-get install openjdk-17-jre-headless    (or default-jre-headless where that is 17 or newer)"
if [ "${1:-}" = --notice ]; then
    printf 'note: %s Without it, Spark, the TLA+ models and the Hudi interop are skipped.\n  %s\n' "$reason" "$fix"
    exit 0
fi
printf '%s\n  %s\n' "$reason" "$fix" >&2
exit 1
