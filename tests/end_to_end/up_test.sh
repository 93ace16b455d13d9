#!/bin/bash
# The main job on real processes: `tessera up` on the shipped model answers, refuses a wrong answer, serves held-out
# questions over HTTP, shows its cluster, goes on when a worker is killed, and ends cleanly.
set -u
tessera=$PWD/deploy/tessera
model=$PWD/deploy/demo_model/tessera-demo
out=$TEST_TMPDIR/out
failed=0
# What runs on loopback keeps its secrets and sockets here; the names of sockets are short.
XDG_STATE_HOME=$(mktemp -d /tmp/up-XXXXXX)
export XDG_STATE_HOME
trap 'rm -rf "$XDG_STATE_HOME"' EXIT

check() {  # what, command...
  local what=$1
  shift
  if "$@"; then echo "ok: $what"; else echo "FAILED: $what"; failed=1; fi
}

processes_with() {  # ids of processes whose command line has this text
  local file
  for file in /proc/[0-9]*/cmdline; do
    { tr '\0' ' ' < "$file"; } 2> /dev/null | grep -qF -- "$1" && basename "$(dirname "$file")"
  done
  return 0
}

bar_of() {  # bar: the exit code of a short evaluation against it
  python3 deploy/demo_model/evaluate.py --url "$url" --per-family 2 --bar "$1" > /dev/null
  echo $?
}

code_and_body() {  # URL
  python3 - "$1" << 'EOF'
import sys, urllib.error, urllib.request
try:
    with urllib.request.urlopen(sys.argv[1], timeout=5) as reply:
        print(reply.status, reply.read().decode())
except urllib.error.HTTPError as error:
    print(error.code, error.read().decode())
except OSError as error:
    print("000", error)
EOF
}

up() { "$tessera" up "$model" --port 0 --grpc-port 0 --log-dir "$TEST_TMPDIR/logs" "$@"; }

up --once --ask "What is 57 + 85?" --expect 142 > "$out" 2>&1
check "a right answer ends with 0" [ $? -eq 0 ]
check "the plan is shown" grep -q "^r-local/0 *both *0 *0-5 *1 *local/0$" "$out"
check "the answer is shown" grep -q "answer:   142" "$out"
check "who answered is named" grep -q "^decode: .*(local/" "$out"

if python3 -c 'import socket; socket.socket(socket.AF_INET6).bind(("::1", 0))' 2> /dev/null; then
  up --host ::1 --workers 1 --once --ask "What is 57 + 85?" --expect 142 > "$out" 2>&1
  check "an IPv6 address is served and asked at" [ $? -eq 0 ]
fi

"$tessera" up --model "a=$model" --model "b=$model" --workers 2 --port 0 --grpc-port 0 --log-dir "$TEST_TMPDIR/two" \
  --once --ask "What is 57 + 85?" --expect 142 > "$out" 2>&1
check "of two models the first is asked" [ $? -eq 0 ]
check "each has a worker" grep -q "^a/r-local/[01] .*local/[01]$" "$out"
check "the other one too" grep -q "^b/r-local/[01] .*local/[01]$" "$out"

up --workers 1 --once --ask "What is 57 + 85?" --expect 143 > "$out" 2>&1
check "a wrong answer ends with 1" [ $? -eq 1 ]

"$tessera" up /nowhere --port 0 --grpc-port 0 --once > "$out" 2>&1
check "a model that is not there ends with 1" [ $? -eq 1 ]
check "and is named" grep -q "/nowhere" "$out"

# What only a worker could not read is refused before one is started.
fp8=$TEST_TMPDIR/fp8
cp -rL "$model" "$fp8" && chmod -R u+w "$fp8"
python3 - "$fp8/model.safetensors" << 'END'
import json, struct, sys
data = open(sys.argv[1], "rb").read()
size = struct.unpack("<Q", data[:8])[0]
header = json.loads(data[8:8 + size])
table = header["model.embed_tokens.weight"]
table["dtype"], table["shape"] = "F8_E4M3", [table["shape"][0], 2 * table["shape"][1]]
text = json.dumps(header).encode()
open(sys.argv[1], "wb").write(struct.pack("<Q", len(text)) + text + data[8 + size:])
END
"$tessera" up "$fp8" --port 0 --grpc-port 0 --log-dir "$TEST_TMPDIR/fp8-logs" --once > "$out" 2>&1
check "weights of a type that is not read end with 1" [ $? -eq 1 ]
check "and are named" grep -q "tensor 'model.embed_tokens.weight' is F8_E4M3" "$out"
check "before a worker is started" [ -z "$(find "$TEST_TMPDIR/fp8-logs" -name 'worker*')" ]

