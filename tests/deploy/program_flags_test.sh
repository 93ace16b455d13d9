#!/bin/bash
# proto/program_flags.h names every flag of the coordinator and the worker, and no other.
set -u
header=proto/program_flags.h
failed=0

flags_of() {  # long names of a program's flags, without the negations of switches
  $1 --help | grep -o -- '--[a-z][a-z-]*' | sed 's/^--//' | grep -vx -e help -e version -e 'no-.*' | sort -u
}
listed() { grep -o '"[a-z][a-z-]*"' "$header" | tr -d '"' | sort; }

missing=$(comm -13 <(listed | uniq) <({ flags_of coordinator/tessera-coordinator; flags_of worker/tessera-worker; } | sort -u))
[ -z "$missing" ] || { echo "not in $header:" $missing; failed=1; }
gone=$(comm -23 <(listed | uniq) <({ flags_of coordinator/tessera-coordinator; flags_of worker/tessera-worker; } | sort -u))
[ -z "$gone" ] || { echo "in $header, but no program's flag:" $gone; failed=1; }
twice=$(listed | uniq -d)
[ -z "$twice" ] || { echo "twice in $header:" $twice; failed=1; }

# What the coordinator takes, `tessera up` takes too, but for the file it writes itself, what `tessera rehearse` starts, and a
# spare's flags: coordinators of one cluster run on machines of their own.
missing=$(comm -13 <(flags_of "deploy/tessera up") <(flags_of coordinator/tessera-coordinator) | grep -vx -e port-file -e rehearsal -e ha -e ha-lease)
[ -z "$missing" ] || { echo "tessera up does not take:" $missing; failed=1; }
exit "$failed"
