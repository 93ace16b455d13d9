#include "kernels/links/link.h"

#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "third_party/absl/str_cat.h"

namespace tessera::kernels {

struct Link::Pieces {
  std::array<iovec, kMaxParts + 1> list;
  int count = 0;
  int next = 0;
  bool moved = false;

  // Pieces without bytes are left out.
  void Append(const void* data, size_t size_bytes) {
    if (size_bytes > 0) list[count++] = {const_cast<void*>(data), size_bytes};
  }
  bool done() const { return next == count; }
  int64_t Bytes() const {
    size_t bytes = 0;
    for (int i = next; i < count; ++i) bytes += list[i].iov_len;
    return static_cast<int64_t>(bytes);
  }
  msghdr Message() {
    msghdr message = {};
    message.msg_iov = list.data() + next;
    message.msg_iovlen = static_cast<size_t>(count - next);
    return message;
  }
  // The first bytes that have not moved: the rest of a large piece where it lies, else as many as
  // `into` takes, there.
  absl::Span<const std::byte> Gather(absl::Span<std::byte> into) const {
    if (list[next].iov_len >= into.size())
      return {static_cast<const std::byte*>(list[next].iov_base), list[next].iov_len};
    size_t taken = 0;
    for (int i = next; i < count && taken < into.size(); ++i) {
      const size_t bytes = std::min(list[i].iov_len, into.size() - taken);
      std::memcpy(into.data() + taken, list[i].iov_base, bytes);
      taken += bytes;
    }
    return into.first(taken);
  }
  void Advance(size_t bytes) {
    moved = moved || bytes > 0;
    while (next < count && bytes >= list[next].iov_len) bytes -= list[next++].iov_len;
    if (bytes == 0) return;
    list[next].iov_base = static_cast<char*>(list[next].iov_base) + bytes;
    list[next].iov_len -= bytes;
  }
};

namespace {

// Room for one descriptor beside a message.
struct DescriptorBuffer {
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> bytes = {};

  void AttachTo(msghdr& message) {
    message.msg_control = bytes.data();
    message.msg_controllen = bytes.size();
  }
  void Put(msghdr& message, int fd) {
    AttachTo(message);
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(header), &fd, sizeof(int));
  }
  static FileDescriptor Take(msghdr& message) {
    for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr;
         header = CMSG_NXTHDR(&message, header)) {
      if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(header), sizeof(int));
      return FileDescriptor(fd);
    }
    return FileDescriptor();
  }
};

bool IsUnixSocket(int fd) {
  int domain = 0;
  socklen_t size = sizeof domain;
  return getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &size) == 0 && domain == AF_UNIX;
}

}  // namespace

Link::Link(FileDescriptor socket, std::string peer, std::unique_ptr<LinkTlsSession> tls)
    : socket_(std::move(socket)), tls_(std::move(tls)), peer_(std::move(peer)) {}

absl::Status Link::Send(uint16_t type, absl::Span<const absl::Span<const std::byte>> parts,
                        double timeout_seconds) {
  const Deadline deadline = DeadlineAfter(timeout_seconds);
  if (parts.size() > kMaxParts) {
    return absl::InvalidArgumentError(
        StrCat("a frame of ", parts.size(), " parts; at most ", kMaxParts));
  }
  int64_t payload_bytes = 0;
  for (const auto& part : parts) payload_bytes += static_cast<int64_t>(part.size());
  if (payload_bytes > kMaxPayloadBytes) {
    return absl::InvalidArgumentError(
        StrCat("a frame of ", payload_bytes, " bytes; at most ", kMaxPayloadBytes));
  }
  const EncodedFrameHeader header =
      EncodeFrameHeader({.type = type, .payload_bytes = payload_bytes});
  Pieces pieces;
  pieces.Append(header.data(), header.size());
  for (const auto& part : parts) pieces.Append(part.data(), part.size());
  const std::lock_guard lock(send_mutex_);
  return SendPieces(pieces, deadline, -1);
}

