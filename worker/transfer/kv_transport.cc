#include "worker/transfer/kv_transport.h"

#include "third_party/absl/str_cat.h"

namespace tessera::worker {
namespace {

constexpr KvTransport kAll[] = {KvTransport::kTcp, KvTransport::kUnix, KvTransport::kSharedMemory,
                                KvTransport::kNccl};

constexpr std::string_view kStaged = ", staged";

}  // namespace

std::string_view Name(KvTransport transport) {
  switch (transport) {
    case KvTransport::kTcp: return "tcp";
    case KvTransport::kUnix: return "unix";
    case KvTransport::kSharedMemory: return "shm";
    case KvTransport::kNccl: return "nccl";
  }
  return "?";
}

absl::StatusOr<std::optional<KvTransport>> ParseKvTransport(std::string_view text) {
  if (text == "auto") return std::optional<KvTransport>();
  for (const KvTransport transport : kAll) {
    if (text == Name(transport)) return std::optional(transport);
  }
  return absl::InvalidArgumentError(
      StrCat("\"", text, "\" is no transport of KV: it is one of auto, nccl, shm, unix, tcp"));
}

std::string DescribeWay(KvTransport transport, bool staged) {
  return StrCat(Name(transport), staged ? kStaged : "");
}

std::string SlowerWay(const std::string& one, const std::string& other) {
  const bool staged = one.ends_with(kStaged) || other.ends_with(kStaged);
  for (const KvTransport transport : kAll) {
    if (one.starts_with(Name(transport)) || other.starts_with(Name(transport)))
      return DescribeWay(transport, staged);
  }
  return one;
}

}  // namespace tessera::worker
