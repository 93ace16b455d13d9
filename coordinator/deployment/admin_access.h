// Who may see and change the cluster: whoever has the admin key.
// Thread rule: values; `place` may be called on any thread.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace tessera::coordinator {

struct AdminAccess {
  std::string key = {};  // empty: nobody may, unless `open`
  bool open = false;     // --open-loopback: without a key everybody may
  // Where the key lies, for whoever looks for it; empty text: where a flag says.
  std::function<std::string()> place = {};

  // `authorization`: the value of an authorization header or metadatum, "Bearer KEY".
  absl::Status Check(std::string_view authorization) const;
};

}  // namespace tessera::coordinator
