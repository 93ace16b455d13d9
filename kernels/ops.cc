#include "kernels/ops.h"

#include <utility>

namespace tessera::kernels {

absl::Status Ops::EncodeKv(const KvCodeArgs&, Stream&) {
  return absl::UnimplementedError("EncodeKv: the host reads this device's memory itself");
}

absl::Status Ops::DecodeKv(const KvCodeArgs&, Stream&) {
  return absl::UnimplementedError("DecodeKv: the host writes this device's memory itself");
}

absl::Status Ops::PrepareAttention(const PrepareAttentionArgs& args, Stream& stream) {
  absl::Status status;
  for (const auto& [heads, weight] : {std::pair(args.q, args.q_norm), {args.k, args.k_norm}}) {
    if (!status.ok() || weight.empty()) continue;
    status =
        RmsNorm({.out = heads, .in = heads, .weight = weight, .epsilon = args.epsilon}, stream);
  }
  if (status.ok() && !args.cos_sin.empty()) {
    status = Rope({.q = args.q, .k = args.k, .cos_sin = args.cos_sin}, stream);
  }
  if (!status.ok()) return status;
  return KvWrite({.cache = args.cache, .k = args.k, .v = args.v, .slots = args.slots}, stream);
}

}  // namespace tessera::kernels
