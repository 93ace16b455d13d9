#pragma once

// HTML as text: what the filter striptags makes of it. Pure functions, thread-safe.

#include <string>
#include <string_view>

namespace tessera::coordinator::jinja {

// The named character references: "NAME;HEX[+HEX] " each, by name; a comma in place of the
// semicolon where the reference counts without its own semicolon too. In html_entities.cc.
extern const char kHtmlEntities[];

// Without comments and tags, runs of white space as one space.
std::string StripTags(std::string_view text);

// Python's html.unescape: character references become what they stand for.
std::string UnescapeHtml(std::string_view text);

}  // namespace tessera::coordinator::jinja
