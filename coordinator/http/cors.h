// Cross-origin requests of browsers: answers preflights and marks answers for the allowed origins,
// so that a page of another origin may call the server. A preflight carries no keys and needs none.
//
// Thread rule: thread-safe.
#pragma once

#include <string>
#include <vector>

#include "coordinator/http/http_server.h"

namespace tessera::coordinator {

// Comes before `next`, which sees no preflights. `origins`: as browsers write them
// ("https://app.example.com"), or "*" for any. Empty: `next` itself, and browsers refuse pages of
// other origins.
HttpAdmit WithCors(std::vector<std::string> origins, HttpAdmit next);

}  // namespace tessera::coordinator
