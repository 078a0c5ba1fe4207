// The operations as a program: calls come in by stdin, what they leave in memory goes out by stdout.
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "operations.h"

namespace {

void read_all(void* to, size_t size) {
  for (char* at = (char*)to; size > 0;) {
    const ssize_t got = read(0, at, size);
    if (got <= 0) _exit(0);
    at += got, size -= got;
  }
}

void write_all(const void* from, size_t size) {
  for (const char* at = (const char*)from; size > 0;) {
    const ssize_t put = write(1, at, size);
    if (put <= 0) _exit(1);
    at += put, size -= put;
  }
}

template <class Number>
Number number() {
  Number value;
  read_all(&value, sizeof value);
  return value;
}

using Buffers = std::vector<std::vector<uint8_t>>;

// An argument: a number, or for a pointer the bytes behind it, -1 of them for none.
template <class Argument>
Argument read_argument(Buffers& buffers) {
  if constexpr (std::is_pointer_v<Argument>) {
    const int64_t size = number<int64_t>();
    if (size < 0) return nullptr;
    buffers.emplace_back(size);
    read_all(buffers.back().data(), size);
    return (Argument)buffers.back().data();
  } else {
    return number<Argument>();
  }
}

template <class... Arguments>
void call(void (*operation)(Arguments...)) {
  Buffers buffers;
  const std::tuple<Arguments...> arguments{read_argument<Arguments>(buffers)...};
  std::apply(operation, arguments);
  for (const auto& buffer : buffers) write_all(buffer.data(), buffer.size());
}

const std::map<std::string, void (*)()> CALLS = {
    {"argmax", [] { call(argmax); }},
    {"gated_mul", [] { call(gated_mul); }},
    {"int8_matmul", [] { call(int8_matmul); }},
    {"kv_write", [] { call(kv_write); }},
    {"norm_parts", [] { call(norm_parts); }},
    {"packed_matmul", [] { call(packed_matmul); }},
    {"packed_rows", [] { call(packed_rows); }},
    {"paged_attention", [] { call(paged_attention); }},
    {"rms_norm", [] { call(rms_norm); }},
    {"rope_kv_write", [] { call(rope_kv_write); }},
    {"sample", [] { call(sample); }},
};

}  // namespace

int main() {
  while (true) {
    std::string name(number<int64_t>(), ' ');
    read_all(name.data(), name.size());
    CALLS.at(name)();
  }
}
