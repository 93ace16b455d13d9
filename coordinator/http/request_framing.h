// Where a request ends is decided by its header alone: what is ambiguous there is refused, so that
// bytes after a request that was not understood are never taken for a request (RFC 9112, 2.2, 5 and
// 6; request smuggling). Stricter than the RFC where it leaves a choice.
//
// Thread rule: pure functions.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace tessera::coordinator {

// The end of the header at the start of `bytes`, behind its empty line; 0: more must come.
// `scanned`: how much of `bytes` earlier calls have seen, 0 at first; the function moves it on, so
// that bytes that come one by one are not read again and again. InvalidArgument, as soon as it can
// be seen: this is no header of HTTP/1.
absl::StatusOr<size_t> FindHeaderEnd(std::string_view bytes, size_t& scanned);

// `header`: request line, fields and empty line. InvalidArgument (to answer with 400) and
// Unimplemented (501) say what is wrong; the connection must end then.
absl::Status CheckFraming(std::string_view header);

// Control characters, tabs aside: no part of a header or of a chunk's header may hold them.
bool HasControls(std::string_view text);

// The target of a request line, even where the header is faulty or not whole; empty: none.
std::string_view RequestTarget(std::string_view header);

// The host[:port] of an absolute target ("http://host:port/path"), null for the other forms.
std::string_view TargetAuthority(std::string_view target);

// The path of a target: without query, and without scheme and host where a client that takes this
// server for a proxy sends them.
std::string PathOf(std::string_view target);

}  // namespace tessera::coordinator
