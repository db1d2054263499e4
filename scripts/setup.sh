#!/usr/bin/env bash
# Makes .venv hold exactly what requirements.lock says, plus this package in editable form.
#
# Safe to run at any time: it returns at once when nothing changed, waits for another run of
# itself, and starts over where an earlier run was interrupted.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly VENV=.venv
readonly DONE=$VENV/.complete       # what the environment was made from; written last
readonly STARTED=$VENV/.incomplete  # present while packages are being written
readonly LOG=.cache/setup.log

# What pip prints when the network, and not the request, was the reason.
readonly NETWORK='NewConnectionError|ConnectTimeout|ReadTimeout|Read timed out|ProxyError|SSLError|IncompleteRead|Connection (refused|reset|broken)|Name or service not known|name resolution|Network is unreachable'

# Anything here would send packages elsewhere than into .venv.
unset PIP_USER PIP_TARGET PIP_PREFIX PYTHONHOME PYTHONPATH

fail() { # what is wrong, then the lines that fix it
    printf '\nsetup: %s\n' "$1" >&2
    shift
    printf '  %s\n' "$@" >&2
    exit 1
}

# The environment is tied to its inputs, to its place (scripts and the editable install carry
# absolute paths) and to the interpreter behind its link (a system upgrade replaces that).
fingerprint() {
    sha256sum requirements.lock pyproject.toml scripts/setup.sh
    pwd -P
    readlink -f $VENV/bin/python
}

up_to_date() {
    [ -f $DONE ] && [ ! -e $STARTED ] && [ -x $VENV/bin/python ] && [ "$(fingerprint)" = "$(<$DONE)" ]
}

version_of() { "$1" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null; }

new_enough() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; }

# Debian ships venv without ensurepip, and then venv fails only halfway: ask for both.
has_venv() { "$1" -c 'import venv, ensurepip' 2>/dev/null; }

sudo_prefix() { [ "$(id -u)" = 0 ] || printf 'sudo '; }

fail_without_venv() {
    local python=$1 version
    version=$(version_of "$python")
    fail "Python $version ($(command -v "$python")) has no venv module. On Debian and Ubuntu it is a package of its own:" \
        "$(sudo_prefix)apt-get install python$version-venv    (or python3-venv, if python$version is your system's Python)" \
        "then run the same make command again."
}

find_python() {
    local candidate too_old='' no_venv=''
    if [ -n "${PYTHON:-}" ]; then
        [ -n "$(version_of "$PYTHON")" ] || fail "PYTHON=$PYTHON does not run." \
            "Unset PYTHON, or set it to a Python 3.11 or newer."
        new_enough "$PYTHON" || fail "PYTHON=$PYTHON is Python $(version_of "$PYTHON"), but 3.11 or newer is needed." \
            "Unset PYTHON, or set it to a newer one."
        has_venv "$PYTHON" || fail_without_venv "$PYTHON"
        printf '%s' "$PYTHON"
        return
    fi
    for candidate in python3.13 python3.12 python3.11 python3; do
        # Version managers leave launchers on the path for versions that are not there.
        [ -n "$(version_of "$candidate")" ] || continue
        if ! new_enough "$candidate"; then
            too_old="Python $(version_of "$candidate") ($(command -v "$candidate"))"
        elif ! has_venv "$candidate"; then
            no_venv=${no_venv:-$candidate}
        else
            printf '%s' "$candidate"
            return
        fi
    done
    [ -z "$no_venv" ] || fail_without_venv "$no_venv"
    fail "Python 3.11 or newer is needed; found ${too_old:-none}." \
        "$(sudo_prefix)apt-get install python3 python3-venv          (Debian 12, Ubuntu 24.04 and later)" \
        "$(sudo_prefix)apt-get install python3.11 python3.11-venv    (Ubuntu 22.04)" \
        "or point to one you have: make setup PYTHON=/path/to/python3.11"
}

