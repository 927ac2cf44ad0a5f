# shellcheck shell=bash
# Fills the cache of the test rig: QEMU, kernels, the guest's tree and its disk images, all from Debian packages that are
# unpacked and never installed. To be sourced, with $here being this folder; `prepare KERNEL IMAGE` is what the outside calls.

: "${here:?}"
cache=${LOWTIDE_VM_CACHE:-$HOME/.cache/lowtide-vm}

# Told apart from other failures, because tests that cannot run for want of these are skipped.
no_mirror=69
no_root=77
# MiB that preparing takes at most at a time: packages, the tree, a disk made from it, a guest that is saved.
space=2500
# The same with the tree and the inputs of the evaluation's programs, and the size of their disk.
space_evaluation=16000
disk_evaluation=12288

say() { printf 'vm: %s\n' "$*" >&2; }

suite_of() {
  case $1 in
    6.1) echo bookworm ;;
    6.12) echo trixie ;;
    newest) echo sid ;;
    *) say "unknown kernel $1: 6.1, 6.12 or newest"; return 2 ;;
  esac
}

# The Debian mirror that this machine's apt uses; security and other archives have other paths.
mirror() {
  if [ -n "${LOWTIDE_VM_MIRROR:-}" ]; then
    echo "$LOWTIDE_VM_MIRROR"
  else
    apt-get indextargets --format "\$(SITE)" 'Created-By: Packages' 2>/dev/null | grep -m1 '/debian/\?$'
  fi
}

source_line() { # SUITE
  local site keyring=/usr/share/keyrings/debian-archive-keyring.gpg option=
  site=$(mirror) || {
    say "needs a Debian mirror: apt's configuration has none, and LOWTIDE_VM_MIRROR is not set"
    return $no_mirror
  }
  [ -e "$keyring" ] && option="[signed-by=$keyring] "
  echo "deb $option$site $1 main"
}

# apt for one suite, with lists and a (void) package database of its own: the machine's are neither used nor changed.
suite_apt() { # SUITE COMMAND...
  local state=$cache/apt/$1
  shift
  apt-get -q -o Dir::Etc::sourcelist="$state/sources.list" -o Dir::Etc::sourceparts=- -o Dir::State::Lists="$state/lists" \
    -o Dir::State::status="$state/status" -o Dir::Cache="$state/cache" -o APT::Sandbox::User=root \
    -o Acquire::Languages=none -o Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false -o APT::Install-Recommends=false "$@"
}

update() { # SUITE
  local state=$cache/apt/$1 line
  line=$(source_line "$1") || return
  mkdir -p "$state/lists/partial" "$state/cache/archives/partial"
  : >"$state/status"
  echo "$line" >"$state/sources.list"
  suite_apt "$1" update --error-on=any >"$state/update.log" 2>&1 || {
    say "needs a Debian mirror with $1: $(grep -m1 '^[EW]:' "$state/update.log")"
    return $no_mirror
  }
}

