#include "worker/transfer/kv_channel.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "worker/transfer/device_transport.h"
#include "worker/transfer/shared_memory_transport.h"
#include "worker/transfer/socket_transport.h"

namespace tessera::worker {
namespace {

constexpr int64_t kMaxHeaderBytes = 1 << 12;

std::vector<std::unique_ptr<KvReceiver>> ReceiversOf(kernels::Link* link, DevicePairs* pairs,
                                                     uint64_t sender) {
  std::vector<std::unique_ptr<KvReceiver>> receivers;
  receivers.push_back(MakeSocketReceiver());
  receivers.push_back(MakeSharedMemoryReceiver(link));
  receivers.push_back(MakeDeviceReceiver(link, pairs, sender));
  return receivers;
}

}  // namespace

KvReceiveChannel::KvReceiveChannel(kernels::Link* link, DevicePairs* pairs, uint64_t sender)
    : link_(link), receivers_(ReceiversOf(link, pairs, sender)), last_(receivers_.front().get()) {}

absl::StatusOr<KvFramedPiece> KvReceiveChannel::Receive(double timeout_seconds) {
  for (;;) {
    const auto type =
        link_->ReceiveAny(kMaxPieceBytes + kMaxHeaderBytes, &payload_, timeout_seconds);
    if (!type.ok()) return type.status();
    const auto frame = static_cast<KvFrame>(*type);
    const auto receiver = std::find_if(receivers_.begin(), receivers_.end(),
                                       [&](const auto& one) { return one->Takes(frame); });
    if (receiver == receivers_.end()) return Misplaced(*type);
    auto piece = (*receiver)->Take(frame, payload_, timeout_seconds);
    if (!piece.ok()) return piece.status();
    if (!piece->has_value()) continue;
    last_ = receiver->get();
    return **piece;
  }
}

bool KvReceiveChannel::on_device() const {
  return std::any_of(receivers_.begin(), receivers_.end(),
                     [](const auto& one) { return one->on_device(); });
}

}  // namespace tessera::worker