make_venv() {
    local python
    python=$(find_python)
    echo "setup: making $VENV with $("$python" --version) ($(command -v "$python"))"
    rm -rf $VENV
    mkdir -p $VENV
    touch $STARTED
    "$python" -m venv $VENV >>$LOG 2>&1 || fail "$python -m venv $VENV failed:" "$(tail -n 5 $LOG)"
}

usable() {
    [ ! -e $STARTED ] && new_enough $VENV/bin/python \
        && [ -d "$VENV/lib/python$(version_of $VENV/bin/python)/site-packages" ] \
        && { [ ! -f $DONE ] || grep -qxF "$(pwd -P)" $DONE; }
}

explain_pip() {
    # pip undoes what it began when it fails by itself; only an interrupted pip leaves half a package.
    rm -f $STARTED
    if grep -qE 'DO NOT MATCH THE HASHES' $LOG; then
        fail "a downloaded package is not the one requirements.lock names (details: $LOG)." \
            "The download was damaged, or the index in use serves other files under the same version." \
            "Clear pip's cache and try again: $VENV/bin/python -m pip cache purge && make setup"
    elif grep -qE "$NETWORK" $LOG; then
        fail "the package index cannot be reached (details: $LOG)." \
            "$(grep -oE '(Failed to establish a new connection|Temporary failure in name resolution|CERTIFICATE_VERIFY_FAILED|Read timed out|Cannot connect to proxy|Connection (refused|reset))[^)'\'']*' $LOG | head -n 1)" \
            "Check the network, or name a mirror or proxy and run make setup again:" \
            "export PIP_INDEX_URL=https://…/simple     export HTTPS_PROXY=http://…     export PIP_CERT=/path/to/ca.pem"
    elif grep -qE "Cannot import 'hatchling|No module named 'hatchling|No module named 'editables" $LOG; then
        fail "requirements.lock is behind pyproject.toml: it lacks the build backend." "make lock && make setup"
    elif grep -qE 'No space left on device' $LOG; then
        fail "the disk is full." "The environment needs about 500 MB here, and pip keeps its downloads as well (PIP_NO_CACHE_DIR=1 avoids that)."
    elif grep -qE 'No matching distribution found' $LOG; then
        fail "the package index lacks a version that requirements.lock names (details: $LOG):" \
            "$(grep -E 'No matching distribution found' $LOG | tail -n 1)" \
            "If a mirror is configured (PIP_INDEX_URL), it may be behind. If requirements.lock is behind pyproject.toml: make lock"
    fi
    fail "pip failed (all of it: $LOG):" "$(grep -vE '^\s*$' $LOG | tail -n 5)"
}

pip() { $VENV/bin/python -m pip --disable-pip-version-check --no-input "$@" >>$LOG 2>&1; }

install_locked() { # again after a failure of the network, because pip gives up on a broken download
    local attempt
    for attempt in 1 2 3; do
        pip install --require-hashes -r requirements.lock && return
        grep -qE "$NETWORK" $LOG && [ "$attempt" -lt 3 ] || return 1
        sleep $((attempt * 5))
        : >$LOG
    done
}

main() {
    up_to_date && return
    mkdir -p .cache
    # One setup at a time; the lock goes away with the process. The file is only a place to lock.
    exec 9<requirements.lock
    if command -v flock >/dev/null && ! flock -n 9; then
        echo "setup: another setup is running here; waiting for it"
        flock 9
    fi
    up_to_date && return

    : >$LOG
    usable || make_venv
    touch $STARTED
    rm -f $DONE
    pip --version || { $VENV/bin/python -m ensurepip --upgrade >>$LOG 2>&1 && pip --version; } || {
        rm -rf $VENV
        fail "pip cannot be put into $VENV (details: $LOG)." \
            "$(sudo_prefix)apt-get install python3-venv python3-pip    then run the same make command again."
    }
    echo "setup: installing $(grep -c '^[a-z].*==' requirements.lock) locked packages (about a minute the first time)"
    install_locked || explain_pip
    # The build backend is one of the locked packages, so nothing unlocked is fetched here.
    pip install --no-deps --no-build-isolation -e . || explain_pip
    fingerprint >$DONE
    rm -f $STARTED
    echo "setup: done"
}

main
