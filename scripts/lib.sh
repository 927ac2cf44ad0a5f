# shellcheck shell=bash
# Helpers of the scripts in this repository. To be sourced.

# Failures of these scripts are read by people: one line, what is wrong and what to do.
fail() {
  printf '%s: %s\n' "${0##*/}" "$*" >&2
  exit 1
}

# Runs a command as root: directly, or through sudo where there is one. `sudo -n` because neither `make test` nor
# `make demo` may stop at a hidden password prompt; 126 = not permitted.
as_root() {
  if [ "$(id -u)" -eq 0 ]; then
    "$@"
  elif command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
    sudo -n "$@"
  else
    return 126
  fi
}

apt_install() {
  # --no-install-recommends: recommended packages may bring services with them.
  as_root env DEBIAN_FRONTEND=noninteractive \
    apt-get -o DPkg::Lock::Timeout=120 install -y -q --no-install-recommends "$1"
}

# ensure_command COMMAND PACKAGE: makes COMMAND available, from Debian's PACKAGE if need be. Returns 1 if it cannot.
# The package lists are fetched only where the installation fails without: they are missing or out of date.
ensure_command() {
  command -v "$1" >/dev/null && return 0
  if ! command -v apt-get >/dev/null; then
    printf '%s is missing and there is no apt-get: please install it (Debian package %s)\n' "$1" "$2" >&2
    return 1
  fi
  if ! as_root true; then
    printf '%s is missing: please install it, for example: sudo apt-get install %s\n' "$1" "$2" >&2
    return 1
  fi
  printf 'installing Debian package %s (for %s)\n' "$2" "$1" >&2
  {
    apt_install "$2" || { as_root apt-get -q update && apt_install "$2"; }
  } >&2 || {
    printf '%s could not be installed: please install Debian package %s\n' "$1" "$2" >&2
    return 1
  }
  command -v "$1" >/dev/null
}

# Makes cargo and a C compiler available (the compression library of the records is C).
ensure_toolchain() {
  if ! command -v cargo >/dev/null && [ -x "${CARGO_HOME:-$HOME/.cargo}/bin/cargo" ]; then
    PATH="${CARGO_HOME:-$HOME/.cargo}/bin:$PATH"
  fi
  command -v cargo >/dev/null || fail "cargo is missing: install Rust (see rust-version in Cargo.toml), then try again"
  if ! command -v cc >/dev/null; then
    # gcc only recommends the headers, and recommendations are not installed.
    { ensure_command gcc gcc && apt_install libc6-dev >&2; } || fail "a C compiler is missing"
  fi
}

# ensure_component SUBCOMMAND COMPONENT: makes `cargo SUBCOMMAND` available, from rustup's COMPONENT if need be.
ensure_component() {
  cargo "$1" --version >/dev/null 2>&1 && return 0
  if command -v rustup >/dev/null; then
    rustup component add "$2" >&2 && cargo "$1" --version >/dev/null 2>&1 && return 0
    printf 'cargo %s is missing and rustup could not add component %s\n' "$1" "$2" >&2
  else
    printf 'cargo %s is missing and there is no rustup: please install %s\n' "$1" "$2" >&2
  fi
  return 1
}

# Every shell script of the repository. Found by name and first line, not through git: an unpacked archive has none.
shell_scripts() {
  local file
  find scripts tests vm .ci packaging -type f 2>/dev/null | sort | while IFS= read -r file; do
    case $file in
      *.sh) echo "$file" ;;
      *) if head -c 64 -- "$file" | grep -qaE '^#!.*[/ ](ba|da)?sh\b'; then echo "$file"; fi ;;
    esac
  done
}

# find_redis_server FOLDER: puts a link `redis-server` into the folder; 1 if there is none. Debian keeps the server's program
# in redis-tools under the name of another tool of it (the package redis-server adds the name and a system service, which
# nobody wants started for a demo). The program goes by the name it is called by.
find_redis_server() {
  local name
  for name in redis-server redis-check-rdb; do
    if command -v "$name" >/dev/null; then
      ln -s "$(command -v "$name")" "$1/redis-server"
      "$1/redis-server" --version 2>/dev/null | grep -q '^Redis server' && return 0
      rm -f "$1/redis-server"
    fi
  done
  return 1
}
