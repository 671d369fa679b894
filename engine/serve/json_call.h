#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace pinion {

// How a call that is a JSON object begins: {"name": NAME, "arguments": and the brace of an object.
struct CallHead {
  enum class State { kNone, kMore, kFound };  // not a head; the text ends too early; a head
  State state = State::kNone;
  std::string name;  // as soon as it has come whole
  size_t bytes = 0;  // of a head that is found, without that brace
};

// A head that is longer than this is taken for none, so that looking for one costs little.
inline constexpr size_t kMaxCallHead = 1024;

// The head that `text` begins with, behind white space. "parameters" is as good as "arguments". A
// text of kMaxCallHead bytes or more is never kMore.
CallHead ReadCallHead(std::string_view text);

// Mistral's head, NAME, NAME[ARGS] or NAME[CALL_ID]ID[ARGS], up to the brace of the arguments. A
// name has letters, digits and "_-.:/" alone.
CallHead ReadNamedHead(std::string_view text);

// Whether a JSON text is within a string, byte by byte.
class JsonStrings {
 public:
  void Push(char c);
  bool inside() const { return inside_; }

 private:
  bool inside_ = false, escaped_ = false;
};

// Finds the end of a JSON object or list that comes in pieces: the bracket that closes the first
// one. The text between them is not checked.
class JsonEnd {
 public:
  explicit JsonEnd(size_t depth = 0) : depth_(depth) {}  // depth: of brackets that are open already
  void Push(char c);
  bool in_string() const { return strings_.inside(); }
  bool done() const { return done_; }
  // How many bytes of `text` belong to the value. It ends before a `mark` that is in no string, and
  // before what may yet become one.
  size_t Take(std::string_view text, std::string_view mark = {});

 private:
  size_t depth_;
  JsonStrings strings_;
  bool done_ = false;
};

// Finds a mark in a text that comes in pieces, unless it is within a string.
class JsonMark {
 public:
  explicit JsonMark(std::string_view mark = {}) : mark_(mark) {}  // empty: there is none to find
  bool found() const { return found_; }
  // How many bytes of `text` are before the mark, and before what may yet become one.
  size_t Take(std::string_view text);

 private:
  std::string_view mark_;
  JsonStrings strings_;
  bool found_ = false;
};

}  // namespace pinion
