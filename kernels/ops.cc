#include "kernels/ops.h"

#include <utility>

namespace tessera::kernels {

absl::Status Ops::EncodeKv(const KvWireArgs&, Stream&) {
  return absl::UnimplementedError("EncodeKv: the host reads this device's memory itself");
}

absl::Status Ops::DecodeKv(const KvWireArgs&, Stream&) {
  return absl::UnimplementedError("DecodeKv: the host writes this device's memory itself");
}

absl::Status Ops::HeadLinear(const HeadLinearArgs& args, Stream& stream) {
  const auto heads = static_cast<int64_t>(args.heads.size());
  if (heads == 0 || args.in.rank != 2 || args.out.rank != 2 || args.in.rows() % heads != 0) {
    return absl::InvalidArgumentError(
        "HeadLinear: in and out must be [tokens * heads, width], with one head at least");
  }
  const auto rows_of = [heads](const TensorView& all, int64_t head) {
    TensorView view(all.data + head * all.row_stride * SizeInBytes(all.dtype), all.dtype,
                    {all.rows() / heads, all.shape[1]});
    view.row_stride = heads * all.row_stride;
    return view;
  };
  absl::Status status;
  for (int64_t head = 0; status.ok() && head < heads; ++head) {
    status = Linear({.out = rows_of(args.out, head),
                     .in = rows_of(args.in, head),
                     .weights = &args.heads[head],
                     .workspace = args.workspace,
                     .products = args.products},
                    stream);
  }
  return status;
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
