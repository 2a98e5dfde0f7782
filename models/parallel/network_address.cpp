#include "models/parallel/network_address.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <system_error>

#include <halfbyte/error.h>

namespace halfbyte::models {
namespace {

using Addresses = std::unique_ptr<addrinfo, void (*)(addrinfo*)>;

Addresses resolved(const std::string& host, const std::string& port) {
  addrinfo wanted{};
  wanted.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error = ::getaddrinfo(host.c_str(), port.c_str(), &wanted, &found);
  if (error != 0)
    throw Error(ErrorCode::kIo, "there is no machine '" + host + "' for the ranks to meet: " + ::gai_strerror(error));
  return {found, ::freeaddrinfo};
}

bool is_loopback(const sockaddr& address) {
  if (address.sa_family == AF_INET)
    return ntohl(reinterpret_cast<const sockaddr_in&>(address).sin_addr.s_addr) >> 24 == 127;
  return address.sa_family == AF_INET6 &&
         IN6_IS_ADDR_LOOPBACK(&reinterpret_cast<const sockaddr_in6&>(address).sin6_addr);
}

// Empty where others cannot reach it by that alone: an address of IPv6 that is the link's.
std::string text_of(const sockaddr& address) {
  const bool is_v6 = address.sa_family == AF_INET6;
  if (is_v6 && IN6_IS_ADDR_LINKLOCAL(&reinterpret_cast<const sockaddr_in6&>(address).sin6_addr)) return "";
  std::array<char, NI_MAXHOST> text{};
  const socklen_t size = is_v6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
  const bool is_known = ::getnameinfo(&address, size, text.data(), text.size(), nullptr, 0, NI_NUMERICHOST) == 0;
  return is_known ? text.data() : "";
}

}  // namespace

std::string address_of(const std::string& interface) {
  if (interface.empty()) return "127.0.0.1";
  ifaddrs* first = nullptr;
  if (::getifaddrs(&first) != 0) throw Error(ErrorCode::kIo, "this machine does not tell its interfaces");
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> all(first, ::freeifaddrs);
  std::string names, v6;
  for (const ifaddrs* each = first; each; each = each->ifa_next) {
    const int family = each->ifa_addr ? each->ifa_addr->sa_family : AF_UNSPEC;
    if (family != AF_INET && family != AF_INET6) continue;
    const std::string address = text_of(*each->ifa_addr);
    if (address.empty()) continue;
    if (interface == each->ifa_name && family == AF_INET) return address;
    if (interface == each->ifa_name) v6 = address;
    if (family == AF_INET) names += (names.empty() ? "" : ", ") + std::string(each->ifa_name);
  }
  if (!v6.empty()) return v6;
  throw Error(ErrorCode::kInvalidArgument,
              "this machine has no interface '" + interface + "' with an address; it has " + names);
}

bool is_loopback(const std::string& host) {
  const Addresses all = resolved(host, "0");
  for (const addrinfo* each = all.get(); each; each = each->ai_next) {
    if (!is_loopback(*each->ai_addr)) return false;
  }
  return true;
}

int listen_at(const std::string& host, std::uint16_t port) {
  const Addresses all = resolved(host, std::to_string(port));
  const int descriptor = ::socket(all->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int yes = 1;
  const bool listens = descriptor >= 0 && ::setsockopt(descriptor, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) == 0 &&
                       ::bind(descriptor, all->ai_addr, all->ai_addrlen) == 0 && ::listen(descriptor, SOMAXCONN) == 0;
  if (listens) return descriptor;
  const std::string why = std::generic_category().message(errno);
  if (descriptor >= 0) ::close(descriptor);
  throw Error(ErrorCode::kIo, "rank 0 cannot listen at " + host + ", port " + std::to_string(port) + ": " + why);
}

}  // namespace halfbyte::models