absl::Status Link::Send(uint16_t type, absl::Span<const std::byte> payload,
                        double timeout_seconds) {
  return Send(type, absl::MakeConstSpan(&payload, 1), timeout_seconds);
}

absl::StatusOr<int64_t> Link::Receive(uint16_t type, absl::Span<const absl::Span<std::byte>> parts,
                                      double timeout_seconds) {
  const Deadline deadline = DeadlineAfter(timeout_seconds);
  if (parts.size() > kMaxParts) {
    return absl::InvalidArgumentError(
        StrCat("a frame of ", parts.size(), " parts; at most ", kMaxParts));
  }
  const std::lock_guard lock(receive_mutex_);
  absl::StatusOr<FrameHeader> header = ReceiveHeader(deadline, nullptr);
  if (!header.ok()) return header.status();
  if (header->type != type) {
    return Fail(absl::StatusCode::kFailedPrecondition,
                StrCat("a frame of type ", header->type, " instead of ", type));
  }
  Pieces pieces;
  int64_t left_bytes = header->payload_bytes;
  for (const auto& part : parts) {
    const auto bytes = std::min(left_bytes, static_cast<int64_t>(part.size()));
    pieces.Append(part.data(), static_cast<size_t>(bytes));
    left_bytes -= bytes;
  }
  if (left_bytes > 0) {
    return Fail(absl::StatusCode::kFailedPrecondition,
                StrCat("a frame of type ", type, " with ", header->payload_bytes, " bytes where ",
                       header->payload_bytes - left_bytes, " were expected at most"));
  }
  absl::Status status = ReceivePieces(pieces, deadline, /*frame_begun=*/true, nullptr);
  if (!status.ok()) return status;
  if (waited_for_frame_ && header->payload_bytes >= kTimedPayloadBytes) {
    const auto time = std::chrono::steady_clock::now() - frame_began_;
    own_.AddTimed(header->payload_bytes, time);
    if (total_ != nullptr) total_->AddTimed(header->payload_bytes, time);
  }
  return header->payload_bytes;
}

absl::StatusOr<int64_t> Link::Receive(uint16_t type, absl::Span<std::byte> memory,
                                      double timeout_seconds) {
  return Receive(type, absl::MakeConstSpan(&memory, 1), timeout_seconds);
}

absl::StatusOr<uint16_t> Link::ReceiveAny(int64_t max_payload_bytes, std::string* payload,
                                          double timeout_seconds) {
  const Deadline deadline = DeadlineAfter(timeout_seconds);
  const std::lock_guard lock(receive_mutex_);
  absl::StatusOr<FrameHeader> header = ReceiveHeader(deadline, nullptr);
  if (!header.ok()) return header.status();
  if (header->payload_bytes > max_payload_bytes) {
    return Fail(absl::StatusCode::kInvalidArgument,
                StrCat("a frame of type ", header->type, " with ", header->payload_bytes,
                       " bytes; at most ", max_payload_bytes, " here"));
  }
  payload->resize(static_cast<size_t>(header->payload_bytes));
  Pieces pieces;
  pieces.Append(payload->data(), payload->size());
  absl::Status status = ReceivePieces(pieces, deadline, /*frame_begun=*/true, nullptr);
  if (!status.ok()) return status;
  return header->type;
}

absl::Status Link::SendDescriptor(int fd, double timeout_seconds) {
  if (!IsUnixSocket(socket())) {
    return absl::UnimplementedError(
        StrCat("link to ", peer_, ": files can't be passed over this kind of socket"));
  }
  const EncodedFrameHeader header = EncodeFrameHeader({.type = kDescriptorFrame});
  Pieces pieces;
  pieces.Append(header.data(), header.size());
  const std::lock_guard lock(send_mutex_);
  return SendPieces(pieces, DeadlineAfter(timeout_seconds), fd);
}

