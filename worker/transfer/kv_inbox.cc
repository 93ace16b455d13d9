#include "worker/transfer/kv_inbox.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <random>
#include <utility>

#include "proto/protocol.h"
#include "third_party/absl/str_cat.h"
#include "third_party/spdlog/log.h"

namespace tessera::worker {
namespace {

constexpr double kHandshakeSeconds = 5;
constexpr std::chrono::milliseconds kLeaseTick(500);
// A wait for the next piece is cut so that a lease that ended is noticed.
constexpr double kSliceSeconds = 0.5;
// For elements that a device is to send, once it is said that they come.
constexpr double kDeviceSeconds = 10;
constexpr int64_t kTicketBytes = 16;

std::string Text(const absl::Status& status) { return std::string(StdView(status.message())); }

std::string DrawTicket() {
  std::random_device random;
  std::string ticket(kTicketBytes, '\0');
  for (size_t i = 0; i < ticket.size(); i += sizeof(uint32_t)) {
    const uint32_t word = random();
    std::memcpy(ticket.data() + i, &word, sizeof word);
  }
  return ticket;
}

absl::Status Unknown() {
  return absl::FailedPreconditionError(
      "the KV ticket is not known here: it was used, its lease ended, or it is another worker's");
}

}  // namespace

absl::StatusOr<std::unique_ptr<KvInbox>> KvInbox::Start(KvInboxOptions options) {
  std::unique_ptr<KvInbox> inbox(new KvInbox(std::move(options)));
  KvInbox* raw = inbox.get();
  v1::LinkIdentity identity;
  identity.set_protocol_version(kProtocolVersion);
  identity.set_incarnation(inbox->options_.incarnation);
  kernels::HandshakeOptions handshake;
  handshake.token = inbox->options_.cluster_token;
  handshake.identity = identity.SerializeAsString();
  handshake.verify = [raw](std::string_view peer) { return raw->Verify(std::string(peer)); };
  handshake.timeout_seconds = kHandshakeSeconds;
  auto server = kernels::LinkServer::Start(
      {.listen = inbox->options_.listen,
       .handshake = std::move(handshake),
       .tls = inbox->options_.tls,
       .expects = [raw](std::string_view peer) { return raw->Expects(std::string(peer)); },
       .on_link = [raw](kernels::AcceptedLink accepted) { raw->Take(std::move(accepted)); },
       .on_refused = [raw](const absl::Status& status) { raw->CountRefused(status); }});
  if (!server.ok()) return server.status();
  inbox->server_ = *std::move(server);
  inbox->lease_thread_ = std::thread([raw] { raw->WatchLeases(); });
  return inbox;
}

KvInbox::~KvInbox() {
  if (server_ != nullptr) server_->Stop();
  std::vector<std::unique_ptr<Connection>> connections;
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
    connections = std::move(connections_);
  }
  changed_.notify_all();
  if (lease_thread_.joinable()) lease_thread_.join();
  for (const auto& connection : connections) {
    connection->link->Shutdown(absl::CancelledError("the worker is shutting down"));
    connection->thread.join();
  }
}

int64_t KvInbox::refused() const {
  std::lock_guard lock(mutex_);
  return refused_;
}

void KvInbox::CountRefused(const absl::Status& status) {
  if (const std::optional<int64_t> left_out = refusals_.Pass(Clock::now()); left_out.has_value()) {
    Logger("worker").warn("KV was refused: {} ({} more since the last such line)", Text(status),
                          *left_out);
  }
  std::lock_guard lock(mutex_);
  ++refused_;
}

std::string KvInbox::Expect(KvPartRoom room) {
  auto expected = std::make_shared<Expected>(std::move(room), options_.coder);
  expected->until = Clock::now() + expected->lease;
  std::string ticket = DrawTicket();
  std::lock_guard lock(mutex_);
  expected_.emplace(ticket, std::move(expected));
  return ticket;
}

void KvInbox::Forget(const std::string& ticket) {
  std::unique_lock lock(mutex_);
  const auto found = expected_.find(ticket);
  if (found == expected_.end()) return;
  const std::shared_ptr<Expected> expected = found->second;
  if (expected->ending) {
    changed_.wait(lock, [&] { return !expected_.contains(ticket); });
    return;
  }
  expected->forgotten = true;
  expected_.erase(found);
  changed_.wait(lock, [&] { return !expected->writing; });
}

std::shared_ptr<KvInbox::Expected> KvInbox::FindLocked(const std::string& ticket) const {
  const auto found = expected_.find(ticket);
  return found == expected_.end() || found->second->ending ? nullptr : found->second;
}

absl::Status KvInbox::CheckIdentity(const v1::LinkIdentity& peer) const {
  if (peer.kind() != v1::LINK_KIND_KV)
    return absl::InvalidArgumentError("the link is not one for KV");
  if (peer.protocol_version() != kProtocolVersion) {
    return absl::FailedPreconditionError(StrCat("the link's other end speaks protocol version ",
                                                peer.protocol_version(), ", this worker ",
                                                kProtocolVersion));
  }
  if (peer.peer_incarnation() != options_.incarnation) {
    return absl::FailedPreconditionError("the link is for another process than this worker");
  }
  return absl::OkStatus();
}

absl::Status KvInbox::Verify(const std::string& identity) {
  v1::LinkIdentity peer;
  if (!peer.ParseFromString(identity)) peer.Clear();
  if (absl::Status status = CheckIdentity(peer); !status.ok()) return status;
  std::lock_guard lock(mutex_);
  const std::shared_ptr<Expected> expected = FindLocked(peer.ticket());
  if (expected == nullptr || std::exchange(expected->connected, true)) return Unknown();
  return absl::OkStatus();
}

