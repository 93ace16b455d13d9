// One persistent connection between two processes that carries frames: a Unix or TCP socket, the
// latter inside TLS where the link has a session of it (link_tls.h).
//
// Control and bulk data of a pair travel on separate links, so that a large payload delays no
// control frame. Payloads are not copied: Send writes the caller's memory with one system call
// where the socket takes it, Receive reads into the caller's memory.
//
// Thread rule: any thread may call anything. Send calls of several threads take turns by frame, so
// do Receive calls; one thread may send while another receives.
// Bounds: a call ends after timeout_seconds (and the turns before it). A wait that ends before any
// byte of the frame moved is DEADLINE_EXCEEDED and leaves the link as it was.
// Errors: every other failure is final: both directions are shut down, the peer's calls wake, and
// each later call returns the first failure, which names the peer. UNAVAILABLE is a connection that
// the peer closed or that broke, INVALID_ARGUMENT a frame that breaks the format or a limit,
// FAILED_PRECONDITION a frame that is not the one which was expected.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/links/deadline.h"
#include "kernels/links/file_descriptor.h"
#include "kernels/links/frame.h"
#include "kernels/links/link_tls.h"

namespace tessera::kernels {

// Frames whose payload has so many bytes are timed; smaller ones take a wake-up, not a transfer.
inline constexpr int64_t kTimedPayloadBytes = 64 << 10;

struct LinkCounters {
  int64_t bytes_sent = 0;  // headers included
  int64_t bytes_received = 0;
  // Payloads of Receive, of kTimedPayloadBytes or more, for which the receiver was there first: of
  // others a part lies in the socket already. Time is from the first byte to the last.
  int64_t timed_bytes = 0;
  double timed_seconds = 0;
};

// What links have moved, added up over all that count into it. Thread-safe.
class LinkTally {
 public:
  LinkCounters Read() const;
  void AddSent(int64_t bytes) { bytes_sent_.fetch_add(bytes, std::memory_order_relaxed); }
  void AddReceived(int64_t bytes) { bytes_received_.fetch_add(bytes, std::memory_order_relaxed); }
  void AddTimed(int64_t bytes, std::chrono::nanoseconds time);
  void Add(const LinkCounters& counters);

 private:
  std::atomic<int64_t> bytes_sent_{0};
  std::atomic<int64_t> bytes_received_{0};
  std::atomic<int64_t> timed_bytes_{0};
  std::atomic<int64_t> timed_nanoseconds_{0};
};

class Link {
 public:
  static constexpr int kMaxParts = 62;

  // Takes over a connected stream socket, and the session of TLS on it (null: plain). `peer` is its
  // name in errors.
  Link(FileDescriptor socket, std::string peer, std::unique_ptr<LinkTlsSession> tls = nullptr);
  // Nothing may be inside a call. What was sent still arrives.
  ~Link() = default;
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;

  // Sends one frame; the payload is the parts in order, at most kMaxParts. On return the socket has
  // taken the bytes.
  absl::Status Send(uint16_t type, absl::Span<const absl::Span<const std::byte>> parts,
                    double timeout_seconds);
  absl::Status Send(uint16_t type, absl::Span<const std::byte> payload, double timeout_seconds);

  // Receives the next frame, which must be of `type` and no larger than the parts together, which
  // are filled in order. Returns the payload's bytes.
  absl::StatusOr<int64_t> Receive(uint16_t type, absl::Span<const absl::Span<std::byte>> parts,
                                  double timeout_seconds);
  absl::StatusOr<int64_t> Receive(uint16_t type, absl::Span<std::byte> memory,
                                  double timeout_seconds);
  // Receives a frame of any type whose payload is at most `max_payload_bytes`; returns its type.
  absl::StatusOr<uint16_t> ReceiveAny(int64_t max_payload_bytes, std::string* payload,
                                      double timeout_seconds);

  // Whether ReceiveAny would return without a wait: a whole frame lies in the socket, or what makes
  // it fail. Only for frames that are small against a socket's buffer; no call may be receiving.
  bool HasFrame(int64_t max_payload_bytes) const;

  // Unix sockets only: passes an open file to the peer. UNIMPLEMENTED over TCP.
  absl::Status SendDescriptor(int fd, double timeout_seconds);
  absl::StatusOr<FileDescriptor> ReceiveDescriptor(double timeout_seconds);

  // Makes every call on both sides end; `reason`, an error, is what this side's calls return.
  void Shutdown(const absl::Status& reason);
  // OK, or the failure that ended the link.
  absl::Status status() const;
  // Whether the peer closed its side; frames that it sent before may still be unread.
  bool PeerClosed() const;

  const std::string& peer() const { return peer_; }
  // Before the link is shared with other threads: the handshake says who the peer is.
  void set_peer(std::string peer) { peer_ = std::move(peer); }
  // Likewise before: what the link has moved so far, and moves from then on, counts there too.
  void CountInto(std::shared_ptr<LinkTally> total);
  LinkCounters counters() const { return own_.Read(); }
  // Over a Unix socket; else over TCP.
  bool is_unix() const;
  bool is_encrypted() const { return tls_ != nullptr; }
  // What the ends of an encrypted link say to each other may not go by NCCL, which is plain.
  bool rules_out_nccl() const { return tls_ != nullptr && !tls_->allows_plain_nccl(); }
  // For poll(2); reading and writing are the link's own.
  int socket() const { return socket_.get(); }

 private:
  struct Pieces;  // an iovec list of which a part has moved

  absl::Status SendPieces(Pieces& pieces, Deadline deadline, int descriptor);
  absl::Status ReceivePieces(Pieces& pieces, Deadline deadline, bool frame_begun,
                             FileDescriptor* descriptor);
  absl::Status SendEncrypted(Pieces& pieces, Deadline deadline);
  absl::Status ReceiveEncrypted(Pieces& pieces, Deadline deadline, bool frame_begun);
  bool HasEncryptedFrame(int64_t max_payload_bytes) const;
  absl::StatusOr<FrameHeader> ReceiveHeader(Deadline deadline, FileDescriptor* descriptor);
  void CountSent(int64_t bytes);
  void CountReceived(int64_t bytes);
  absl::Status WaitUntilReady(short events, Deadline deadline, bool frame_begun);
  // Records the failure, prefixed with the peer, and shuts the socket down; returns the first one.
  absl::Status Fail(absl::StatusCode code, std::string_view reason);
  absl::Status FailWithErrno(const char* call, int error);

  const FileDescriptor socket_;
  const std::unique_ptr<LinkTlsSession> tls_;  // null: plain
  std::string peer_;
  std::mutex send_mutex_;
  std::mutex receive_mutex_;
  // Whether the first byte of the frame that is being received was waited for, and when it came.
  bool waited_for_frame_ = false;
  std::chrono::steady_clock::time_point frame_began_;
  LinkTally own_;
  std::shared_ptr<LinkTally> total_;  // null: none
  std::atomic<bool> failed_{false};
  mutable std::mutex status_mutex_;
  absl::Status status_;  // set before failed_
};

// Two links of one process that are connected with each other.
absl::StatusOr<std::pair<std::unique_ptr<Link>, std::unique_ptr<Link>>> CreateLinkPair(
    const std::string& first_name, const std::string& second_name);

}  // namespace tessera::kernels
