package jsonpatch_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"binnacle/services/apiserver/internal/json/jsonpatch"
)

// TestApplyReturnsResultOrError checks the results of the operations, and the limits of depth, copies and shifted
// elements.
func TestApplyReturnsResultOrError(t *testing.T) {
	list := func(n int) string { return "[" + strings.Repeat("0,", n-1) + "0]" }
	repeat := func(op string, n int) string { return "[" + strings.Repeat(op+",", n-1) + op + "]" }
	for name, test := range map[string]struct {
		doc, patch, want string
		err              string
	}{
		"add, remove and test list elements": {
			doc:   `{"a":[1,2]}`,
			patch: `[{"op":"add","path":"/a/0","value":0},{"op":"remove","path":"/a/2"},{"op":"test","path":"/a/1","value":1}]`,
			want:  `{"a":[0,1]}`,
		},
		"test without a value": {
			doc:   `{}`,
			patch: `[{"op":"test","path":"/data/x"}]`,
			err:   "is missing path: /data/x",
		},
		"test of a missing member without a value": {
			doc:   `{"a":{}}`,
			patch: `[{"op":"test","path":"/a/x"}]`,
			err:   "operation 0, test, has no value",
		},
		"test of an existing member without a value": {
			doc:   `{"a":1}`,
			patch: `[{"op":"test","path":"/a"}]`,
			err:   "testing value /a failed: test failed",
		},
		"a missing value is null": {
			doc:   `{"a":1}`,
			patch: `[{"op":"add","path":"/b"},{"op":"replace","path":"/a"}]`,
			want:  `{"a":null,"b":null}`,
		},
		"replace the root without a value": {doc: `{"a":1}`, patch: `[{"op":"replace","path":""}]`, err: "has no value"},
		"replace the root by a scalar": {
			doc:   `{"a":1}`,
			patch: `[{"op":"replace","path":"","value":2}]`,
			want:  `{"a":1}`,
		},
		"nulls are equal": {
			doc:   `{"a":[null]}`,
			patch: `[{"op":"test","path":"/a","value":[null]},{"op":"add","path":"/b","value":null},{"op":"copy","from":"/b","path":"/c"},{"op":"test","path":"/c","value":null}]`,
			want:  `{"a":[null],"b":null,"c":null}`,
		},
		"copies are independent": {
			doc:   `{"a":{"b":{"c":1}}}`,
			patch: `[{"op":"copy","from":"/a/b","path":"/d"},{"op":"add","path":"/d/e","value":2},{"op":"add","path":"/a/b/f","value":3},{"op":"copy","from":"/d","path":"/g"},{"op":"remove","path":"/g/c"}]`,
			want:  `{"a":{"b":{"c":1,"f":3}},"d":{"c":1,"e":2},"g":{"e":2}}`,
		},
		"nested too deeply": {doc: `{"a":{}}`, patch: deeper(25, 450), err: "exceeded max depth"},
		"nested too deeply by moves": {
			doc:   `{"a":` + nested(6000) + `,"b":` + nested(6000) + `}`,
			patch: `[{"op":"move","from":"/a","path":"/b` + strings.Repeat("/a", 6000) + `"}]`,
			err:   "exceeded max depth",
		},
		"add below null": {
			doc:   `{}`,
			patch: `[{"op":"add","path":"/foo","value":null},{"op":"add","path":"/foo/x","value":1}]`,
			err:   "doc is missing path",
		},
		"many changes of a short list": {
			doc:   `{"a":[0]}`,
			patch: repeat(`{"op":"replace","path":"/a/0","value":1}`, 5000),
			want:  `{"a":[1]}`,
		},
		"many changes of a long list": {
			doc:   fmt.Sprintf(`{"a":%s}`, list(100_000)),
			patch: repeat(`{"op":"add","path":"/a/0","value":1}`, 1000),
			err:   jsonpatch.ErrMoved.Error(),
		},
		"many changes of an added long list": {
			doc:   `{}`,
			patch: `[{"op":"add","path":"/a","value":` + list(100_000) + `},` + repeat(`{"op":"remove","path":"/a/0"}`, 1000)[1:],
			err:   jsonpatch.ErrMoved.Error(),
		},
		"many moves": {
			doc:   fmt.Sprintf(`{"a":%s,"b":"[,,"}`, list(30_000)),
			patch: repeat(`{"op":"move","from":"/a/0","path":"/a/1"}`, 1000),
			err:   jsonpatch.ErrMoved.Error(),
		},
		"many appends": {
			doc:   fmt.Sprintf(`{"a":%s}`, list(100_000)),
			patch: repeat(`{"op":"add","path":"/a/-","value":0}`, 1000),
			want:  fmt.Sprintf(`{"a":%s}`, list(101_000)),
		},
		"many changes of members beside a long list": {
			doc:   fmt.Sprintf(`{"a":%s}`, list(100_000)),
			patch: repeat(`{"op":"add","path":"/b","value":0}`, 1000),
			want:  fmt.Sprintf(`{"a":%s,"b":0}`, list(100_000)),
		},
		"few changes of a long list": {
			doc:   fmt.Sprintf(`{"a":%s}`, list(100_000)),
			patch: repeat(`{"op":"remove","path":"/a/0"}`, 100),
			want:  fmt.Sprintf(`{"a":%s}`, list(99_900)),
		},
		"copies exceed the size limit": {
			doc:   fmt.Sprintf(`{"a":%q}`, strings.Repeat("x", 100_000)),
			patch: repeat(`{"op":"copy","from":"/a","path":"/b"}`, 40),
			err:   "copy",
		},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := jsonpatch.Decode([]byte(test.patch))
			if err != nil {
				t.Fatal(err)
			}
			out, err := jsonpatch.Apply([]byte(test.doc), p)
			if test.err != "" {
				if err == nil || !strings.Contains(err.Error(), test.err) {
					t.Errorf("Apply(%.100s, %.100s) = %.100s, %v, want error %s", test.doc, test.patch, out, err, test.err)
				}
				return
			}
			if err != nil || string(out) != test.want {
				t.Errorf("Apply(%.100s, %.100s) = %.100s, %v, want %.100s", test.doc, test.patch, out, err, test.want)
			}
		})
	}
}

// TestFailedTestOperationIsErrTestFailed checks the error of a test operation whose value differs.
func TestFailedTestOperationIsErrTestFailed(t *testing.T) {
	patch, err := jsonpatch.Decode([]byte(`[{"op":"test","path":"/a","value":1}]`))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := jsonpatch.Apply([]byte(`{"a":2}`), patch); !errors.Is(err, jsonpatch.ErrTestFailed) {
		t.Errorf("Apply(test of another value) = %v, want ErrTestFailed", err)
	}
}

// nested returns the given number of nested objects.
func nested(depth int) string {
	return strings.Repeat(`{"a":`, depth) + "{}" + strings.Repeat("}", depth)
}

// deeper returns a patch of count operations. Each adds an object of the given depth inside the object
// that the one before added.
func deeper(count, depth int) string {
	ops := make([]string, count)
	for i := range ops {
		ops[i] = fmt.Sprintf(`{"op":"add","path":"/a%s","value":%s}`, strings.Repeat("/a", i*(depth+1)), nested(depth))
	}
	return "[" + strings.Join(ops, ",") + "]"
}
