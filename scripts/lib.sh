# Helpers for the scripts beside this file; source it, do not run it.
# shellcheck shell=bash

# What a fresh Debian 12 needs to build, and on top of that to test.
# shellcheck disable=SC2034  # both are used by those who source this
BUILD_PACKAGES=(gcc g++ meson ninja-build pkg-config libssl-dev zlib1g-dev libjansson-dev
    libcurl4-openssl-dev libcmocka-dev)
# shellcheck disable=SC2034
TEST_PACKAGES=(python3 python3-pytest clang-format clang libclang-rt-14-dev iproute2 procps
    util-linux etcd-server groff-base)

log() { printf '%s\n' "$*"; }
warn() { printf 'warning: %s\n' "$*" >&2; }
die() {
    printf 'error: %s\n' "$*" >&2
    exit 1
}

# missing_packages PACKAGE... prints those that are not installed, one a line.
missing_packages() {
    local package
    for package in "$@"; do
        if [[ $(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null) != installed ]]; then
            printf '%s\n' "$package"
        fi
    done
}

# need_packages PACKAGE... installs those that are missing, and returns 1 with one error if it
# cannot. No network is touched when all are there. What apt says goes to a file, for it names the
# machine's package sources, which are nobody else's business.
need_packages() {
    if ! command -v dpkg-query >/dev/null; then
        warn "not a Debian system: taking for granted what these packages offer: $*"
        return 0
    fi
    local -a missing as_root=()
    mapfile -t missing < <(missing_packages "$@")
    ((${#missing[@]})) || return 0

    if ((EUID != 0)); then
        as_root=(sudo)
        [[ -t 0 ]] || as_root=(sudo -n) # nobody is there to type a password
        if ! command -v sudo >/dev/null; then
            printf 'error: packages are missing: %s; install them, or run this as root\n' \
                "${missing[*]}" >&2
            return 1
        fi
    fi

    log "installing packages: ${missing[*]}"
    local apt_log
    apt_log=$(mktemp "${TMPDIR:-/tmp}/lockstep-apt.XXXXXX")
    local -a apt=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq -y
        -o DPkg::Lock::Timeout=300)
    # A failed update is not the end: the lists of yesterday may do.
    if [[ -z ${LOCKSTEP_APT_UPDATED:-} ]]; then
        "${apt[@]}" update >>"$apt_log" 2>&1 </dev/null || true
        export LOCKSTEP_APT_UPDATED=1
    fi
    if "${apt[@]}" --no-install-recommends install "${missing[@]}" \
        >>"$apt_log" 2>&1 </dev/null; then
        rm -f "$apt_log"
        return 0
    fi
    mapfile -t missing < <(missing_packages "${missing[@]}")
    printf 'error: packages are missing and could not be installed: %s (see %s)\n' \
        "${missing[*]}" "$apt_log" >&2
    return 1
}
