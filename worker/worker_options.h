// The flags of tessera-worker; each may also come from an environment variable TESSERA_<FLAG>.
// Thread rule: pure function of its arguments and the environment.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "tls/client_tls.h"
#include "worker/devices/device_type.h"

namespace tessera::worker {

struct WorkerOptions {
  // host:port, or several with commas between, one of which leads; empty: waits to be configured,
  // registers nowhere.
  std::string coordinator;
  std::string listen = "127.0.0.1:0";  // port 0: a free one
  std::string advertise;               // host:port that the coordinator uses; empty: as listened
  int link_port = 0;           // for links of other workers, on the host of `listen`; 0: a free one
  std::string advertise_link;  // host:port that other workers use; empty: as listened
  int kv_port = 0;             // for KV of other replicas' workers, likewise
  std::string advertise_kv;    // likewise
  std::string kv_transport = "auto";  // on which KV goes to other workers (transfer/kv_transport.h)
  std::string name;  // "machine/index"; empty: host name and the GPU's index, or /0
  DeviceFlags device;
  const DeviceType* device_type = nullptr;  // of device.name; of the table, never null once parsed
  std::string rehearsal_folder;  // of emulated devices: with the plan that they run; empty: none
  double rehearsal_speed = 1;    // model's seconds that pass in one second
  bool list_devices = false;     // print them and exit
  bool measure = false;          // them, first
  bool json = false;             // as JSON
  int64_t kv_cache_memory_bytes = 0;  // 0: half of what is left after weights
  std::string model_folder;  // of the checkpoint on this machine; empty: the coordinator's path
  std::string cluster_token_file;
  ClientTlsFiles tls;  // of the coordinator's ports, and (`cluster`) of this worker's
  bool nccl_plain = false;
  double drain_seconds = 30;
  std::string log_level = "info";
  std::string log_format = "text";
};

struct ParsedOptions {
  WorkerOptions options;
  int exit_code = -1;                 // >= 0: --help or --version was printed; exit with it
  std::vector<std::string> warnings;  // for the log: variables TESSERA_... that are no flag's
};

// InvalidArgument with the text to print.
absl::StatusOr<ParsedOptions> ParseWorkerOptions(int argc, const char* const* argv);

// host:port for the coordinator: `advertise`, or what was listened on, a wildcard address replaced
// by the host name.
absl::StatusOr<std::string> AdvertisedAddress(const WorkerOptions& options,
                                              const std::string& listened);

// Where this worker takes links: a Unix socket in `folder` that only its user may open, named for
// its incarnation, then a TCP port on the host of `listen`. No socket where there is no folder (an
// empty one), or its name is longer than a socket's may be.
absl::StatusOr<std::vector<std::string>> LinkListenAddresses(const WorkerOptions& options,
                                                             const std::string& folder,
                                                             uint64_t incarnation);
// The same for KV, on --kv-port.
absl::StatusOr<std::vector<std::string>> KvListenAddresses(const WorkerOptions& options,
                                                           const std::string& folder,
                                                           uint64_t incarnation);
// Such addresses as other workers are given them; `advertised`: --advertise-link, --advertise-kv.
absl::StatusOr<std::vector<std::string>> AdvertisedLinks(const std::string& advertised,
                                                         std::vector<std::string> listened);

}  // namespace tessera::worker
