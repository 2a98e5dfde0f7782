// Ends that no exception reaches, each in a process of its own.
#include "tools/cli/sudden_ends.h"

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "loader/files/mappings.h"
#include "loader/files/platform.h"
#include "tests/loader/files/scratch.h"

using namespace halfbyte;
using namespace halfbyte::testing;

namespace {

struct End {
  int status = 0;  // as waitpid() has it
  std::string said;
};

// Of a process that does `work` as a program of ours does it.
End end_of(const std::function<void()>& work) {
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    ::dup2(ends[1], STDERR_FILENO);
    cli::install_sudden_ends();
    work();
    ::_exit(0);
  }
  ::close(ends[1]);
  End out;
  char block[512];
  for (ssize_t size = 0; (size = ::read(ends[0], block, sizeof block)) > 0;)
    out.said.append(block, static_cast<std::size_t>(size));
  ::close(ends[0]);
  ::waitpid(child, &out.status, 0);
  return out;
}

void check_end(const End& end, int status, const std::string& said) {
  INFO(end.said);
  REQUIRE(WIFEXITED(end.status));
  CHECK(WEXITSTATUS(end.status) == status);
  CHECK(end.said.starts_with("halfbyte: "));
  CHECK(end.said.find('\n') == end.said.size() - 1);
  CHECK(end.said.find(said) != std::string::npos);
}

}  // namespace

TEST_CASE("sudden ends: a file that becomes shorter while it is mapped is named", "[cli]") {
  const Scratch scratch;
  for (const char* name : {"one", "two"}) write_text(scratch / name, std::string(100'000, 'x'));
  const End end = end_of([&] {
    const files::MappedFile one(scratch / "one"), two(scratch / "two");
    fs::resize_file(scratch / "two", 10);
    const volatile std::byte* bytes = two.bytes().data();
    static_cast<void>(bytes[99'999]);
  });
  check_end(end, 3, "/two: the file became shorter while it was in use");
}

TEST_CASE("sudden ends: an access to nothing of ours ends as it would have", "[cli]") {
  const End end = end_of([] { ::raise(SIGBUS); });
  REQUIRE(WIFSIGNALED(end.status));
  CHECK(WTERMSIG(end.status) == SIGBUS);
  CHECK(end.said.empty());
}

TEST_CASE("sudden ends: memory that runs out where nobody catches it is said", "[cli]") {
  check_end(end_of([] { std::thread([] { throw std::bad_alloc(); }).join(); }), 4, "out of memory");
  const auto other = [] { std::thread([] { throw std::runtime_error("of some library"); }).join(); };
  check_end(end_of(other), 1, "of some library");
}

TEST_CASE("sudden ends: an access to memory that a limit did not give is said", "[cli]") {
  const auto with_limit = [](const std::function<void()>& work) {
    return end_of([&] {
      struct rlimit limit{};
      ::getrlimit(RLIMIT_AS, &limit);
      limit.rlim_cur = rlim_t{1} << 46;  // more than anything takes, sanitizers too
      REQUIRE(::setrlimit(RLIMIT_AS, &limit) == 0);
      cli::install_sudden_ends();
      work();
    });
  };
  volatile std::uintptr_t nothing = 8;
  check_end(with_limit([&] { *reinterpret_cast<volatile int*>(std::uintptr_t{nothing}) = 1; }), 4, "out of memory");
  const End sent = with_limit([] { ::raise(SIGSEGV); });
  CHECK(sent.said.empty());
  REQUIRE(WIFSIGNALED(sent.status));
  CHECK(WTERMSIG(sent.status) == SIGSEGV);
}

TEST_CASE("mappings: the file of an address is known as long as it is mapped", "[files]") {
  const Scratch scratch;
  write_text(scratch / "a", std::string(5000, 'x'));
  std::vector<std::unique_ptr<files::MappedFile>> maps;
  for (int i = 0; i < 200; ++i) maps.push_back(std::make_unique<files::MappedFile>(scratch / "a"));
  for (const auto& map : maps) {
    const files::Mapping found = files::mapping_at(map->bytes().data() + 4999);
    REQUIRE(found.path != nullptr);
    CHECK(found.path == (scratch / "a").string());
    CHECK(found.size_bytes == 5000);
  }
  const std::byte* address = maps.back()->bytes().data();
  maps.clear();
  CHECK(files::mapping_at(address).path == nullptr);
}
