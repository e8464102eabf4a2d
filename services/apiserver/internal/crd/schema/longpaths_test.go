package schema

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// nestUnderLongKeys nests a schema and a value under keys of 50,000 bytes each.
func nestUnderLongKeys(keys int, schema, value string) (string, string) {
	for i := range keys {
		schema = `{"type":"object","additionalProperties":` + schema + `}`
		value = fmt.Sprintf(`{"%d%s":%s}`, i, strings.Repeat("k", 50_000), value)
	}
	return `{"type":"object","properties":{"x":` + schema + `}}`, `{"x":` + value + `}`
}

// joinNumbered joins count strings that contain their numbers.
func joinNumbered(count int, format string) string {
	var all []string
	for i := range count {
		all = append(all, fmt.Sprintf(format, i))
	}
	return strings.Join(all, ",")
}

// embeddedObject is the schema of an embedded resource. embeddedStart is the start of such a resource,
// in the middle of its metadata.
const (
	embeddedObject = `{"type":"object","x-kubernetes-embedded-resource":true,"x-kubernetes-preserve-unknown-fields":true}`
	embeddedStart  = `{"apiVersion":"v1","kind":"K","metadata":{"name":"n",`
)

// TestErrorsWithLongPathsAreLimitedInBytes checks that errors with long paths are reported up to a limit in bytes,
// the first ones as usual.
func TestErrorsWithLongPathsAreLimitedInBytes(t *testing.T) {
	const many = 300
	checkErrors := func(p *Program, doc string) []string {
		var all []string
		for _, e := range p.Check(parseDoc(t, []byte(doc)), nil, ratchets, nil).All() {
			all = append(all, e.Error())
		}
		return all
	}
	unknown := func(p *Program, doc string) []string {
		normalized, err := p.Normalize(parseDoc(t, []byte(doc)), NormalizeOptions{Unknown: true})
		if err != nil {
			t.Fatal(err)
		}
		return normalized.Unknown
	}
	for name, test := range map[string]struct {
		schema, value string // value with one %s for the list of errors
		wrong         string
		find          func(*Program, string) []string
	}{
		"types":           {schema: `{"type":"object","additionalProperties":{"type":"integer"}}`, value: `{%s}`, wrong: `"a%04d":"x"`, find: checkErrors},
		"missing fields":  {schema: `{"type":"array","items":{"type":"object","required":["r"]}}`, value: `[%s]`, wrong: `{"a":%d}`, find: checkErrors},
		"forbidden":       {schema: `{"type":"object","additionalProperties":false}`, value: `{%s}`, wrong: `"a%04d":1`, find: checkErrors},
		"combinations":    {schema: `{"type":"array","items":{"not":{"minimum":0}}}`, value: `[%s]`, wrong: `%d`, find: checkErrors},
		"sets":            {schema: `{"type":"array","x-kubernetes-list-type":"set","items":{"type":"integer"}}`, value: `[%s]`, wrong: `%[1]d,%[1]d`, find: checkErrors},
		"embedded":        {schema: `{"type":"array","items":` + embeddedObject + `}`, value: `[%s]`, wrong: `{"apiVersion":"v1","a":%d}`, find: checkErrors},
		"embedded labels": {schema: embeddedObject, value: embeddedStart + `"labels":{%s}}}`, wrong: `"a%d/":"b"`, find: checkErrors},
		"maps": {schema: `{"type":"array","items":{"type":"array","x-kubernetes-list-type":"map","x-kubernetes-list-map-keys":["k"],
			"items":{"x-kubernetes-preserve-unknown-fields":true}}}`, value: `[%s]`, wrong: `[%d]`, find: checkErrors},
		"unknown fields":            {schema: `{"type":"object"}`, value: `{%s}`, wrong: `"a%04d":1`, find: unknown},
		"unknown embedded metadata": {schema: `{"type":"array","items":` + embeddedObject + `}`, value: `[%s]`, wrong: embeddedStart + `"a":%d}}`, find: unknown},
	} {
		t.Run(name, func(t *testing.T) {
			// errorsBelow returns the errors of a value with wrong parts, nested under long keys.
			errorsBelow := func(keys, wrong int) []string {
				text, v := nestUnderLongKeys(keys, test.schema, fmt.Sprintf(test.value, joinNumbered(wrong, test.wrong)))
				return test.find(compileText(t, text), v)
			}
			if short := errorsBelow(0, many); len(short) < many {
				t.Fatalf("short paths: got %d errors, want at least %d", len(short), many)
			}
			long, first := errorsBelow(3, many), errorsBelow(3, 1)
			size := 0
			for _, text := range long {
				size += len(text)
			}
			if size < maxErrorBytes/4 || size > 2*maxErrorBytes {
				t.Errorf("got %d errors in %d bytes, want %d to %d bytes", len(long), size, maxErrorBytes/4, 2*maxErrorBytes)
			}
			slices.Sort(long) // labels have no order
			if len(first) == 0 || name != "embedded labels" && !slices.Contains(long, first[0]) {
				t.Errorf("got %d errors without the first one of all, want it", len(long))
			}
		})
	}
}