download_and_unpack() { # SUITE FOLDER PACKAGE...
  local suite=$1 folder=$2 debs deb
  shift 2
  debs=$(mktemp -d -p "$cache") || return
  (cd "$debs" && suite_apt "$suite" download "$@" >download.log 2>&1) || {
    say "needs a Debian mirror: cannot download $* of $suite: $(grep -m1 '^[EW]:' "$debs/download.log")"
    rm -rf "$debs"
    return $no_mirror
  }
  mkdir -p "$folder"
  for deb in "$debs"/*.deb; do
    dpkg-deb -x "$deb" "$folder" || return
  done
  rm -rf "$debs"
}

# A tree of packages with everything they depend on. mmdebstrap is itself only unpacked.
bootstrap() { # FOLDER PACKAGES(comma separated) VARIANT [OPTION]...
  local line
  line=$(source_line trixie) || return
  PATH=$cache/mmdebstrap/usr/bin:$PATH mmdebstrap --variant="$3" --include="$2" "${@:4}" --dpkgopt=force-unsafe-io \
    --aptopt='APT::Install-Recommends "false"' --dpkgopt='path-exclude=/usr/share/doc/*' \
    --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/locale/*' \
    trixie "$1" "$line" >"$cache/bootstrap.log" 2>&1 && return
  # It does not say whether the mirror was to blame.
  update trixie || return
  say "unpacking $2 failed: $(grep -m1 '^E:' "$cache/bootstrap.log" | cut -c1-200) (see $cache/bootstrap.log)"
  return 1
}

make_mmdebstrap() {
  update trixie && download_and_unpack trixie "$1" mmdebstrap
}

# QEMU with its own C library and loader, so that it does not depend on what this machine has. Not bookworm's 7.2, which
# corrupts guests that have more than one processor.
make_qemu() {
  ensure mmdebstrap make_mmdebstrap && bootstrap "$1" qemu-system-x86 extract
}

make_tree() { # FOLDER FILE...
  local folder=$1
  shift
  # Some packages cannot be set up where the folders of manual pages are missing.
  # shellcheck disable=SC2016  # expanded by mmdebstrap
  ensure mmdebstrap make_mmdebstrap && bootstrap "$folder" "$(sed '/^#/d' "$@" | paste -sd,)" minbase \
    --essential-hook='mkdir -p "$1"/usr/share/man/man1 "$1"/usr/share/man/man7'
}

# What the evaluation's programs read, made by the tree's own programs but with this machine's kernel, so that it takes no time in
# a guest. Of the tree only what is mounted over it is written to; the mounts end with the command, however that ends.
make_inputs() { # FOLDER TREE NAME...
  local folder=$1 tree=$cache/$2
  shift 2
  mkdir -p "$folder" && chmod 1777 "$folder" || return
  # shellcheck disable=SC2016  # expanded by the inner shells
  unshare --mount --pid --fork --kill-child sh -ec '
    folder=$1 tree=$2
    mount --bind "$folder" "$tree/var/tmp"
    mount --bind "$3" "$tree/mnt"
    mount -t tmpfs -o mode=1777 tmpfs "$tree/tmp"
    mount -t proc proc "$tree/proc"
    mount --rbind /dev "$tree/dev"
    shift 3
    exec env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/tmp chroot "$tree" sh -ec "
      for name; do echo \"\$name\"; /mnt/real/program.sh prepare \"\$name\"; done" sh "$@"' \
    sh "$folder" "$tree" "$here/../workloads" "$@" >"$cache/inputs.log" 2>&1 && return
  say "making the inputs failed: $(tail -n 1 "$cache/inputs.log") (see $cache/inputs.log)"
  return 1
}

# The meta package stands for a kernel's version; that is one package in older suites, several in newer ones.
make_kernel() { # FOLDER KERNEL
  local suite packages
  suite=$(suite_of "$2") && update "$suite" || return
  mapfile -t packages < <(suite_apt "$suite" -s install linux-image-cloud-amd64 |
    sed -n 's/^Inst \(linux-\(image\|binary\|modules\|base\)-[0-9][^ ]*\).*/\1/p')
  [ ${#packages[@]} -gt 0 ] || { say "no kernel in $suite"; return 1; }
  download_and_unpack "$suite" "$1" "${packages[@]}" || return
  # Both names of the same place are in use; one makes it easy to find.
  if [ -d "$1/lib/modules" ]; then
    mkdir -p "$1/usr/lib" && mv "$1/lib/modules" "$1/usr/lib/"
  fi
  find "$1" -name 'vmlinuz*' -type f -exec mv {} "$1/vmlinuz" \;
  [ -s "$1/vmlinuz" ]
}

make_flusher() {
  mkdir -p "$1" && cc -O2 -Wall -static -o "$1/flusher" "$here/guest/flusher.c"
}

# An entry of an archive in the form `newc` (Documentation/driver-api/early-userspace/buffer-format.rst).
entry() { # NAME MODE [FILE]
  local size=0
  [ -z "${3:-}" ] || size=$(stat -c %s "$3")
  printf '070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%s\0' 0 "0x$2" 0 0 1 0 "$size" 0 0 0 0 $((${#1} + 1)) 0 "$1"
  head -c $(((4 - (110 + ${#1} + 1) % 4) % 4)) /dev/zero
  [ "$size" -eq 0 ] || { cat "$3" && head -c $(((4 - size % 4) % 4)) /dev/zero; }
}

# The initial file system: what mounts the root, and the modules that the disks need, each after those it needs itself.
make_initrd() { # FILE MODULES-FOLDER
  local work=$1.work module path name
  local -A added=()
  mkdir -p "$work" && cc -O2 -Wall -static -o "$work/init" "$here/guest/first.c" || return
  for module in virtio_pci virtio_blk; do
    # A line has a module and all that it needs, the deepest last. What is built in has none.
    path=$(grep -E "/$module\.ko[^ ]*:" "$2/modules.dep") || continue
    for path in $(tr -d : <<<"$path" | tr ' ' '\n' | tac); do
      name=$(basename -- "$path" .xz)
      [ -z "${added[$name]:-}" ] || continue
      added[$name]=1
      case $path in
        *.xz) xz -dc "$2/$path" ;;
        *) cat "$2/$path" ;;
      esac >"$work/$name" || return
      echo "$name" >>"$work/modules"
    done
  done
  touch "$work/modules"
  {
    entry init 81ed "$work/init" && entry modules 81a4 "$work/modules" && entry lib 41ed && entry dev 41ed && entry root 41ed
    while IFS= read -r name; do entry "lib/$name" 81a4 "$work/$name"; done <"$work/modules"
    entry 'TRAILER!!!' 0
  } >"$1" && rm -rf "$work"
}

# The guest's disk and its initial file system. Its root partition is found by the signature 6c6f7774, as the order of the disks is not
# certain. A partition table by hand (one Linux partition from 1 MiB on, little-endian numbers), then ext4.
# Sparse and without a journal: what a guest writes is thrown away anyway.
make_image() { # FOLDER KERNEL TREE MIB INODES [INPUTS]
  local stage=$1/stage release sectors
  mkdir -p "$1" && cp -a "$cache/$3" "$stage" && cp -a "$cache/kernel-$2/usr/lib/modules" "$stage/usr/lib/" || return
  install -m 755 "$here/guest/init.sh" "$stage/usr/sbin/vm-init" || return
  release=$(ls "$stage/usr/lib/modules")
  chroot "$stage" depmod "$release" && make_initrd "$1/initrd" "$stage/usr/lib/modules/$release" || return
  [ -z "${6:-}" ] || cp -a "$cache/$6/." "$stage/var/tmp/" || return
  truncate -s $(($4 + 1))M "$1/disk"
  sectors=$(printf '%08x' $(($4 * 2048)) | sed 's/\(..\)\(..\)\(..\)\(..\)/\\x\4\\x\3\\x\2\\x\1/')
  # shellcheck disable=SC2059  # it has escapes
  printf '\x74\x77\x6f\x6c\0\0\0\x20\x21\0\x83\xfe\xff\xff\0\x08\0\0'"$sectors" |
    dd of="$1/disk" bs=1 seek=440 conv=notrunc status=none
  printf '\x55\xaa' | dd of="$1/disk" bs=1 seek=510 conv=notrunc status=none
  mke2fs -q -F -t ext4 -O ^has_journal -E offset=1048576,lazy_itable_init=0,nodiscard -N "$5" -m 0 -d "$stage" "$1/disk" "$4M" &&
    rm -rf "$stage"
}

# ensure NAME MAKER ARGUMENT...: cache/NAME is there, made by MAKER if need be. Made beside it and renamed, so that what
# was interrupted is never taken for whole, and a guest that runs keeps the files it has open.
ensure() {
  local name=$1 maker=$2 new=$cache/new-$1 status=0
  shift 2
  [ -d "$cache/$name" ] && return
  say "preparing $name"
  rm -rf "$new"
  "$maker" "$new" "$@" || status=$?
  if [ $status -ne 0 ]; then
    rm -rf "$new"
    return $status
  fi
  mv "$new" "$cache/$name"
}

key_of() { cat "$@" | sha256sum | head -c 8; }

# prepare KERNEL IMAGE: sets $qemu (a folder), $vmlinuz, $initrd, $disk, $flusher and $image (their name). IMAGE is default or
# evaluation. One at a time where something is missing.
# shellcheck disable=SC2034 # the caller uses them
prepare() {
  local kernel=$1 flush name missing='' needed=$space free lock status=0
  local tree inputs='' names=() lists=("$here/packages") disk_size=(4096 65536)
  suite_of "$kernel" >/dev/null || return
  case $2 in
    default) image=image-$kernel ;;
    evaluation)
      image=image-evaluation-$kernel needed=$space_evaluation disk_size=("$disk_evaluation" 524288)
      lists+=("$here/packages-evaluation")
      mapfile -t names < <(grep -o 'program\.sh run [a-z-]*' "$here/../workloads/evaluation.toml" | cut -d' ' -f3)
      inputs=inputs-$(printf '%s\n' "${names[@]}" | key_of - "${lists[@]}" "$here"/../workloads/{evaluation,real}/*)
      ;;
    *) say "unknown image $2: default or evaluation"; return 2 ;;
  esac
  tree=tree-$(key_of "${lists[@]}")
  image=$image-$(key_of "${lists[@]}" "$here"/guest/{init.sh,first.c} "$here/cache.sh")${inputs#inputs}
  flush=flusher-$(key_of "$here/guest/flusher.c")
  qemu=$cache/qemu vmlinuz=$cache/kernel-$kernel/vmlinuz initrd=$cache/$image/initrd disk=$cache/$image/disk flusher=$cache/$flush/flusher
  for name in qemu "$flush" "kernel-$kernel" "$image"; do
    [ -d "$cache/$name" ] || missing=$name
  done
  [ -n "$missing" ] || return 0
  if [ "$(id -u)" -ne 0 ]; then
    say "needs root to prepare $missing, once: sudo LOWTIDE_VM_CACHE=$cache vm/run --kernel $kernel --image $2 --prepare"
    return $no_root
  fi
  mkdir -p "$cache" || return
  free=$(df --output=avail --block-size=1M "$cache" | tail -n 1)
  if [ "$free" -lt "$needed" ]; then
    say "needs $needed MiB to prepare $missing, and $cache has $((free)) MiB left"
    return 1
  fi
  exec {lock}>"$cache/lock"
  flock "$lock"
  {
    ensure qemu make_qemu && ensure "$flush" make_flusher && ensure "$tree" make_tree "${lists[@]}" &&
      { [ -z "$inputs" ] || ensure "$inputs" make_inputs "$tree" "${names[@]}"; } &&
      ensure "kernel-$kernel" make_kernel "$kernel" &&
      ensure "$image" make_image "$kernel" "$tree" "${disk_size[@]}" "$inputs"
  } || status=$?
  exec {lock}>&-
  return $status
}
