// The page for browsers: GET / answers a browser with it and others with a line of text;
// /page/NAME are its scripts and its style.
//
// It needs no key itself; its calls do, and it keeps keys in its memory only. Its
// Content-Security-Policy lets it load nothing from elsewhere, run nothing that is not one of these
// files, and make HTML of no text. Thread rule: any thread; never blocks.
#pragma once

#include <string>
#include <vector>

#include "coordinator/http_door/http_api.h"

namespace tessera::coordinator {

// Rows for the table of routes. `version`: of this build.
std::vector<OtherRoute> PageRoutes(std::string version);

}  // namespace tessera::coordinator
