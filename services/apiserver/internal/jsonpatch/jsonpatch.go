// Package jsonpatch applies JSON patches (RFC 6902), those of clients, webhooks and policies, within
// bounds: the library copies a whole list for each element that is put in or taken out, and panics at
// some operations that make no sense.
package jsonpatch

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"

	library "gopkg.in/evanphx/json-patch.v4"
)

// Patch is a list of operations.
type Patch = library.Patch

// Operation is one of them.
type Operation = library.Operation

// ErrTestFailed is that of a "test" which did not hold.
var ErrTestFailed = library.ErrTestFailed

const (
	// MaxCopies is how many bytes the copies of a patch may take together.
	MaxCopies = 3 << 20
	// MaxMoved is how many elements of lists a patch may move: for each that it puts in, takes out or
	// replaces, as many as the longest list of the document and the patch has. It takes some 200 ms.
	MaxMoved = 50_000_000
)

// ErrMoved is that of a patch that moves more.
var ErrMoved = fmt.Errorf("the operations move more than %d elements of lists", MaxMoved)

// limitCopies sets the library's bound, which belongs to the process.
var limitCopies = sync.OnceFunc(func() { library.AccumulatedCopySizeLimit = MaxCopies })

// Decode reads a patch.
func Decode(raw []byte) (Patch, error) { return library.DecodePatch(raw) }

// Apply makes a document of another. Its errors are ErrMoved, and those of operations that cannot be
// applied.
func Apply(doc []byte, p Patch) (out []byte, err error) {
	limitCopies()
	defer func() {
		if r := recover(); r != nil {
			out, err = nil, errors.New("an operation cannot be applied")
		}
	}()
	for i, op := range p {
		switch op.Kind() {
		case "add", "replace", "test":
			if _, has := op["value"]; !has {
				return nil, fmt.Errorf("operation %d, %s, has no value", i, op.Kind())
			}
		}
	}
	if n := elements(p); n > 0 && n > MaxMoved/max(1, longest(doc, p)) {
		return nil, ErrMoved
	}
	return p.Apply(doc)
}

// elements is how often a patch puts an element into a list, takes one out or replaces one.
func elements(p Patch) (n int) {
	for _, op := range p {
		switch op.Kind() {
		case "add", "remove", "replace", "copy":
			n += ofElement(op.Path())
		case "move":
			n += ofElement(op.Path()) + ofElement(op.From())
		}
	}
	return n
}

// ofElement is 1 where a path may be that of an element of a list, but for a new one at its end.
func ofElement(path string, err error) int {
	if err != nil {
		return 0 // nor is it applied
	}
	if _, err := strconv.Atoi(path[strings.LastIndexByte(path, '/')+1:]); err != nil {
		return 0
	}
	return 1
}

// longest is how many elements the longest list has that there may be while a patch is applied.
func longest(doc []byte, p Patch) int {
	n := longestIn(doc)
	for _, op := range p {
		if value := op["value"]; value != nil {
			n = max(n, longestIn([]byte(json.RawMessage(*value))))
		}
	}
	return n + len(p)
}

// longestIn counts the commas of each list of a text of JSON.
func longestIn(doc []byte) (most int) {
	var counts []int // of the lists and objects that are open
	quoted := false
	for i := 0; i < len(doc); i++ {
		switch b := doc[i]; {
		case quoted:
			if b == '\\' {
				i++
			} else if b == '"' {
				quoted = false
			}
		case b == '"':
			quoted = true
		case b == '[' || b == '{':
			counts = append(counts, 1)
		case (b == ']' || b == '}') && len(counts) > 0:
			most = max(most, counts[len(counts)-1])
			counts = counts[:len(counts)-1]
		case b == ',' && len(counts) > 0:
			counts[len(counts)-1]++
		}
	}
	return most
}
