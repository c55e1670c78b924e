#pragma once

#include <cstdint>
#include <string>

#include "sluice/v1/sru_service.pb.h"

namespace sluice {

inline v1::ReadSruRequest SruRequest(const std::string& file, uint32_t worker, uint64_t offset, uint32_t length) {
  v1::ReadSruRequest request;
  request.set_file(file);
  request.set_worker(worker);
  request.set_offset(offset);
  request.set_length(length);
  return request;
}

}  // namespace sluice
