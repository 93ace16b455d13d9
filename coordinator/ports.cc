#include "coordinator/ports.h"

#include <cstdio>

#include "absl/strings/str_cat.h"
#include "proto/http_peer.h"
#include "proto/written_file.h"
#include "third_party/linux/host_name.h"

namespace tessera::coordinator {

std::string ReachableAt(const std::string& host, int port) {
  const bool anywhere = host == "0.0.0.0" || host == "::";
  return HostAndPort(anywhere ? HostName() : host, port);
}

absl::Status WritePortFile(const std::string& path, int http_port, int grpc_port) {
  if (path.empty()) return absl::OkStatus();
  // Renamed into place: whoever waits for it never reads half of it.
  const std::string temporary = path + ".new";
  absl::Status written =
      WriteFileText(temporary, absl::StrCat("http=", http_port, " grpc=", grpc_port, "\n"));
  if (written.ok() && std::rename(temporary.c_str(), path.c_str()) != 0)
    written = absl::UnavailableError("its folder does not let it be renamed");
  if (written.ok()) return written;
  return absl::Status(written.code(),
                      absl::StrCat("--port-file: ", std::string(written.message())));
}

}  // namespace tessera::coordinator
