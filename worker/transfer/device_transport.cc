#include "worker/transfer/device_transport.h"

#include <functional>
#include <utility>

#include "third_party/absl/str_cat.h"
#include "worker/transfer/device_offer.h"

namespace tessera::worker {
namespace {

// Whether a wait for the peer's device is futile.
std::function<bool()> Ended(const kernels::Link& link) {
  return [&link] { return !link.status().ok() || link.PeerClosed(); };
}

// The turn of one connection on a pair of devices; given back at its end.
class Turn {
 public:
  explicit Turn(std::shared_ptr<PairedDevice> device) : device_(std::move(device)) {}
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;
  ~Turn() { Give(); }

  absl::Status Take(double timeout_seconds) {
    absl::Status taken = taken_ ? absl::OkStatus() : device_->TakeTurn(timeout_seconds);
    taken_ = taken_ || taken.ok();
    return taken;
  }
  void Give() {
    if (std::exchange(taken_, false)) device_->GiveTurn();
  }
  PairedDevice& device() const { return *device_; }

 private:
  const std::shared_ptr<PairedDevice> device_;
  bool taken_ = false;
};

class DeviceChannel final : public KvSendChannel {
 public:
  DeviceChannel(kernels::Link* link, std::shared_ptr<PairedDevice> device)
      : KvSendChannel(link), turn_(std::move(device)) {}

  KvTransport transport() const override { return KvTransport::kNccl; }
  int64_t max_piece_bytes() const override { return turn_.device().memory_bytes(); }
  bool on_device() const override { return true; }

  // Waits for the pair, which nobody else has until the piece was sent.
  absl::StatusOr<absl::Span<std::byte>> Prepare(int64_t bytes, double timeout_seconds) override {
    if (bytes > max_piece_bytes()) {
      return absl::InvalidArgumentError(
          StrCat("a KV piece of ", bytes, " bytes; devices exchange at most ", max_piece_bytes()));
    }
    if (absl::Status taken = turn_.Take(timeout_seconds); !taken.ok()) return taken;
    bytes_ = static_cast<size_t>(bytes);
    return turn_.device().devices().memory().subspan(0, bytes_);
  }

  absl::Status Send(const v1::KvPiece& piece, double timeout_seconds) override {
    absl::Status sent = SendElsewhere(KvFrame::kPieceOnDevice, piece, bytes_, timeout_seconds);
    if (!sent.ok()) return sent;
    sent = link()
               .Receive(FrameType(KvFrame::kSendOnDevice), absl::Span<std::byte>(), timeout_seconds)
               .status();
    if (sent.ok()) {
      sent = turn_.device().devices().Send(static_cast<int64_t>(bytes_), timeout_seconds,
                                           Ended(link()));
    }
    turn_.Give();
    return sent;
  }

 private:
  Turn turn_;
  size_t bytes_ = 0;  // of the piece that is prepared
};

class DeviceReceiver final : public KvReceiver {
 public:
  DeviceReceiver(kernels::Link* link, DevicePairs* pairs, uint64_t sender)
      : link_(link), pairs_(pairs), sender_(sender) {}

  bool Takes(KvFrame type) const override {
    return type == KvFrame::kDeviceOffer || type == KvFrame::kPieceOnDevice;
  }
  bool on_device() const override { return turn_.has_value(); }

  absl::StatusOr<std::optional<KvFramedPiece>> Take(KvFrame type, const std::string& payload,
                                                    double) override {
    if (type == KvFrame::kDeviceOffer) {
      if (absl::Status answered = Answer(payload); !answered.ok()) return answered;
      return std::optional<KvFramedPiece>();
    }
    if (!turn_.has_value()) return Misplaced(FrameType(type));
    PairedDevice& device = turn_->device();
    auto piece = PieceElsewhere(payload, device.devices().memory().data(), device.memory_bytes());
    if (!piece.ok()) return piece.status();
    piece->on_device = true;
    bytes_ = static_cast<int64_t>(piece->elements.size());
    return std::optional<KvFramedPiece>(*piece);
  }

  absl::Status Fetch(double timeout_seconds) override {
    if (absl::Status taken = turn_->Take(timeout_seconds); !taken.ok()) return taken;
    if (!turn_->device().usable())
      return absl::UnavailableError("KV of another sequence failed on the pair of devices");
    // Before the call, in which either side may first have to find the other.
    const absl::Status said = link_->Send(FrameType(KvFrame::kSendOnDevice),
                                          absl::Span<const std::byte>(), timeout_seconds);
    if (!said.ok()) return said;
    return turn_->device().devices().Receive(bytes_, timeout_seconds, Ended(*link_));
  }

  absl::Status Release(double) override {
    turn_->Give();
    return absl::OkStatus();
  }

 private:
  absl::Status Answer(const std::string& offer) {
    auto answered = AnswerDeviceOffer(*link_, pairs_, sender_, offer);
    if (absl::IsDeadlineExceeded(answered.status()))
      return absl::UnavailableError(answered.status().message());
    if (!answered.ok()) return answered.status();
    turn_.reset();
    if (*answered != nullptr) turn_.emplace(*std::move(answered));
    return absl::OkStatus();
  }

  kernels::Link* const link_;
  DevicePairs* const pairs_;
  const uint64_t sender_;
  std::optional<Turn> turn_;  // on the device that both agreed on; none: it sends nothing
  int64_t bytes_ = 0;         // of the piece taken last
};

}  // namespace

std::unique_ptr<KvSendChannel> OpenDeviceChannel(kernels::Link* link,
                                                 std::shared_ptr<PairedDevice> device) {
  return std::make_unique<DeviceChannel>(link, std::move(device));
}

std::unique_ptr<KvReceiver> MakeDeviceReceiver(kernels::Link* link, DevicePairs* pairs,
                                               uint64_t sender) {
  return std::make_unique<DeviceReceiver>(link, pairs, sender);
}

}  // namespace tessera::worker
