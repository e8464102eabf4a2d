package jsoniter

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
)

// TestReadAgreesWithStandardLibrary compares values, and errors, with those of encoding/json.
func TestReadAgreesWithStandardLibrary(t *testing.T) {
	for _, text := range []string{
		`{"a":[1,-2.5e3,"x\u00e9\ud83d\ude00",null,true,false,{}],"b":{"c":[]}}`, ` [ ] `, `"a\\b\/\b\f\n\r\t\""`, `"\ud800x"`,
		`{"f:a":{".":{},"k:{\"a\":1}":{}}}`, `"é"`, `-0.5`, `0`,
		``, `{`, `[1,`, `[1,]`, `{"a":1,}`, `{"a"}`, `{a:1}`, `01`, `1.`, `-`, `nul`, `"a`, "\"\n\"", `"\x"`, `"\u12"`, `]`,
	} {
		var want any
		wantErr := json.Unmarshal([]byte(text), &want) != nil
		it := Parse(ConfigCompatibleWithStandardLibrary, strings.NewReader(text), 0)
		got := it.Read()
		if failed := it.Error != nil; failed != wantErr || !failed && !reflect.DeepEqual(got, want) {
			t.Errorf("Read of %s: %#v, %v; want %#v, error %t", text, got, it.Error, want, wantErr)
		}
		it = Parse(ConfigCompatibleWithStandardLibrary, strings.NewReader(text), 0)
		it.Skip()
		if failed := it.Error != nil; failed != wantErr {
			t.Errorf("Skip of %s: %v, want error %t", text, it.Error, wantErr)
		}
	}
}

// TestReadRejectsDeepNesting checks the limit of levels.
func TestReadRejectsDeepNesting(t *testing.T) {
	it := Parse(ConfigCompatibleWithStandardLibrary, strings.NewReader(strings.Repeat("[", maxDepth+1)), 0)
	if it.Read(); it.Error == nil || !strings.Contains(it.Error.Error(), "exceeded max depth") {
		t.Errorf("got %v", it.Error)
	}
}

// TestReadMapStopsWhenTheCallbackDoes checks that later fields are not read.
func TestReadMapStopsWhenTheCallbackDoes(t *testing.T) {
	pool := NewIterator(ConfigCompatibleWithStandardLibrary).Pool()
	it := pool.BorrowIterator([]byte(`{"a":1,"b":2}`))
	defer pool.ReturnIterator(it)
	var names []string
	if it.ReadMapCB(func(_ *Iterator, name string) bool { names = append(names, name); return false }) || len(names) != 1 {
		t.Errorf("read %q", names)
	}
}

// TestStreamWritesValues checks the escapes of names and values, and when text reaches the writer.
func TestStreamWritesValues(t *testing.T) {
	var out strings.Builder
	pool := NewStream(ConfigCompatibleWithStandardLibrary, nil, 16).Pool()
	s := pool.BorrowStream(&out)
	defer pool.ReturnStream(s)
	s.WriteObjectStart()
	s.WriteObjectField("a<\"\x01\u2028\xff")
	s.WriteVal("b<\\\n\u2028\xff")
	s.WriteMore()
	s.WriteObjectField("n")
	s.WriteVal([]any{1.5, int64(2), true, nil, map[string]any{"z": 1, "a": 1e21}})
	s.WriteMore()
	s.WriteObjectField("e")
	s.WriteEmptyObject()
	s.WriteObjectEnd()
	if out.Len() != 0 {
		t.Errorf("%q was written before Flush", out.String())
	}
	if _, err := s.Write([]byte(" ")); err != nil {
		t.Fatal(err)
	}
	s.WriteInt(7)
	s.WriteRaw("<")
	if err := s.Flush(); err != nil {
		t.Fatal(err)
	}
	want := "{\"a<\\\"\\u0001\u2028\xff\":\"b\\u003c\\\\\\n\\u2028\\ufffd\",\"n\":[1.5,2,true,null,{\"a\":1e+21,\"z\":1}],\"e\":{}} 7<"
	if out.String() != want {
		t.Errorf("got  %s\nwant %s", out.String(), want)
	}
}