// TestInvalidOwnersAreCheckedInBoundedMemory checks that owner references of embedded resources that are invalid in the
// same way are validated in bounded memory.
func TestInvalidOwnersAreCheckedInBoundedMemory(t *testing.T) {
	const many = 60_000
	program := compileText(t, embeddedObject)
	for name, test := range map[string]struct {
		owners string
		maxMiB uint64 // that may be allocated
	}{
		"controllers": {owners: joinNumbered(many, `{"apiVersion":"v1","kind":"K","name":"n","uid":"%d","controller":true}`), maxMiB: 110},
		"no owners":   {owners: strings.Repeat("{},", many) + "{}", maxMiB: 75},
	} {
		doc := parseDoc(t, []byte(embeddedStart+`"ownerReferences":[`+test.owners+`]}}`))
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		errs := program.Check(doc, nil, ratchets, nil).All()
		runtime.ReadMemStats(&after)
		if len(errs) == 0 || !strings.HasPrefix(errs[0].Field, "metadata.ownerReferences") {
			t.Errorf("%s: got errors %v, want one of metadata.ownerReferences first", name, errs)
		}
		if got := (after.TotalAlloc - before.TotalAlloc) >> 20; got > test.maxMiB {
			t.Errorf("%s: got %d MiB allocated, want at most %d", name, got, test.maxMiB)
		}
	}
}

// TestUnchangedErrorsDoNotCountTowardsLimit checks that unchanged errors do not count towards the limit of bytes,
// but the time to find them is bounded.
func TestUnchangedErrorsDoNotCountTowardsLimit(t *testing.T) {
	numbers := `{"type":"object","additionalProperties":{"type":"integer"}}`
	for name, test := range map[string]struct {
		keys, wrong int
		changed     string
		want        field.ErrorType
	}{
		"long paths, nothing changed":  {keys: 3, wrong: 50},
		"long paths, one new error":    {keys: 3, wrong: 50, changed: `"z":"x"`, want: field.ErrorTypeTypeInvalid},
		"more errors than the limit":   {keys: 3, wrong: 3000, want: field.ErrorTypeTooLong},
		"short paths, nothing changed": {wrong: 1000},
		"short paths, one new error":   {wrong: 1000, changed: `"z":"x"`, want: field.ErrorTypeTypeInvalid},
	} {
		t.Run(name, func(t *testing.T) {
			values := joinNumbered(test.wrong, `"a%04d":"x"`)
			schema, before := nestUnderLongKeys(test.keys, numbers, "{"+values+"}")
			if test.changed != "" {
				values += "," + test.changed
			}
			_, after := nestUnderLongKeys(test.keys, numbers, "{"+values+"}")
			errs := withSmallLimit(compileText(t, schema)).Check(parseDoc(t, []byte(after)), parseDoc(t, []byte(before)), ratchets, nil).Schema
			var got field.ErrorType
			if len(errs) > 0 {
				got = errs[len(errs)-1].Type
			}
			if got != test.want || len(errs) > 1 {
				t.Errorf("got %d errors, the last %q, want %q", len(errs), string(got), string(test.want))
			}
		})
	}
}
