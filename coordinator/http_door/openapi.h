// The OpenAPI document of the HTTP door, made from the tables that the door itself reads bodies
// with. Pure functions.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string_view>

#include "coordinator/api/request_fields.h"

namespace tessera::coordinator {

struct ApiPath {
  std::string_view method;
  std::string_view path;  // "{model}" is a parameter; one that ends in it may contain slashes
  std::string_view summary;
  bool needs_key = false;                   // as the server is started
  std::span<const RequestField> body = {};  // POST only
  bool streams = false;                     // server-sent events where the body says stream: true
  std::string_view reply_type = "application/json";
};

nlohmann::ordered_json OpenApiDocument(std::span<const ApiPath> paths, std::string_view version);

}  // namespace tessera::coordinator
