#include "worker/transfer/kv_inbox.h"

#include <algorithm>
#include <cstring>
#include <random>
#include <utility>

#include "proto/protocol.h"
#include "third_party/absl/str_cat.h"
#include "third_party/spdlog/log.h"
#include "worker/transfer/kv_codec.h"

namespace tessera::worker {
namespace {

constexpr double kHandshakeSeconds = 5;
constexpr std::chrono::milliseconds kLeaseTick(500);
// A wait for the next piece is cut so that a lease that ended is noticed.
constexpr double kSliceSeconds = 0.5;
constexpr int64_t kTicketBytes = 16;
constexpr int64_t kMaxHeaderBytes = 1 << 12;

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
  Logger("worker").warn("KV was refused: {}", Text(status));
  std::lock_guard lock(mutex_);
  ++refused_;
}

std::string KvInbox::Expect(KvPartRoom room) {
  auto expected = std::make_shared<Expected>();
  const int64_t parts = int64_t{room.part.layers.size()} * room.part.kv_heads.size();
  expected->next.assign(static_cast<size_t>(parts), room.first);
  expected->missing = parts;
  expected->until = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                       std::chrono::duration<double>(room.lease_seconds));
  expected->room = std::move(room);
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

absl::Status KvInbox::Verify(const std::string& identity) {
  v1::LinkIdentity peer;
  if (!peer.ParseFromString(identity) || peer.kind() != v1::LINK_KIND_KV) {
    return absl::InvalidArgumentError("the link is not one for KV");
  }
  if (peer.protocol_version() != kProtocolVersion) {
    return absl::FailedPreconditionError(StrCat("the link's other end speaks protocol version ",
                                                peer.protocol_version(), ", this worker ",
                                                kProtocolVersion));
  }
  if (peer.peer_incarnation() != options_.incarnation) {
    return absl::FailedPreconditionError("the link is for another process than this worker");
  }
  std::lock_guard lock(mutex_);
  const std::shared_ptr<Expected> expected = FindLocked(peer.ticket());
  if (expected == nullptr || std::exchange(expected->connected, true)) return Unknown();
  return absl::OkStatus();
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
  connection->thread = std::thread([this, connection, ticket = peer.ticket()] {
    Receive(connection->link.get(), ticket);
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

void KvInbox::Receive(kernels::Link* link, const std::string& ticket) {
  absl::Status status;
  bool complete = false;
  std::string payload;
  while (status.ok() && !complete) {
    const auto type = link->ReceiveAny(kMaxPieceBytes + kMaxHeaderBytes, &payload, kSliceSeconds);
    if (absl::IsDeadlineExceeded(type.status()) && link->status().ok()) {
      std::lock_guard lock(mutex_);
      if (FindLocked(ticket) == nullptr) status = Unknown();
    } else if (!type.ok()) {
      status = type.status();
    } else if (*type != static_cast<uint16_t>(KvFrame::kPiece)) {
      status = absl::InvalidArgumentError(StrCat("a frame of type ", *type, " among KV"));
    } else {
      status = TakePiece(ticket, payload, &complete);
    }
  }
  if (absl::IsInvalidArgument(status)) CountRefused(status);
  // Before the sender hears of it, whose coordinator may be quick.
  Finish(ticket, status);
  if (status.ok()) {
    link->Send(static_cast<uint16_t>(KvFrame::kComplete), absl::Span<const std::byte>(),
               kHandshakeSeconds)
        .IgnoreError();  // the sender's own wait tells it
  } else {
    link->Shutdown(status);
  }
}

absl::Status KvInbox::CheckPiece(const Expected& expected, const v1::KvPiece& piece,
                                 int64_t bytes) const {
  const KvPartRoom& room = expected.room;
  const kvcache::KvShare& share = room.part;
  const auto inside = [](const v1::Range& part, const kvcache::IndexRange& whole) {
    return part.begin() >= whole.begin && part.begin() < part.end() && part.end() <= whole.end;
  };
  if (!inside(piece.layers(), share.layers) || !inside(piece.kv_heads(), share.kv_heads) ||
      piece.first_token() < room.first || piece.first_token() >= piece.end_token() ||
      piece.end_token() > room.end) {
    return absl::InvalidArgumentError(
        StrCat("a KV piece of layers ", piece.layers().begin(), " to ", piece.layers().end(),
               ", heads ", piece.kv_heads().begin(), " to ", piece.kv_heads().end(), ", tokens ",
               piece.first_token(), " to ", piece.end_token(), " lies outside what is expected"));
  }
  const auto type = ToKvType(piece.dtype());
  if (!type.ok()) return type.status();
  if (std::max(piece.codec(), v1::KV_CODEC_RAW) != std::max(room.codec, v1::KV_CODEC_RAW)) {
    return absl::InvalidArgumentError(StrCat("a KV piece in ", v1::KvCodec_Name(piece.codec()),
                                             "; expected is ", v1::KvCodec_Name(room.codec)));
  }
  const int64_t group = TokensPerGroup(room.codec);
  if ((piece.first_token() - room.first) % group != 0 ||
      ((piece.end_token() - room.first) % group != 0 && piece.end_token() != room.end)) {
    return absl::InvalidArgumentError(StrCat("a KV piece of tokens ", piece.first_token(), " to ",
                                             piece.end_token(), " cuts a group of ", group));
  }
  const kvcache::KvShare part = {ToIndexRange(piece.layers()), ToIndexRange(piece.kv_heads())};
  const int64_t wanted = KvPieceBytes(room.codec, part, piece.end_token() - piece.first_token(),
                                      room.pool.head_dim, *type);
  if (bytes != wanted) {
    return absl::InvalidArgumentError(
        StrCat("a KV piece of ", bytes, " bytes; its elements take ", wanted));
  }
  for (auto layer = piece.layers().begin(); layer < piece.layers().end(); ++layer) {
    for (auto head = piece.kv_heads().begin(); head < piece.kv_heads().end(); ++head) {
      const int64_t part =
          (layer - share.layers.begin) * share.kv_heads.size() + (head - share.kv_heads.begin);
      if (expected.next[part] == piece.first_token()) continue;
      return absl::InvalidArgumentError(StrCat("a KV piece of layer ", layer, ", head ", head,
                                               " begins at token ", piece.first_token(),
                                               "; the next one expected is ", expected.next[part]));
    }
  }
  return absl::OkStatus();
}

absl::Status KvInbox::TakePiece(const std::string& ticket, std::string_view payload,
                                bool* complete) {
  uint32_t header = 0;
  v1::KvPiece piece;
  if (payload.size() < sizeof header) return absl::InvalidArgumentError("a KV piece is cut short");
  std::memcpy(&header, payload.data(), sizeof header);
  payload.remove_prefix(sizeof header);
  if (header > payload.size() || !piece.ParseFromArray(payload.data(), static_cast<int>(header))) {
    return absl::InvalidArgumentError("the header of a KV piece cannot be read");
  }
  payload.remove_prefix(header);
  std::shared_ptr<Expected> expected;
  {
    std::lock_guard lock(mutex_);
    expected = FindLocked(ticket);
    if (expected == nullptr) return Unknown();
    const absl::Status checked = CheckPiece(*expected, piece, static_cast<int64_t>(payload.size()));
    if (!checked.ok()) return checked;
    expected->writing = true;
  }
  const KvPartRoom& room = expected->room;
  const kvcache::IndexRange layers = ToIndexRange(piece.layers());
  const kvcache::IndexRange heads = ToIndexRange(piece.kv_heads());
  DecodeKv(
      room.codec, {reinterpret_cast<const std::byte*>(payload.data()), payload.size()},
      *ToKvType(piece.dtype()), {layers, heads},
      kvcache::SlotRuns(room.table, room.pool.block_tokens, piece.first_token(), piece.end_token()),
      room.pool);
  std::lock_guard lock(mutex_);
  const kvcache::KvShare& share = room.part;
  for (int32_t layer = layers.begin; layer < layers.end; ++layer) {
    for (int32_t head = heads.begin; head < heads.end; ++head) {
      const int64_t part = int64_t{layer - share.layers.begin} * share.kv_heads.size() +
                           (head - share.kv_heads.begin);
      expected->next[part] = piece.end_token();
      if (piece.end_token() == room.end) --expected->missing;
    }
  }
  expected->until = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                       std::chrono::duration<double>(room.lease_seconds));
  expected->writing = false;
  *complete = expected->missing == 0;
  changed_.notify_all();
  return expected->forgotten ? Unknown() : absl::OkStatus();
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
  if (expected->room.done) expected->room.done(status);
  {
    std::lock_guard lock(mutex_);
    expected_.erase(ticket);
  }
  changed_.notify_all();
}

}  // namespace tessera::worker