absl::StatusOr<FileDescriptor> Link::ReceiveDescriptor(double timeout_seconds) {
  const std::lock_guard lock(receive_mutex_);
  FileDescriptor descriptor;
  absl::StatusOr<FrameHeader> header = ReceiveHeader(DeadlineAfter(timeout_seconds), &descriptor);
  if (!header.ok()) return header.status();
  if (header->type != kDescriptorFrame || header->payload_bytes != 0 || !descriptor.valid()) {
    return Fail(absl::StatusCode::kFailedPrecondition,
                StrCat("a frame of type ", header->type, " instead of an open file"));
  }
  return descriptor;
}

absl::StatusOr<FrameHeader> Link::ReceiveHeader(Deadline deadline, FileDescriptor* descriptor) {
  EncodedFrameHeader bytes;
  Pieces pieces;
  pieces.Append(bytes.data(), bytes.size());
  // Set again by the first wait for the header. Only then was the receiver there first, and the
  // time from the first byte to the last is that of the transfer.
  waited_for_frame_ = false;
  absl::Status status = ReceivePieces(pieces, deadline, /*frame_begun=*/false, descriptor);
  if (!status.ok()) return status;
  absl::StatusOr<FrameHeader> header = ParseFrameHeader(bytes);
  if (!header.ok()) return Fail(header.status().code(), StdView(header.status().message()));
  return header;
}

absl::Status Link::SendPieces(Pieces& pieces, Deadline deadline, int descriptor) {
  if (tls_ != nullptr) return SendEncrypted(pieces, deadline);
  while (true) {
    if (failed_.load(std::memory_order_acquire)) return status();
    if (pieces.done()) return absl::OkStatus();
    msghdr message = pieces.Message();
    DescriptorBuffer buffer;
    // The kernel delivers a descriptor with the first byte of its message: once that has moved, a
    // second copy would reach the peer as another file.
    if (descriptor >= 0 && !pieces.moved) buffer.Put(message, descriptor);
    // Without MSG_DONTWAIT the call could block beyond the deadline; MSG_NOSIGNAL makes a closed
    // peer an error instead of a signal that ends the process.
    const ssize_t sent = sendmsg(socket(), &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent >= 0) {
      pieces.Advance(static_cast<size_t>(sent));
      CountSent(sent);
      continue;
    }
    if (errno == EINTR) continue;
    if (errno != EAGAIN) return FailWithErrno("sendmsg", errno);
    absl::Status status = WaitUntilReady(POLLOUT, deadline, pieces.moved);
    if (!status.ok()) return status;
  }
}

