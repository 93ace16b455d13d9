#include "worker/transfer/socket_transport.h"

#include <utility>
#include <vector>

namespace tessera::worker {
namespace {

class SocketChannel final : public KvSendChannel {
 public:
  explicit SocketChannel(kernels::Link* link) : KvSendChannel(link) {}

  KvTransport transport() const override {
    return link_is_unix() ? KvTransport::kUnix : KvTransport::kTcp;
  }
  int64_t max_piece_bytes() const override { return kMaxPieceBytes; }
  absl::StatusOr<absl::Span<std::byte>> Prepare(int64_t bytes, double) override {
    elements_.resize(static_cast<size_t>(bytes));
    return absl::MakeSpan(elements_);
  }
  absl::Status Send(const v1::KvPiece& piece, double timeout_seconds) override {
    return SendPiece(piece, elements_, timeout_seconds);
  }

 private:
  std::vector<std::byte> elements_;
};

class SocketReceiver final : public KvReceiver {
 public:
  bool Takes(KvFrame type) const override { return type == KvFrame::kPiece; }
  absl::StatusOr<std::optional<KvFramedPiece>> Take(KvFrame, const std::string& payload,
                                                    double) override {
    absl::StatusOr<KvFramedPiece> piece = SplitPiece(payload);
    if (!piece.ok()) return piece.status();
    return std::optional<KvFramedPiece>(*piece);
  }
};

}  // namespace

std::unique_ptr<KvSendChannel> OpenSocketChannel(kernels::Link* link) {
  return std::make_unique<SocketChannel>(link);
}

std::unique_ptr<KvReceiver> MakeSocketReceiver() { return std::make_unique<SocketReceiver>(); }

}  // namespace tessera::worker
