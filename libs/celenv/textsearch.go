package celenv

import (
	"iter"
	"unicode/utf8"

	"github.com/google/cel-go/common/functions"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
)

// The functions indexOf and lastIndexOf of texts take time proportional to the product of both
// lengths in cel-go, and a call cannot be interrupted. The search in this file takes time
// proportional to the sum of the lengths, with the same results and errors.

// searchTexts wraps the bindings of the function indexOf, or of lastIndexOf if last is set, so that
// calls with texts use a linear search. Other calls, such as those with lists, are not affected.
func searchTexts(binding *functions.Overload, last bool) {
	if binary := binding.Binary; binary != nil {
		binding.Binary = func(a, b ref.Val) ref.Val {
			if result := searchText(last, a, b); result != nil {
				return result
			}
			return binary(a, b)
		}
	}
	if function := binding.Function; function != nil {
		binding.Function = func(args ...ref.Val) ref.Val {
			if result := searchText(last, args...); result != nil {
				return result
			}
			return function(args...)
		}
	}
}

// searchText returns the result of indexOf or lastIndexOf. It returns nil unless the arguments are
// a text, the text to search for, and optionally an offset.
func searchText(last bool, args ...ref.Val) ref.Val {
	if len(args) != 2 && len(args) != 3 {
		return nil
	}
	textArg, isText := args[0].(types.String)
	partArg, isPart := args[1].(types.String)
	if !isText || !isPart {
		return nil
	}
	text, part := validText(string(textArg)), validText(string(partArg))
	length := types.Int(utf8.RuneCountInString(text))
	var offset types.Int
	switch {
	case len(args) == 3:
		given, isInt := args[2].(types.Int)
		if !isInt {
			return nil
		}
		offset = given
	case last && part == "":
		offset = length
	case last:
		offset = length - 1
	}
	switch {
	case part == "":
		return offset
	case offset < 0:
		return types.NewErr("index out of range: %d", int64(offset))
	case offset >= length:
		return types.IntNegOne
	}
	start := byteOffset(text, int(offset))
	if !last {
		for found := range occurrences(text[start:], part) {
			return offset + types.Int(utf8.RuneCountInString(text[start:start+found]))
		}
		return types.IntNegOne
	}
	// An occurrence may begin at the offset, so it may end up to len(part) bytes later.
	foundLast := -1
	for found := range occurrences(text[:min(len(text), start+len(part))], part) {
		foundLast = found
	}
	if foundLast < 0 {
		return types.IntNegOne
	}
	return types.Int(utf8.RuneCountInString(text[:foundLast]))
}

// validText replaces each invalid byte of a text as a conversion to runes does.
func validText(text string) string {
	if utf8.ValidString(text) {
		return text
	}
	return string([]rune(text))
}

// byteOffset returns the offset in bytes of the character at an index. The index must be less than
// the number of characters.
func byteOffset(text string, index int) int {
	for offset := range text {
		if index == 0 {
			return offset
		}
		index--
	}
	return len(text)
}

// occurrences returns the byte offsets at which part, which is not empty, occurs in text, in
// ascending order. Occurrences may overlap. It uses the algorithm of Knuth, Morris and Pratt.
// strings.Index is not linear for texts that are made to collide in its hash function.
func occurrences(text, part string) iter.Seq[int] {
	return func(yield func(int) bool) {
		if len(part) > len(text) {
			return
		}
		// borders holds, for each prefix of part, the length of its longest proper prefix that is also
		// its suffix.
		borders := make([]int32, len(part)+1)
		matched := 0
		for i := 1; i < len(part); i++ {
			for matched > 0 && part[i] != part[matched] {
				matched = int(borders[matched])
			}
			if part[i] == part[matched] {
				matched++
			}
			borders[i+1] = int32(matched)
		}
		matched = 0
		for i := range len(text) {
			for matched > 0 && text[i] != part[matched] {
				matched = int(borders[matched])
			}
			if text[i] == part[matched] {
				matched++
			}
			if matched == len(part) {
				if !yield(i + 1 - len(part)) {
					return
				}
				matched = int(borders[matched])
			}
		}
	}
}
