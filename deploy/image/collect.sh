#!/bin/sh
# Creates the root file system of an image from built programs:
#   deploy/image/collect.sh FOLDER_OF_PROGRAMS TREE [PROGRAM...]
# Without a list of programs it has all of them, and the docs. It contains the stripped programs, the libraries that ldd lists, and nothing else of Debian: no shell, no package
# manager. The Dockerfile runs this script, and so can a user without an image builder, so the tested tree is the
# shipped one.
set -eu

if [ $# -lt 2 ]; then
  echo "usage: $0 FOLDER_OF_PROGRAMS TREE [PROGRAM...]" >&2
  exit 2
fi
programs=$1
tree=$2
shift 2
repository=$(cd "$(dirname "$0")/../.." && pwd)
# Init containers need chown for a host path, rm to remove its files, and nft to redirect connections.
helpers="/bin/chown /bin/rm /usr/sbin/nft"

if [ -e "$tree" ]; then
  echo "$0: $tree is there already" >&2
  exit 1
fi
mkdir -p "$tree/usr/bin" "$tree/usr/lib" "$tree/usr/lib64" "$tree/etc" "$tree/usr/share/doc/sluice" "$tree/var/lib/dpkg/status.d"
for folder in bin lib lib64; do ln -s "usr/$folder" "$tree/$folder"; done
mkdir -m 1777 "$tree/tmp"

found=0
needed="$*"
[ $# -gt 0 ] || needed="sluice-aggregator sluice-proxy sluice-worker sluice-stripe sluice-cat sluice-load"
for program in "$programs"/sluice-* "$programs"/search "$programs"/search-*; do
  name=${program##*/}
  [ "$name" = sluice-plan-plot ] && continue  # a script: the image has no Python
  [ -x "$program" ] || continue
  case " $* " in "  " | *" $name "*) ;; *) continue ;; esac
  strip -o "$tree/usr/bin/$name" "$program"
  found=$((found + 1))
done
for program in $needed; do
  [ -x "$tree/usr/bin/$program" ] || { echo "$0: there is no $program in $programs" >&2; exit 1; }
done
for helper in $helpers; do cp "$helper" "$tree/usr/bin/"; done

# The lines are "name => path (address)", and "path (address)" for the loader. Each library is copied to the loader's
# path and requested name. Scanners find its package in status.d, as in other images without apt.
if ldd "$tree"/usr/bin/* 2>/dev/null | grep 'not found'; then
  echo "$0: these libraries are missing on this machine" >&2
  exit 1
fi
libraries=$(ldd "$tree"/usr/bin/* | sed -nE 's/.* => (\/[^ ]+) .*/\1/p; s/^\t(\/[^ ]+) .*/\1/p' | sort -u)
for library in $libraries; do
  mkdir -p "$tree$(dirname "$library")"
  cp -L "$library" "$tree$library"
done
# dpkg records some files with their path from before /lib moved into /usr.
for file in $(readlink -f $libraries) $helpers; do echo "$file" "${file#/usr}" "/usr$file"; done |
  xargs dpkg -S 2>/dev/null | grep -v '^diversion' | cut -d: -f1 | sort -u | while read -r package; do
  dpkg-query -s "$package" >"$tree/var/lib/dpkg/status.d/$package"
  if [ -e "/usr/share/doc/$package/copyright" ]; then
    mkdir -p "$tree/usr/share/doc/$package"
    cp -L "/usr/share/doc/$package/copyright" "$tree/usr/share/doc/$package/"
  fi
done

cat >"$tree/etc/passwd" <<'END'
root:x:0:0:root:/:/sbin/nologin
sluice:x:65532:65532:Sluice:/:/sbin/nologin
END
printf 'root:x:0:\nsluice:x:65532:\n' >"$tree/etc/group"
echo 'hosts: files dns' >"$tree/etc/nsswitch.conf"
# Our own pages: to be read, and to be searched by the example.
[ $# -gt 0 ] || (cd "$repository/docs" && find . -name '*.md') | while read -r page; do
  copy=$tree/usr/share/doc/sluice/${page%.md}.txt
  mkdir -p "$(dirname "$copy")"
  cp "$repository/docs/$page" "$copy"
done

echo "$tree: $found programs, $(du -sm "$tree" | cut -f1) MiB"
