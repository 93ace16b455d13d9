#include "worker/transfer/kv_outbox.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "kernels/links/handshake.h"
#include "kernels/links/link_address.h"
#include "kernels/links/link_socket.h"
#include "kvcache/raw_codec.h"
#include "proto/protocol.h"
#include "third_party/absl/str_cat.h"
#include "worker/transfer/kv_inbox.h"

namespace tessera::worker {
namespace {

constexpr double kConnectSeconds = 5;

v1::DataType ToProto(kvcache::KvType type) {
  return type == kvcache::KvType::kFloat32 ? v1::DATA_TYPE_FLOAT32 : v1::DATA_TYPE_BFLOAT16;
}

absl::Span<const std::byte> Bytes(const std::string& text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

}  // namespace

KvOutbox::KvOutbox(KvOutboxOptions options)
    : options_(std::move(options)), thread_([this] { Loop(); }) {}

KvOutbox::~KvOutbox() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
    if (link_ != nullptr) link_->Shutdown(absl::CancelledError("the worker is shutting down"));
  }
  changed_.notify_all();
  thread_.join();
}

void KvOutbox::Send(KvShipment shipment) {
  {
    std::lock_guard lock(mutex_);
    waiting_.push_back(std::move(shipment));
  }
  changed_.notify_all();
}

void KvOutbox::Drop(const void* owner) {
  const absl::Status reason = absl::CancelledError("the worker's plan changes");
  std::vector<KvShipment> dropped;
  std::unique_lock lock(mutex_);
  for (KvShipment& shipment : waiting_) {
    if (shipment.owner == owner) dropped.push_back(std::move(shipment));
  }
  std::erase_if(waiting_, [](const KvShipment& shipment) { return shipment.done == nullptr; });
  if (owner_ == owner) {
    dropped_ = true;
    if (link_ != nullptr) link_->Shutdown(reason);
  }
  changed_.wait(lock, [&] { return owner_ != owner; });
  lock.unlock();
  for (const KvShipment& shipment : dropped) shipment.done(reason);
}

int64_t KvOutbox::bytes_sent() const {
  std::lock_guard lock(mutex_);
  return bytes_sent_;
}

void KvOutbox::Loop() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return stopping_ || !waiting_.empty(); });
    if (waiting_.empty()) return;
    const KvShipment shipment = std::move(waiting_.front());
    waiting_.pop_front();
    owner_ = shipment.owner;
    dropped_ = false;
    lock.unlock();
    shipment.done(Ship(shipment));
    lock.lock();
    owner_ = nullptr;
    changed_.notify_all();
  }
}

absl::Status KvOutbox::Ship(const KvShipment& shipment) {
  const auto is_over = [this] { return stopping_ || dropped_; };
  const absl::Status over = absl::CancelledError("the worker's engine is taken down");
  {
    std::lock_guard lock(mutex_);
    if (is_over()) return over;
  }
  auto link = Dial(shipment.target);
  if (!link.ok()) return link.status();
  {
    std::lock_guard lock(mutex_);
    link_ = link->get();
    if (is_over()) link_->Shutdown(over);
  }
  const absl::Status status = SendPieces(shipment, link->get());
  std::lock_guard lock(mutex_);
  link_ = nullptr;
  bytes_sent_ += (*link)->counters().bytes_sent;
  return status;
}

absl::StatusOr<std::unique_ptr<kernels::Link>> KvOutbox::Dial(const v1::KvTarget& target) const {
  v1::LinkIdentity identity;
  identity.set_protocol_version(kProtocolVersion);
  identity.set_incarnation(options_.incarnation);
  identity.set_peer_incarnation(target.incarnation());
  identity.set_kind(v1::LINK_KIND_KV);
  identity.set_ticket(target.ticket());
  kernels::HandshakeOptions handshake;
  handshake.token = options_.cluster_token;
  handshake.identity = identity.SerializeAsString();
  handshake.timeout_seconds = kConnectSeconds;
  handshake.verify = [&target](std::string_view text) {
    v1::LinkIdentity peer;
    if (peer.ParseFromString(std::string(text)) && peer.incarnation() == target.incarnation()) {
      return absl::OkStatus();
    }
    return absl::FailedPreconditionError("another process than the KV is for answers there");
  };
  absl::Status last = absl::UnavailableError("it named no address for KV");
  for (const std::string& text : target.addresses()) {
    const auto address = kernels::ParseLinkAddress(text);
    if (!address.ok()) return address.status();
    auto link = kernels::ConnectLink(*address, kConnectSeconds);
    if (!link.ok()) {
      last = link.status();
      continue;
    }
    const auto peer = HandshakeAsClient(**link, handshake);
    if (peer.ok()) return link;
    return peer.status();  // the ticket is spent
  }
  return last;
}

absl::Status KvOutbox::SendPieces(const KvShipment& shipment, kernels::Link* link) {
  const kvcache::KvPool& pool = shipment.pool;
  const int64_t first = shipment.target.first_token();
  std::vector<std::byte> elements;
  v1::KvPiece piece;
  piece.set_dtype(ToProto(pool.type));
  piece.mutable_kv_heads()->set_begin(pool.share.kv_heads.begin);
  piece.mutable_kv_heads()->set_end(pool.share.kv_heads.end);
  for (int32_t layer = pool.share.layers.begin; layer < pool.share.layers.end; ++layer) {
    const kvcache::IndexRange layers = {layer, layer + 1};
    piece.mutable_layers()->set_begin(layers.begin);
    piece.mutable_layers()->set_end(layers.end);
    const int64_t token_bytes =
        kvcache::RawBytes(layers, pool.share.kv_heads, 1, pool.head_dim, pool.type);
    const int64_t most = std::max<int64_t>(1, kMaxPieceBytes / token_bytes);
    for (int64_t begin = first; begin < shipment.end; begin += most) {
      const int64_t end = std::min(begin + most, shipment.end);
      elements.resize(static_cast<size_t>((end - begin) * token_bytes));
      kvcache::EncodeRaw(pool, layers, pool.share.kv_heads,
                         kvcache::SlotRuns(shipment.table, pool.block_tokens, begin, end),
                         elements.data());
      piece.set_first_token(static_cast<int32_t>(begin));
      piece.set_end_token(static_cast<int32_t>(end));
      const std::string text = piece.SerializeAsString();
      const auto length = static_cast<uint32_t>(text.size());
      const absl::Span<const std::byte> parts[] = {
          {reinterpret_cast<const std::byte*>(&length), sizeof length}, Bytes(text), elements};
      const absl::Status sent = link->Send(static_cast<uint16_t>(KvFrame::kPiece),
                                           absl::MakeConstSpan(parts), options_.wait_seconds);
      if (!sent.ok()) return sent;
    }
  }
  const auto complete = link->Receive(static_cast<uint16_t>(KvFrame::kComplete),
                                      absl::Span<std::byte>(), options_.wait_seconds);
  return complete.status();
}

}  // namespace tessera::worker
