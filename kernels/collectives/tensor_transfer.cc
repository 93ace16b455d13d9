#include "kernels/collectives/tensor_transfer.h"

#include "third_party/absl/str_cat.h"

namespace tessera::kernels {
namespace {

struct Transfer {
  Link* link = nullptr;
  std::byte* data = nullptr;
  int64_t size_bytes = 0;
  double timeout_seconds = 0;
};

absl::Status Send(const Transfer& transfer) {
  return transfer.link->Send(
      kTensorFrame,
      absl::Span<const std::byte>(transfer.data, static_cast<size_t>(transfer.size_bytes)),
      transfer.timeout_seconds);
}

absl::Status Receive(const Transfer& transfer) {
  const absl::StatusOr<int64_t> received = transfer.link->Receive(
      kTensorFrame, absl::Span<std::byte>(transfer.data, static_cast<size_t>(transfer.size_bytes)),
      transfer.timeout_seconds);
  if (!received.ok()) return received.status();
  if (*received == transfer.size_bytes) return absl::OkStatus();
  absl::Status status =
      absl::FailedPreconditionError(StrCat("link to ", transfer.link->peer(), ": a tensor of ",
                                           *received, " bytes instead of ", transfer.size_bytes));
  transfer.link->Shutdown(status);
  return status;
}

absl::Status Enqueue(const char* name, absl::Status (*work)(const Transfer&),
                     const TensorView& values, Link& link, double timeout_seconds, Stream& stream) {
  const int64_t size_bytes = values.Elements() * SizeInBytes(values.dtype);
  if (size_bytes > 0 && !values.IsDense()) {
    return absl::InvalidArgumentError(StrCat(name, ": the tensor must be dense"));
  }
  if (size_bytes > kMaxPayloadBytes) {
    return absl::InvalidArgumentError(
        StrCat(name, ": a tensor of ", size_bytes, " bytes; at most ", kMaxPayloadBytes));
  }
  return EnqueueHost(stream, work,
                     Transfer{.link = &link,
                              .data = values.data,
                              .size_bytes = size_bytes,
                              .timeout_seconds = timeout_seconds});
}

}  // namespace

absl::Status SendTensor(const TensorView& values, Link& link, double timeout_seconds,
                        Stream& stream) {
  return Enqueue("SendTensor", &Send, values, link, timeout_seconds, stream);
}

absl::Status ReceiveTensor(const TensorView& values, Link& link, double timeout_seconds,
                           Stream& stream) {
  return Enqueue("ReceiveTensor", &Receive, values, link, timeout_seconds, stream);
}

}  // namespace tessera::kernels
