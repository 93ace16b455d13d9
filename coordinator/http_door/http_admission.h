// What decides by a request's header whether its body is read: the rules for browsers, then CORS,
// then the keys.
//
// Thread rule: thread-safe.
#pragma once

#include "coordinator/http/browser_guard.h"
#include "coordinator/http/http_server.h"

namespace tessera::coordinator {

// `keys` sees what the rules let through, preflights excepted. Its errors and those of the rules
// are marked for the allowed origins, so that a page may read them.
HttpAdmit MakeHttpAdmission(BrowserGuardOptions options, HttpAdmit keys);

}  // namespace tessera::coordinator
