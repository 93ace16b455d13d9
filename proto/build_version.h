// Which build this process is: the release, and a hash of the sources that it was made from
// (third_party/source_version.sh), as "0.2.0+0123456789ab". Equal for equal sources, whoever built
// them where; "unknown" instead of the hash where Bazel ran without the project's .bazelrc.
//
// A target that depends on it is linked again after every change of a source. So only programs and
// their option parsers do; libraries take the version as an argument. Thread rule: a pure function.
#pragma once

#include <string_view>

namespace tessera {

std::string_view BuildVersion();

}  // namespace tessera
