#include <halfbyte/error.h>
#include <halfbyte/network_group.h>

namespace halfbyte {

bool has_network_groups() noexcept { return false; }

std::shared_ptr<Group> join_network(int, int, const NetworkOptions&) {
  throw Error(ErrorCode::kUnsupported,
              "this halfbyte was built without ranks of several machines: that needs LibTorch 2.13 and the headers of "
              "Gloo and OpenSSL (Debian: libgloo-dev, libssl-dev)");
}

}  // namespace halfbyte