bool KvInbox::Expects(const std::string& identity) const {
  v1::LinkIdentity peer;
  if (!peer.ParseFromString(identity) || !CheckIdentity(peer).ok()) return false;
  std::lock_guard lock(mutex_);
  const std::shared_ptr<Expected> expected = FindLocked(peer.ticket());
  return expected != nullptr && !expected->connected;
}

void KvInbox::Take(kernels::AcceptedLink accepted) {
  v1::LinkIdentity peer;
  peer.ParseFromString(accepted.identity);
  std::lock_guard lock(mutex_);
  if (stopping_) return;
  std::erase_if(connections_, [](const std::unique_ptr<Connection>& connection) {
    if (connection->over) connection->thread.join();
    return connection->over;
  });
  Connection* connection = connections_.emplace_back(std::make_unique<Connection>()).get();
  connection->link = std::move(accepted.link);
  connection->thread = std::thread([this, connection, peer] {
    Receive(connection->link.get(), peer.ticket(), peer.incarnation());
    std::lock_guard over(mutex_);
    connection->over = true;
  });
}

void KvInbox::WatchLeases() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    changed_.wait_for(lock, kLeaseTick, [this] { return stopping_; });
    lock.unlock();
    EndLeases();
    lock.lock();
  }
}

void KvInbox::EndLeases() {
  std::vector<std::string> ended;
  {
    std::lock_guard lock(mutex_);
    const auto now = Clock::now();
    for (const auto& [ticket, expected] : expected_) {
      if (expected->until < now && !expected->writing) ended.push_back(ticket);
    }
  }
  for (const std::string& ticket : ended) {
    Finish(ticket, absl::DeadlineExceededError("the lease ended: no KV came in time"));
  }
}

void KvInbox::NoteThroughHost(uint64_t sender) {
  std::lock_guard lock(mutex_);
  if (!through_host_.insert(sender).second) return;
  Logger("worker").info(
      "KV of worker {} comes through the hosts: it has no NCCL, was given another --kv-transport, "
      "or says why in its log",
      sender);
}

void KvInbox::Receive(kernels::Link* link, const std::string& ticket, uint64_t sender) {
  absl::Status status;
  bool complete = false;
  KvReceiveChannel channel(link, options_.pairs, sender);
  while (status.ok() && !complete) {
    const absl::StatusOr<KvFramedPiece> piece = channel.Receive(kSliceSeconds);
    if (absl::IsDeadlineExceeded(piece.status()) && link->status().ok()) {
      std::lock_guard lock(mutex_);
      if (FindLocked(ticket) == nullptr) status = Unknown();
    } else if (!piece.ok()) {
      status = piece.status();
    } else {
      if (options_.pairs != nullptr && !piece->on_device) NoteThroughHost(sender);
      status = TakePiece(ticket, *piece, channel, &complete);
      if (status.ok() && (piece->on_device || !complete))
        status = channel.Release(kHandshakeSeconds);
    }
  }
  if (absl::IsInvalidArgument(status)) CountRefused(status);
  // Before the sender hears of it, whose coordinator may be quick.
  Finish(ticket, status);
  if (status.ok()) {
    const std::byte staged{1};
    link->Send(static_cast<uint16_t>(KvFrame::kComplete),
               absl::Span<const std::byte>(
                   &staged, options_.coder->stages() && !channel.on_device() ? 1 : 0),
               kHandshakeSeconds)
        .IgnoreError();  // the sender's own wait tells it
  } else {
    link->Shutdown(status);
  }
}

absl::Status KvInbox::AwaitElements(const std::string& ticket, const KvFramedPiece& framed,
                                    KvReceiveChannel& channel) {
  {
    std::lock_guard lock(mutex_);
    const std::shared_ptr<Expected> expected = FindLocked(ticket);
    const absl::Status awaited =
        expected == nullptr ? Unknown() : expected->writer.Read(framed).status();
    if (!awaited.ok()) return awaited;
  }
  absl::Status came = channel.Fetch(kDeviceSeconds);
  if (!came.ok()) Logger("worker").warn("KV from another device did not come: {}", Text(came));
  return came;
}

absl::Status KvInbox::TakePiece(const std::string& ticket, const KvFramedPiece& framed,
                                KvReceiveChannel& channel, bool* complete) {
  absl::Status status =
      framed.on_device ? AwaitElements(ticket, framed, channel) : absl::OkStatus();
  if (!status.ok()) return status;
  std::shared_ptr<Expected> expected;
  absl::StatusOr<KvPartWriter::Piece> piece;
  {
    std::lock_guard lock(mutex_);
    expected = FindLocked(ticket);
    if (expected == nullptr) return Unknown();
    piece = expected->writer.Read(framed);
    if (!piece.ok()) return piece.status();
    expected->writing = true;
  }
  absl::Status written = expected->writer.Write(*piece);
  if (!written.ok()) Logger("worker").error("KV that came cannot be kept: {}", Text(written));
  std::lock_guard lock(mutex_);
  expected->until = Clock::now() + expected->lease;
  expected->writing = false;
  *complete = expected->writer.complete();
  changed_.notify_all();
  return expected->forgotten ? Unknown() : written;
}

void KvInbox::Finish(const std::string& ticket, const absl::Status& status) {
  std::shared_ptr<Expected> expected;
  {
    std::lock_guard lock(mutex_);
    expected = FindLocked(ticket);
    // A piece that came just as the lease ended goes before.
    if (expected == nullptr || expected->writing) return;
    expected->ending = true;
  }
  if (expected->done) expected->done(status);
  {
    std::lock_guard lock(mutex_);
    expected_.erase(ticket);
  }
  changed_.notify_all();
}

}  // namespace tessera::worker