absl::Status Link::ReceivePieces(Pieces& pieces, Deadline deadline, bool frame_begun,
                                 FileDescriptor* descriptor) {
  if (tls_ != nullptr) return ReceiveEncrypted(pieces, deadline, frame_begun);
  while (!pieces.done()) {
    if (failed_.load(std::memory_order_acquire)) return status();
    msghdr message = pieces.Message();
    DescriptorBuffer buffer;
    if (descriptor != nullptr) buffer.AttachTo(message);
    const ssize_t received = recvmsg(socket(), &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (received == 0) return Fail(absl::StatusCode::kUnavailable, "it closed the connection");
    if (received > 0) {
      if (descriptor != nullptr) {
        if (FileDescriptor taken = DescriptorBuffer::Take(message); taken.valid()) {
          *descriptor = std::move(taken);
        }
      }
      if (!frame_begun && !pieces.moved) frame_began_ = std::chrono::steady_clock::now();
      pieces.Advance(static_cast<size_t>(received));
      CountReceived(received);
      continue;
    }
    if (errno == EINTR) continue;
    if (errno != EAGAIN) return FailWithErrno("recvmsg", errno);
    if (!frame_begun && !pieces.moved) waited_for_frame_ = true;
    // Between frames a late peer is no fault; within one the stream would go on at an unknown byte.
    absl::Status status = WaitUntilReady(POLLIN, deadline, frame_begun || pieces.moved);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status Link::SendEncrypted(Pieces& pieces, Deadline deadline) {
  std::array<std::byte, LinkTlsSession::kRecordBytes> record;
  // A record that TLS has begun must go whole, so it begins where the socket has room.
  absl::Status status = WaitUntilReady(POLLOUT, deadline, /*frame_begun=*/false);
  while (status.ok()) {
    if (failed_.load(std::memory_order_acquire)) return this->status();
    const bool all = pieces.done();
    const LinkTlsSession::Moved moved =
        all ? tls_->Flush() : tls_->Write(pieces.Gather(absl::MakeSpan(record)));
    if (!moved.failure.empty()) return Fail(absl::StatusCode::kUnavailable, moved.failure);
    if (moved.closed) return Fail(absl::StatusCode::kUnavailable, "it closed the connection");
    if (moved.wait_for != 0) {
      status = WaitUntilReady(moved.wait_for, deadline, pieces.moved || tls_->has_unsent());
      continue;
    }
    if (all) return absl::OkStatus();
    pieces.Advance(moved.bytes);
    CountSent(static_cast<int64_t>(moved.bytes));
  }
  return status;
}

absl::Status Link::ReceiveEncrypted(Pieces& pieces, Deadline deadline, bool frame_begun) {
  if (frame_begun) tls_->Expect(pieces.Bytes());
  while (!pieces.done()) {
    if (failed_.load(std::memory_order_acquire)) return status();
    const iovec& piece = pieces.list[pieces.next];
    const LinkTlsSession::Moved moved =
        tls_->Read({static_cast<std::byte*>(piece.iov_base), piece.iov_len});
    if (!moved.failure.empty()) return Fail(absl::StatusCode::kUnavailable, moved.failure);
    if (moved.closed) return Fail(absl::StatusCode::kUnavailable, "it closed the connection");
    if (moved.wait_for != 0) {
      if (!frame_begun && !pieces.moved) waited_for_frame_ = true;
      absl::Status status = WaitUntilReady(moved.wait_for, deadline, frame_begun || pieces.moved);
      if (!status.ok()) return status;
      continue;
    }
    if (!frame_begun && !pieces.moved) frame_began_ = std::chrono::steady_clock::now();
    pieces.Advance(moved.bytes);
    CountReceived(static_cast<int64_t>(moved.bytes));
  }
  return absl::OkStatus();
}

absl::Status Link::WaitUntilReady(short events, Deadline deadline, bool frame_begun) {
  while (true) {
    pollfd waited = {.fd = socket(), .events = events, .revents = 0};
    const int ready = poll(&waited, 1, MillisecondsUntil(deadline));
    if (ready > 0) return absl::OkStatus();
    if (ready < 0 && errno != EINTR) return FailWithErrno("poll", errno);
    // A poll counts whole milliseconds and may end early.
    if (ready < 0 || std::chrono::steady_clock::now() < deadline) continue;
    const char* direction = events == POLLIN ? "the peer sent" : "the peer read";
    if (frame_begun) {
      return Fail(absl::StatusCode::kDeadlineExceeded,
                  StrCat(direction, " only a part of a frame before the deadline"));
    }
    return absl::DeadlineExceededError(
        StrCat("link to ", peer_, ": ", direction, " nothing before the deadline"));
  }
}

absl::Status Link::Fail(absl::StatusCode code, std::string_view reason) {
  Shutdown(absl::Status(code, StrCat("link to ", peer_, ": ", reason)));
  return status();
}

absl::Status Link::FailWithErrno(const char* call, int error) {
  return Fail(absl::StatusCode::kUnavailable, StrCat(call, ": ", std::strerror(error)));
}

void Link::Shutdown(const absl::Status& reason) {
  {
    const std::lock_guard lock(status_mutex_);
    if (!status_.ok()) return;
    status_ = reason.ok() ? absl::CancelledError(StrCat("link to ", peer_, ": shut down")) : reason;
    failed_.store(true, std::memory_order_release);
  }
  // The socket stays open: closing it here would give its number to another file while a second
  // thread still waits on it. Shutting it down wakes that thread, and the peer's.
  shutdown(socket(), SHUT_RDWR);
}

absl::Status Link::status() const {
  const std::lock_guard lock(status_mutex_);
  return status_;
}

bool Link::PeerClosed() const {
  pollfd asked = {.fd = socket(), .events = POLLRDHUP, .revents = 0};
  return poll(&asked, 1, 0) > 0 && (asked.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0;
}

bool Link::HasEncryptedFrame(int64_t max_payload_bytes) const {
  std::array<std::byte, LinkTlsSession::kRecordBytes> record;
  const LinkTlsSession::Moved moved = tls_->Peek(absl::MakeSpan(record));
  if (moved.wait_for != 0) return false;
  // Less than a header, and one that Receive refuses, count as a frame: Receive says what is wrong.
  if (moved.bytes < kFrameHeaderBytes) return true;
  const absl::StatusOr<FrameHeader> header =
      ParseFrameHeader(absl::MakeConstSpan(record).first(kFrameHeaderBytes));
  if (!header.ok() || header->payload_bytes > max_payload_bytes) return true;
  // Our other end puts a small frame into one record.
  return static_cast<int64_t>(moved.bytes) >= kFrameHeaderBytes + header->payload_bytes;
}

bool Link::HasFrame(int64_t max_payload_bytes) const {
  if (tls_ != nullptr) return HasEncryptedFrame(max_payload_bytes);
  EncodedFrameHeader bytes;
  const ssize_t peeked = recv(socket(), bytes.data(), bytes.size(), MSG_PEEK | MSG_DONTWAIT);
  if (peeked < 0) return errno != EAGAIN && errno != EINTR;
  if (static_cast<size_t>(peeked) < bytes.size()) return PeerClosed();
  const absl::StatusOr<FrameHeader> header = ParseFrameHeader(bytes);
  if (!header.ok() || header->payload_bytes > max_payload_bytes) return true;
  int unread_bytes = 0;
  if (ioctl(socket(), FIONREAD, &unread_bytes) != 0) return true;
  return unread_bytes >= kFrameHeaderBytes + header->payload_bytes || PeerClosed();
}

void Link::CountInto(std::shared_ptr<LinkTally> total) {
  total_ = std::move(total);
  total_->Add(counters());
}

bool Link::is_unix() const { return IsUnixSocket(socket()); }

void Link::CountSent(int64_t bytes) {
  own_.AddSent(bytes);
  if (total_ != nullptr) total_->AddSent(bytes);
}

void Link::CountReceived(int64_t bytes) {
  own_.AddReceived(bytes);
  if (total_ != nullptr) total_->AddReceived(bytes);
}

LinkCounters LinkTally::Read() const {
  const auto nanoseconds = timed_nanoseconds_.load(std::memory_order_relaxed);
  return {.bytes_sent = bytes_sent_.load(std::memory_order_relaxed),
          .bytes_received = bytes_received_.load(std::memory_order_relaxed),
          .timed_bytes = timed_bytes_.load(std::memory_order_relaxed),
          .timed_seconds = 1e-9 * static_cast<double>(nanoseconds)};
}

void LinkTally::AddTimed(int64_t bytes, std::chrono::nanoseconds time) {
  timed_bytes_.fetch_add(bytes, std::memory_order_relaxed);
  timed_nanoseconds_.fetch_add(time.count(), std::memory_order_relaxed);
}

void LinkTally::Add(const LinkCounters& counters) {
  AddSent(counters.bytes_sent);
  AddReceived(counters.bytes_received);
  AddTimed(counters.timed_bytes,
           std::chrono::nanoseconds(static_cast<int64_t>(1e9 * counters.timed_seconds)));
}

absl::StatusOr<std::pair<std::unique_ptr<Link>, std::unique_ptr<Link>>> CreateLinkPair(
    const std::string& first_name, const std::string& second_name) {
  std::array<int, 2> fds = {};
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds.data()) != 0) {
    return absl::ResourceExhaustedError(StrCat("socketpair: ", std::strerror(errno)));
  }
  return std::pair(std::make_unique<Link>(FileDescriptor(fds[0]), second_name),
                   std::make_unique<Link>(FileDescriptor(fds[1]), first_name));
}

}  // namespace tessera::kernels
