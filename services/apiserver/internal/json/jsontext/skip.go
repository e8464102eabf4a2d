package jsontext

import (
	"bytes"
	"errors"
)

// ErrMalformed reports that a document is not valid JSON.
var ErrMalformed = errors.New("malformed JSON")

// errEnough stops a walk because the callback needs no more values.
var errEnough = errors.New("enough")

// ignoreEnough returns err unless it is errEnough.
func ignoreEnough(err error) error {
	if err == errEnough { // never wrapped
		return nil
	}
	return err
}

// Skip returns the position after the value that starts at i. White space may precede the value.
func Skip(doc []byte, i int) (int, error) {
	i = Space(doc, i)
	if i == len(doc) {
		return 0, ErrMalformed
	}
	switch doc[i] {
	case '"':
		return skipString(doc, i)
	case '{', '[':
		return skipToEnd(doc, i, 0)
	case ',', ':', '}', ']':
		return 0, ErrMalformed
	}
	for i < len(doc) && !endsScalar[doc[i]] {
		i++
	}
	return i, nil
}

// endsScalar holds the bytes that end a number, true, false or null.
var endsScalar = [256]bool{' ': true, '\t': true, '\n': true, '\r': true, ',': true, '}': true, ']': true, ':': true}

// Space returns the position of the next byte that is not white space.
func Space(doc []byte, i int) int {
	for i < len(doc) && (doc[i] == ' ' || doc[i] == '\n' || doc[i] == '\t' || doc[i] == '\r') {
		i++
	}
	return i
}

// skipString returns the index after the string that starts at i.
func skipString(doc []byte, i int) (int, error) {
	for i++; ; {
		n := bytes.IndexByte(doc[i:], '"')
		if n < 0 {
			return 0, ErrMalformed
		}
		i += n + 1
		escapes := 0
		for j := i - 2; doc[j] == '\\'; j-- {
			escapes++
		}
		if escapes%2 == 0 {
			return i, nil
		}
	}
}

// structural holds the bytes that matter within an object or list.
var structural = [256]bool{'"': true, '{': true, '}': true, '[': true, ']': true}

// skipToEnd returns the position after the end of the outermost of depth objects and lists that are
// open at i.
func skipToEnd(doc []byte, i, depth int) (int, error) {
	for i < len(doc) {
		b := doc[i]
		if !structural[b] {
			i++
			continue
		}
		switch b {
		case '"':
			var err error
			if i, err = skipString(doc, i); err != nil {
				return 0, err
			}
			continue
		case '{', '[':
			depth++
		default:
			depth--
		}
		i++
		if depth == 0 {
			return i, nil
		}
	}
	return 0, ErrMalformed
}

// Members calls each for the members of an object until it returns false. name is the text between
// the quotes. A value that is not an object has no members.
func Members(doc []byte, each func(name, value []byte) bool) error {
	i := Space(doc, 0)
	if i == len(doc) {
		return ErrMalformed
	}
	if doc[i] != '{' {
		return nil
	}
	_, err := MembersAt(doc, i, func(name []byte, at int) (int, bool, error) {
		end, err := Skip(doc, at)
		if err == nil && !each(name, doc[at:end]) {
			err = errEnough
		}
		return end, true, err
	})
	return ignoreEnough(err)
}

// MembersAt calls each for the members of the object that starts at i. It returns the position
// after the object. each receives the text between the quotes of the name and the position of the
// value. It must return the position after the value, and whether to continue. As each finds the
// end of the value itself, nested values are scanned only once.
func MembersAt(doc []byte, i int, each func(name []byte, at int) (end int, more bool, err error)) (int, error) {
	i = Space(doc, i+1)
	if i < len(doc) && doc[i] == '}' {
		return i + 1, nil
	}
	for {
		if i == len(doc) || doc[i] != '"' {
			return 0, ErrMalformed
		}
		end, err := skipString(doc, i)
		if err != nil {
			return 0, err
		}
		name := doc[i+1 : end-1]
		i = Space(doc, end)
		if i == len(doc) || doc[i] != ':' {
			return 0, ErrMalformed
		}
		end, more, err := each(name, Space(doc, i+1))
		if err != nil {
			return 0, err
		}
		if !more {
			return skipToEnd(doc, end, 1)
		}
		if i, more, err = afterValue(doc, end, '}'); !more || err != nil {
			return i, err
		}
		i = Space(doc, i)
	}
}

// afterValue returns the position after a value of an object or list, and after the comma or the
// closing bracket that follows. more is false after the bracket.
func afterValue(doc []byte, end int, bracket byte) (next int, more bool, err error) {
	i := Space(doc, end)
	if i == len(doc) || doc[i] != bracket && doc[i] != ',' {
		return 0, false, ErrMalformed
	}
	return i + 1, doc[i] == ',', nil
}

// Elements calls each for the elements of a list until it returns false. A value that is not a list
// has no elements.
func Elements(doc []byte, each func(i int, value []byte) bool) error {
	i := Space(doc, 0)
	if i == len(doc) {
		return ErrMalformed
	}
	if doc[i] != '[' {
		return nil
	}
	_, err := ElementsAt(doc, i, func(n, at int) (int, bool, error) {
		end, err := Skip(doc, at)
		if err == nil && !each(n, doc[at:end]) {
			err = errEnough
		}
		return end, true, err
	})
	return ignoreEnough(err)
}

// ElementsAt calls a function for the elements of a list, as MembersAt does for members.
func ElementsAt(doc []byte, i int, each func(n, at int) (end int, more bool, err error)) (int, error) {
	i = Space(doc, i+1)
	if i < len(doc) && doc[i] == ']' {
		return i + 1, nil
	}
	for n := 0; ; n++ {
		end, more, err := each(n, Space(doc, i))
		if err != nil {
			return 0, err
		}
		if !more {
			return skipToEnd(doc, end, 1)
		}
		if i, more, err = afterValue(doc, end, ']'); !more || err != nil {
			return i, err
		}
	}
}
