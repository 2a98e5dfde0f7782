// Where a rank listens. No LibTorch.
#pragma once

#include <cstdint>
#include <string>

namespace halfbyte::models {

// The address of that interface of this machine; of the loopback one where it is empty. Errors: kInvalidArgument naming
// the interfaces that there are.
std::string address_of(const std::string& interface);

// Whether a name or an address is of this machine's loopback interface. Errors: kIo for a name that nobody knows.
bool is_loopback(const std::string& host);

// A socket that listens at that address of this machine and at none other. Errors: kIo.
int listen_at(const std::string& host, std::uint16_t port);

}  // namespace halfbyte::models