# Flags that are nearly right are refused by name, before anything starts.
up --wrokers 1 > "$out" 2>&1
check "a misspelt flag ends with 2" [ $? -eq 2 ]
check "and is named" grep -q -- "--wrokers is no flag of tessera up (did you mean --workers?)" "$out"
"$tessera" statsu > "$out" 2>&1
check "a misspelt subcommand is named" grep -q '"statsu" is no subcommand (did you mean status?)' "$out"
up --once --workers 1 --max-model-len abc > "$out" 2>&1
check "a number that is none is named in a short line" \
  grep -qx '.*--max-model-len: .*"abc" is no number.\{0,60\}' "$out"
up --once --workers 1024 > "$out" 2>&1
check "many more workers than cores are refused, saying how many there may be" \
  grep -q -- "--workers 1024: .* may be used here, .*: give --workers [0-9]" "$out"
up --once --quantization int8 --dtype float32 > "$out" 2>&1
check "two words on how weights are kept are refused" grep -q "give one of them" "$out"
TESSERA_WROKERS=1 "$tessera" status --coordinator http://x:1 > "$out" 2>&1
check "a variable that is no flag's is warned of" grep -q "TESSERA_WROKERS .*did you mean TESSERA_WORKERS?" "$out"
check "and an address that is none is refused" grep -q -- '--coordinator: "http://x:1" is not HOST:PORT' "$out"

# What `tessera plan init` writes is served as it is.
described=$TEST_TMPDIR/cluster.yaml
"$tessera" plan init --out "$described" > "$out" 2>&1
up --cluster "$described" --ready-timeout 60 --once --ask "What is 57 + 85?" --expect 142 > "$out" 2>&1
check "a machine as plan init describes it comes up and answers" [ $? -eq 0 ]
check "with workers of its name" grep -q " 0-5 *1 *$(uname -n)/0$" "$out"

# Keys reach the coordinator, the workers and its own calls; what a file, the environment and the command line say holds in
# this order of strength.
keys=$TEST_TMPDIR/keys
mkdir -p "$keys"
head -c 24 /dev/urandom | od -An -tx1 | tr -d ' \n' > "$keys/admin"
head -c 24 /dev/urandom | od -An -tx1 | tr -d ' \n' > "$keys/token"
printf "workers: 2\nserved-model-name: from-file\nallowed-origins: [https://a.example, https://b.example]\nallowed-hosts: [a.example, b.example]\napi-key: [\"it's a key\", other]\nmax-num-seqs: 7\n" > "$keys/up.yaml"
TESSERA_WORKERS=1 TESSERA_SERVED_MODEL_NAME=from-environment TESSERA_LISTEN=127.0.0.1:1 up --config "$keys/up.yaml" \
  --admin-key-file "$keys/admin" --cluster-token-file "$keys/token" --ready-timeout 60 --once \
  --kv-cache-memory-bytes 64MiB --ask "What is 57 + 85?" --expect 142 > "$out" 2>&1
check "with all keys it comes up and answers" [ $? -eq 0 ]
check "the environment beats the file" grep -q "^plan .* for from-environment:" "$out"
check "for up's own flags too" [ "$(grep -c '^r-local/' "$out")" -eq 1 ]
check "the example asks for the key" grep -q 'curl .*Authorization: Bearer' "$out"
check "no key is printed" bash -c '! grep -q "it.s a key" "$1" "$2"/logs/*.log' - "$out" "$TEST_TMPDIR"

printf "secret\n" > "$keys/api"
up --host 0.0.0.0 --workers 1 --api-key-file "$keys/api" --ready-timeout 60 --once --ask "What is 57 + 85?" --expect 142 > "$out" 2>&1
check "beyond loopback it comes up with keys of its own" [ $? -eq 0 ]
check "and says how to ask for the status" grep -q -- "--admin-key-file $TEST_TMPDIR/logs/admin_key" "$out"
check "the log speaks of types as --dtype does" grep -q "weights bfloat16 [0-9]* bytes, KV bfloat16" "$TEST_TMPDIR/logs/worker-0.log"
check "which only the owner reads" [ "$(stat -c %a "$TEST_TMPDIR/logs/admin_key")" = 600 ]

