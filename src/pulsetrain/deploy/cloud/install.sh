#!/bin/sh
# Puts pulsetrain on a Debian or Ubuntu machine. `pulsetrain cloud vm install` sends this file there and runs it as root:
#   install.sh FOLDER PACKAGE STACK
# FOLDER has the unit and perhaps a wheel, PACKAGE is what pip installs, STACK is "yes" for Prometheus and Grafana too.
# Run again, it changes only what differs, and each line that begins with "changed:" is one such thing.
set -eu
folder=$1 package=$2 stack=$3
home=/opt/pulsetrain stack_home=/var/lib/pulsetrain-stack unit=/etc/systemd/system/pulsetrain.service
export PYTHONDONTWRITEBYTECODE=1 DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8

fail() {
    echo "error: $1" >&2
    [ -z "${2:-}" ] || echo "  hint: $2" >&2
    exit 1
}

apt_install() {
    if [ -z "${apt_is_updated:-}" ]; then
        apt-get -qq -o DPkg::Lock::Timeout=600 update || echo "warning: apt-get update failed" >&2
        apt_is_updated=yes
    fi
    apt-get -qq -o DPkg::Lock::Timeout=600 install -y --no-install-recommends "$@" >"$folder/apt.log" 2>&1 || {
        tail -n 5 "$folder/apt.log" >&2
        fail "apt-get could not install $*." "Try it there yourself: sudo apt-get install $*"
    }
    echo "changed: installed $*"
}

find_python() {
    for name in python3 python3.14 python3.13 python3.12 python3.11; do
        if "$name" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            python=$name
            return 0
        fi
    done
    return 1
}

[ "$(id -u)" = 0 ] || fail "this must run as root."
command -v apt-get >/dev/null || fail "this machine is neither Debian nor Ubuntu: it has no apt-get." \
    "Install it there by hand: python3 -m venv $home && $home/bin/pip install pulsetrain"

# Python 3.11 or newer, with venv. Ubuntu 22.04 has 3.10 as python3, and 3.11 beside it.
if ! find_python; then
    if command -v python3 >/dev/null; then apt_install python3.11 python3.11-venv; else apt_install python3 python3-venv; fi
    find_python || fail "this machine has no Python 3.11 or newer." "Use Debian 12, Ubuntu 22.04, or something newer."
fi
"$python" -c 'import ensurepip, venv' 2>/dev/null || apt_install "$python-venv"

# The package, in an environment of its own. What is installed is noted last: an interrupted start is done over.
if [ -f "$folder/$package" ]; then
    wanted=$(sha256sum <"$folder/$package")
    package=$folder/$package
else
    wanted=$package
fi
if [ "$(cat "$home/installed" 2>/dev/null)" != "$wanted" ] || [ ! -x "$home/bin/pulsetrain" ]; then
    if [ ! -f "$home/installed" ]; then
        rm -rf "$home"
        "$python" -m venv "$home" || fail "$python could not create $home."
    fi
    rm -f "$home/installed"
    {
        "$home/bin/pip" install --quiet --disable-pip-version-check --no-cache-dir "$package" &&
            "$home/bin/pip" install --quiet --disable-pip-version-check --no-cache-dir --force-reinstall --no-deps "$package"
    } >"$folder/pip.log" 2>&1 || {
        tail -n 5 "$folder/pip.log" >&2
        fail "pip could not install pulsetrain." "Is the package index reachable from there?"
    }
    echo "$wanted" >"$home/installed"
    echo "changed: $("$home/bin/pulsetrain" --version) in $home"
    restart=yes
fi
if [ "$(readlink /usr/local/bin/pulsetrain)" != "$home/bin/pulsetrain" ]; then
    mkdir -p /usr/local/bin
    ln -sfn "$home/bin/pulsetrain" /usr/local/bin/pulsetrain
    echo "changed: /usr/local/bin/pulsetrain"
fi

# The agent.
if ! cmp -s "$folder/pulsetrain.service" "$unit"; then
    mkdir -p "${unit%/*}"
    install -m 644 "$folder/pulsetrain.service" "$unit"
    echo "changed: $unit"
    restart=yes
fi
if ! command -v systemctl >/dev/null; then
    echo "warning: there is no systemd: start the agent yourself (pulsetrain watch --quiet --prometheus-port 9400)" >&2
else
    if [ "$(systemctl is-enabled pulsetrain 2>/dev/null)" != enabled ]; then
        systemctl --quiet enable pulsetrain 2>/dev/null || fail "systemd did not enable the agent."
        echo "changed: the agent starts at boot"
    fi
    if [ ! -d /run/systemd/system ]; then
        echo "warning: systemd is not running: the agent starts when it is" >&2
    elif [ -n "${restart:-}" ] || ! systemctl --quiet is-active pulsetrain; then
        systemctl daemon-reload
        systemctl restart pulsetrain || fail "the agent did not start." "Why: journalctl -u pulsetrain"
        echo "changed: started the agent"
    fi
fi

# The stack.
[ "$stack" = yes ] || exit 0
command -v docker >/dev/null || apt_install docker.io
if ! docker compose version >/dev/null 2>&1 && ! command -v docker-compose >/dev/null; then
    if apt-cache show docker-compose-v2 >/dev/null 2>&1; then
        apt_install docker-compose-v2
    else
        apt_install docker-compose
    fi
fi
gpu=
if command -v nvidia-smi >/dev/null && ! command -v nvidia-ctk >/dev/null; then
    gpu=--no-gpu
    echo "warning: containers cannot see the GPU: DCGM's and nvidia-smi's exporters are left out; the agent reads the GPU itself" >&2
    echo "  hint: install nvidia-container-toolkit and run this again: https://docs.nvidia.com/datacenter/cloud-native/container-toolkit" >&2
fi
status=0
"$home/bin/pulsetrain" stack up "$stack_home" ${gpu:+"$gpu"} >"$folder/stack.log" 2>&1 || status=$?
grep -q "^$stack_home: unchanged" "$folder/stack.log" || echo "changed: the stack in $stack_home"
if [ "$status" != 0 ]; then
    cat "$folder/stack.log" >&2
    fail "the stack does not work; the agent does." "Why: sudo pulsetrain stack status $stack_home"
fi
