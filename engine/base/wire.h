#pragma once

#include <concepts>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace pinion {

// Whether a vector of these is encoded as the bytes that it has in memory.
template <typename T>
inline constexpr bool kCopied = std::is_arithmetic_v<T> && !std::same_as<T, bool>;

// Encoding of the link's messages: numbers in the machine's own byte order (both ends are one
// binary, on machines of one kind), strings and lists after a 32-bit count. A message lists its
// fields once, in a template `Fields(archive, message)`, which both classes below walk in the same
// order.
class WireWriter {
 public:
  template <typename... Ts>
  void operator()(const Ts&... values) {
    (Put(values), ...);
  }
  const std::string& bytes() const { return bytes_; }

 private:
  template <typename T>
  requires std::is_arithmetic_v<T> || std::is_enum_v<T>
  void Put(const T& value) { bytes_.append(reinterpret_cast<const char*>(&value), sizeof value); }
  void Put(const std::string& text) {
    Put(static_cast<uint32_t>(text.size()));
    bytes_ += text;
  }
  template <typename T>
  void Put(const std::optional<T>& value) {
    Put(value.has_value());
    if (value) Put(*value);
  }
  template <typename A, typename B>
  void Put(const std::pair<A, B>& pair) {
    (*this)(pair.first, pair.second);
  }
  template <typename T>
  void Put(const std::vector<T>& items) {
    Put(static_cast<uint32_t>(items.size()));
    if constexpr (kCopied<T>)
      bytes_.append(reinterpret_cast<const char*>(items.data()), items.size() * sizeof(T));
    else
      for (const T& item : items) Put(item);
  }
  template <typename T>
  requires requires(WireWriter& writer, T& value) { Fields(writer, value); }
  void Put(const T& value) {
    Fields(*this,
           const_cast<T&>(value));  // one template serves both directions; nothing is written
  }

  std::string bytes_;
};

// Reads what WireWriter wrote. Never reads outside the bytes it was given: once something does not
// fit, ok() is false for good and every further value stays as it was.
class WireReader {
 public:
  explicit WireReader(std::string_view bytes) : rest_(bytes) {}
  template <typename... Ts>
  void operator()(Ts&... values) {
    (Get(values), ...);
  }
  bool ok() const { return ok_; }
  bool at_end() const { return rest_.empty(); }

 private:
  bool Need(size_t count) { return ok_ = ok_ && rest_.size() >= count; }

  template <typename T>
  requires std::is_arithmetic_v<T> || std::is_enum_v<T>
  void Get(T& value) {
    if (!Need(sizeof value)) return;
    if constexpr (std::same_as<T, bool>) {
      value = rest_[0] != 0;  // any other byte in a bool would be undefined
    } else {
      std::memcpy(&value, rest_.data(), sizeof value);
    }
    rest_.remove_prefix(sizeof value);
  }
  void Get(std::string& text) {
    uint32_t count = 0;
    Get(count);
    if (!Need(count)) return;
    text.assign(rest_.substr(0, count));
    rest_.remove_prefix(count);
  }
  template <typename T>
  void Get(std::optional<T>& value) {
    bool present = false;
    Get(present);
    if (!ok_ || !present) return;
    value.emplace();
    Get(*value);
  }
  template <typename A, typename B>
  void Get(std::pair<A, B>& pair) {
    (*this)(pair.first, pair.second);
  }
  template <typename T>
  void Get(std::vector<T>& items) {
    uint32_t count = 0;
    Get(count);
    // Every item takes at least a byte, so a false count cannot make us reserve more than we hold.
    if (!Need(count)) return;
    items.clear();
    if constexpr (kCopied<T>) {
      if (!Need(count * sizeof(T))) return;
      items.resize(count);
      if (count > 0) std::memcpy(items.data(), rest_.data(), count * sizeof(T));
      rest_.remove_prefix(count * sizeof(T));
    } else {
      for (uint32_t i = 0; i < count && ok_; ++i) Get(items.emplace_back());
    }
  }
  template <typename T>
  requires requires(WireReader& reader, T& value) { Fields(reader, value); }
  void Get(T& value) { Fields(*this, value); }

  std::string_view rest_;
  bool ok_ = true;
};

}  // namespace pinion