# A worker that is killed while the others load is started again, and all serve in the end.
rm -f "$TEST_TMPDIR/logs/ports"
"$tessera" up "$model" --port 0 --grpc-port 0 --log-dir "$TEST_TMPDIR/logs" > "$out" 2>&1 &
pid=$!
for _ in $(seq 300); do
  victim=
  [ -s "$TEST_TMPDIR/logs/ports" ] &&
    victim=$(processes_with "--coordinator 127.0.0.1:$(sed 's/.*grpc=//' "$TEST_TMPDIR/logs/ports") --name local/1")
  [ -n "$victim" ] && kill -KILL $victim && break
  sleep 0.02
done
for _ in $(seq 600); do
  grep -q "worker-1 is started again" "$out" && grep -q "Ctrl-C stops everything" "$out" && break
  sleep 0.1
done
check "a worker that is killed while it starts is started again" grep -q "worker-1 is started again" "$out"
url=$(grep -o 'http://127.0.0.1:[0-9]*' "$out" | head -1)
grpc=$(sed -n 's/^(gRPC on \(.*\))$/\1/p' "$out")
check "it serves" [ -n "$url" ]
check "of 500 held-out questions of each family, 95 % are answered to the character" \
  python3 deploy/demo_model/evaluate.py --url "$url" --per-family 500 --bar 0.95
check "a bar that nobody reaches is missed" [ "$(bar_of 1.01)" -eq 1 ]
# A worker whose heartbeat a busy machine delayed is back with the next one.
for _ in $(seq 100); do
  "$tessera" status --coordinator "$grpc" > "$TEST_TMPDIR/status"
  [ "$(grep -c '^local/.* ready ' "$TEST_TMPDIR/status")" -eq 2 ] && break
  sleep 0.1
done
check "status shows both workers" [ "$(grep -c '^local/.* ready ' "$TEST_TMPDIR/status")" -eq 2 ]
answer=$("$tessera" complete --url "$url" --temperature 0 "Count from 3 to 9.")
check "complete prints the answer" [ "$answer" = "3 4 5 6 7 8 9" ]

# A wrong port, or none, is said to be one.
"$tessera" complete --url "http://$grpc" "x" > "$TEST_TMPDIR/wrong" 2>&1
check "complete on the gRPC port says so" grep -q "does not speak HTTP/1" "$TEST_TMPDIR/wrong"
check "in one line" [ "$(wc -l < "$TEST_TMPDIR/wrong")" -eq 1 ]
"$tessera" status --coordinator "${url#http://}" > "$TEST_TMPDIR/wrong" 2>&1
check "status on the HTTP port says so" grep -q "speaks HTTP/1" "$TEST_TMPDIR/wrong"
TESSERA_URL=$url "$tessera" complete --temperature 0 "What is 57 + 85?" > "$TEST_TMPDIR/wrong" 2>&1
check "complete reads its environment" grep -qx 142 "$TEST_TMPDIR/wrong"

starts() { grep -c "ready for replica" "$TEST_TMPDIR/logs/worker-1.log"; }

serves_again() {  # starts before: whether worker-1 has come up since, and both serve
  local _
  for _ in $(seq 600); do
    [ "$(starts)" -gt "$1" ] && "$tessera" status --coordinator "$grpc" > "$TEST_TMPDIR/status" &&
      [ "$(grep -c '^local/.* ready ' "$TEST_TMPDIR/status")" -eq 2 ] && return 0
    sleep 0.1
  done
  return 1
}

# A killed worker is named and started again; it serves again.
before=$(starts)
kill -KILL $(processes_with "--coordinator $grpc --name local/1")
check "a killed worker serves again" serves_again "$before"
check "it is named" [ "$(grep -c "worker-1 was ended by signal 9" "$out")" -ge 2 ]

