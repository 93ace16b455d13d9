// How many files and sockets the process may have open: thousands of streams are thousands of
// sockets.
#pragma once

namespace tessera::coordinator {

// As many as the system allows; logs how many that are.
void RaiseOpenFileLimit();

}  // namespace tessera::coordinator
