#!/usr/bin/env bash
# Resolves pyproject.toml into requirements.lock: all extras, all groups, every platform, with hashes.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# uv is needed only here, so it is not one of the locked packages; it must also run if the locked ones
# cannot be installed.
if ! uv=$(command -v uv); then
    uv=.cache/uv/bin/uv
    [ -x $uv ] || {
        "${PYTHON:-python3}" -m venv .cache/uv
        .cache/uv/bin/python -m pip --disable-pip-version-check install --quiet uv
    }
fi
# Use the system's certificate store, which may contain a company CA, like pip and curl.
export UV_SYSTEM_CERTS=true UV_NATIVE_TLS=true
"$uv" pip compile pyproject.toml --quiet --all-extras --group dev --group servers \
    --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
    --custom-compile-command "make lock" --output-file requirements.lock "$@"
echo "lock: $(grep -c '^[a-z].*==' requirements.lock) packages; make setup installs them"