# So is one that hangs, which is killed for that.
before=$(starts)
stopped=$(processes_with "--coordinator $grpc --name local/1")
kill -STOP $stopped
check "a worker that hangs serves again" serves_again "$before"
check "it is named" grep -q "worker-1 hangs: no heartbeat for [0-9]* s; it is killed" "$out"
check "it is gone" [ ! -e "/proc/$stopped" ]
check "the worker beside it ran on" [ "$(grep -c "worker-0 is started again" "$out")" -eq 0 ]

# One that dies again and again is tried with growing pauses; the rest serves on, and it is named.
killed=
for _ in $(seq 12); do  # until it stays away for longer than silence goes unnoticed
  grep -qE "worker-1 ended .* next try is in [1-3][0-9] s" "$out" && break
  for _ in $(seq 600); do
    victim=$(processes_with "--coordinator $grpc --name local/1")
    [ -n "$victim" ] && [ "$victim" != "$killed" ] && break
    sleep 0.1
  done
  sleep 0.3
  kill -KILL $victim
  killed=$victim
done
before=$(starts)
sleep 6  # its silence is noticed after 5 s; it is named for as long as it is away
for _ in $(seq 50); do
  ready=$(code_and_body "$url/ready")
  case $ready in *local/1*) break ;; esac
  sleep 0.1
done
check "a worker that dies again and again does not end the others" kill -0 "$pid"
check "which serve" [ "${ready%% *}" = 200 ]
check "/ready names it" grep -qF 'local/1' <<< "$ready"
check "so does the output, with its pause" \
  grep -q "worker-1 ended [0-9]* times in a row soon after its start; the next try is in [0-9]* s" "$out"
check "so does the coordinator's log" grep -q "worker local/1 is lost" "$TEST_TMPDIR/logs/coordinator.log"
check "it serves again once it lives" serves_again "$before"

# A coordinator that is killed is started again at its ports, and the workers come back to it.
kill -KILL $(processes_with "--port-file $TEST_TMPDIR/logs/")
for _ in $(seq 600); do
  "$tessera" status --coordinator "$grpc" > "$TEST_TMPDIR/status" 2> /dev/null &&
    [ "$(grep -c '^local/.* ready ' "$TEST_TMPDIR/status")" -eq 2 ] && break
  sleep 0.1
done
check "a killed coordinator is named" grep -q "coordinator was ended by signal 9" "$out"
check "and started again" grep -q "coordinator is started again" "$out"
check "its workers come back" [ "$(grep -c '^local/.* ready ' "$TEST_TMPDIR/status")" -eq 2 ]
answer=$("$tessera" complete --url "$url" --temperature 0 "Count from 3 to 9.")
check "and answer" [ "$answer" = "3 4 5 6 7 8 9" ]
kill -TERM "$pid"
wait "$pid"
check "a signal ends all" [ $? -eq 0 ]
check "nothing is left behind" [ -z "$(processes_with "--coordinator $grpc")" ]
check "no secret either" [ -z "$(ls "$XDG_STATE_HOME/tessera")" ]

# Where nothing ever served, `up` ends with the reason.
bin=$TEST_TMPDIR/bin
mkdir -p "$bin"
ln -s "$PWD/coordinator/tessera-coordinator" "$bin/tessera-coordinator"
worker=$PWD/worker/tessera-worker
printf '#!/bin/sh\necho "no such thing" >&2\nexit 3\n' > "$bin/tessera-worker"
chmod +x "$bin/tessera-worker"
up --bin-dir "$bin" --ready-timeout 60 --once > "$out" 2>&1
check "where no worker lives, up ends with 1" [ $? -eq 1 ]
check "and the reason" grep -q "nothing can serve: 3 times in a row worker-0 exited with code 3" "$out"
check "with its last words" grep -q "no such thing" "$out"
printf '#!/bin/sh\ncase "$*" in *local/1*) exit 3 ;; esac\nexec %s "$@"\n' "$worker" > "$bin/tessera-worker"
up --bin-dir "$bin" --ready-timeout 60 --once --ask "What is 57 + 85?" --expect 142 > "$out" 2>&1
check "where one of two does not live, the other serves" [ $? -eq 0 ]
check "and the first is named" grep -q "worker local/1 ends again and again" "$out"

[ "$failed" -eq 0 ] || cat "$out" "$TEST_TMPDIR"/logs/*.log
exit "$failed"
