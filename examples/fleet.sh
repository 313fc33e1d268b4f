#!/usr/bin/env bash
# A small fleet for the page of groups: members join, leave and are killed now and then, and one group has one member
# only, so that it is out when that is gone. It needs the command kip848, and the address of a broker in
# KIP848_BOOTSTRAP. Ctrl-C, or the end of the shell, ends all of it.
set -u
trap 'trap - EXIT; kill 0' EXIT INT TERM

until kip848 topics list 2> /dev/null | grep -q '^demo-mails'; do
  kip848 topics create demo-orders:6 demo-mails:3 > /dev/null 2>&1
  sleep 1
done

# Reads for 20 to 80 seconds, is killed one time of three, and comes back.
member() {
  while :; do
    signal=TERM
    if ((RANDOM % 3 == 0)); then signal=KILL; fi
    timeout --foreground --signal "$signal" $((20 + RANDOM % 60)) kip848 consume "$1" --group "$2" -X client.id="$3" --quiet > /dev/null
    sleep $((1 + RANDOM % 15))
  done
}

for number in 1 2 3; do member demo-orders demo-billing "billing-$number" & done
for number in 1 2; do member demo-orders demo-warehouse "warehouse-$number" & done
member demo-mails demo-mailer mailer-1 &

write() { while :; do echo "$RANDOM"; sleep 0.1; done | kip848 produce "$1" > /dev/null; }
write demo-orders &
write demo-mails &
wait
