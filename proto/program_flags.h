// The flags by which one program of Tessera starts another, and whose environment variables it
// leaves to it: what `tessera up` hands on, and what no program takes for a misspelt variable.
// tests/deploy/program_flags_test holds these against each program's --help.
// Thread rule: constants.
#pragma once

#include <string_view>

namespace tessera {

// Flags of tessera-coordinator that `tessera up` hands on as they are, by long name.
inline constexpr std::string_view kHandedOnFlags[] = {
    "chat-template",
    "tool-call-parser",
    "pooling",
    "cluster",
    "workload",
    "prefer",
    "plan-wait",
    "replan-after",
    "replan",
    "dtype",
    "kv-cache-dtype",
    "quantization",
    "max-model-len",
    "max-num-seqs",
    "max-num-batched-tokens",
    "max-waiting",
    "queue-timeout",
    "block-size",
    "kv-cache-memory-bytes",
    "speculate",
    "speculate-tokens",
    "max-body-memory-bytes",
    "io-threads",
    "progress-timeout",
    "otlp-endpoint",
    "log-level",
    "log-format",
};

// The same, of those that may be given more than once.
inline constexpr std::string_view kHandedOnLists[] = {"served-model-name", "plan", "allowed-hosts",
                                                      "allowed-origins"};

// Flags of it that take no value; --no-NAME turns them off.
inline constexpr std::string_view kHandedOnSwitches[] = {"enable-prefix-caching", "open-loopback",
                                                         "split"};

// The rest of tessera-coordinator's flags, and those of tessera-worker.
inline constexpr std::string_view kProcessFlags[] = {
    "model",
    "host",
    "port",
    "grpc-port",
    "port-file",
    "api-key",
    "api-key-file",
    "admin-key-file",
    "cluster-token-file",
    "tls-cert",
    "tls-key",
    "tls-client-ca",
    "tls-ca",
    "tls-server-name",
    "cluster-tls",
    "nccl-plain",
    "mapped-sums",
    "state-cache-memory-bytes",
    "shutdown-timeout",
    "ha",
    "ha-lease",
    "config",
    "coordinator",
    "listen",
    "advertise",
    "advertise-link",
    "link-port",
    "model-folder",
    "kv-port",
    "advertise-kv",
    "kv-transport",
    "name",
    "device",
    "cpus",
    "cpu-isa",
    "memory",
    "drain-seconds",
    "list-devices",
    "measure",
    "json",
    "gpu-memory-utilization",
    "tuning-folder",
    "rehearsal",
    "rehearsal-folder",
    "rehearsal-speed",
};

}  // namespace tessera
