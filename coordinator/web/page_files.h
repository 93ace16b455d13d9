// The files of the page as string constants: the program knows them wherever it is installed.
// Thread rule: constants.
#pragma once

#include <span>
#include <string_view>

namespace tessera::coordinator {

struct PageFile {
  std::string_view path;  // "/page/page.html", "/page/chat.js", ...
  std::string_view text;
};

std::span<const PageFile> PageFiles();

}  // namespace tessera::coordinator
