package transcode_test

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/randfill"

	"binnacle/services/apiserver/internal/api/kinds/builtin"
	"binnacle/services/apiserver/internal/json/transcode"
	"binnacle/services/apiserver/internal/registry"
)

// message is a generated type with a protobuf form.
type message interface {
	registry.Object
	Marshal() ([]byte, error)
	Unmarshal([]byte) error
}

// subject is a stored type with the program under test.
type subject struct {
	name    string
	goType  reflect.Type
	program *transcode.Program
	memo    transcode.Memo
}

func (s *subject) newMessage() message { return reflect.New(s.goType).Interface().(message) }

// subjects returns the stored types of all kinds that have a program.
func subjects(t testing.TB) []*subject {
	t.Helper()
	catalog, err := builtin.DefaultCatalog()
	if err != nil {
		t.Fatal(err)
	}
	var out []*subject
	for _, kind := range catalog.Kinds() {
		if kind.Virtual || kind.Stored.JSON {
			continue
		}
		obj := kind.New()
		if kind.Stored.New != nil {
			obj = kind.Stored.New()
		}
		transcoder := &subject{name: kind.GVK().String(), goType: reflect.TypeOf(obj).Elem()}
		if transcoder.program, err = transcode.Compile(transcoder.goType); err != nil {
			if kind.Kind != "CustomResourceDefinition" {
				t.Errorf("%s: got error %v, want none", transcoder.name, err)
			}
			continue
		}
		out = append(out, transcoder)
	}
	partial := &subject{name: "metadata only", goType: reflect.TypeFor[metav1.PartialObjectMetadata]()}
	if partial.program, err = transcode.Compile(partial.goType); err != nil {
		t.Fatal(err)
	}
	out = append(out, partial)
	if len(out) < 50 {
		t.Fatalf("got %d programs, want at least 50", len(out))
	}
	return out
}

// decodeAndEncode returns the wanted JSON: that of encoding/json for the decoded message.
func (s *subject) decodeAndEncode(raw []byte, version int64) ([]byte, error) {
	obj := s.newMessage()
	if err := obj.Unmarshal(raw); err != nil {
		return nil, err
	}
	obj.SetResourceVersion("")
	if version != 0 {
		obj.SetResourceVersion(fmt.Sprint(version))
	}
	return json.Marshal(obj)
}

// matchesLibrary compares the program's output with that of encoding/json. It fails the test if
// they differ, and returns false if the program does not transcode the message.
func (s *subject) matchesLibrary(t testing.TB, raw []byte, version int64) (ok bool) {
	t.Helper()
	memo := &s.memo // keeps values that occurred twice
	if version == 0 {
		memo = nil
	}
	got, ok := s.program.Append([]byte("before"), raw, version, memo)
	if version%3 == 0 {
		s.memo.Done() // also keeps them for the next message
	}
	if !ok {
		return false
	}
	want, err := s.decodeAndEncode(raw, version)
	if err != nil {
		t.Fatalf("%s: decoding fails with %v, but it was transcoded to\n%.300s", s.name, err, got)
	}
	want = append([]byte("before"), want...)
	if !bytes.Equal(got, want) {
		at := 0
		for at < min(len(got), len(want)) && got[at] == want[at] {
			at++
		}
		at = max(0, at-60)
		t.Fatalf("%s: got\n%.300s, want\n%.300s", s.name, got[min(at, len(got)):], want[min(at, len(want)):])
	}
	return true
}

// randomObjects returns a filler with typical stored values and unusual strings.
func randomObjects(seed int64) *randfill.Filler {
	texts := []string{
		"", "a", "web-7d4b9c", `quo"te\`, "<a href='x'>&</a>", "line\nbreak\ttab\b\f\r\x01\x7f", "gr\u00fcn", "\u2028\u2029\u202a", "bad\xff\xe2\x80", "日本語",
		"0123456789abcdef0123456789abcdef<", "\ufffd",
	}
	raws := []string{
		`{}`, `{"f:metadata":{"f:labels":{".":{},"f:app":{}}},"k:{\"uid\":\"1\"}":{".":{}}}`,
		`{"a":[1,-2.5e+3,"x",null,true,false,[],{}],"b":"\u00e9\n","c":0}`, `{"gr\u00fcn":"grün"}`, `{"a":[[],[{}]]}`,
	}
	quantities := []string{"0", "1", "100m", "1500m", "64Mi", "1Gi", "1536Mi", "3k", "12M", "7G", "2T", "5Ti", "1001", "1025Ki"}
	choose := func(c randfill.Continue, choices []string) string { return choices[c.Intn(len(choices))] }
	return randfill.NewWithSeed(seed).NilChance(0.5).NumElements(1, 3).MaxDepth(14).Funcs(
		func(t *metav1.TypeMeta, _ randfill.Continue) { *t = metav1.TypeMeta{} },
		func(s *string, c randfill.Continue) { *s = choose(c, texts) },
		func(n *int32, c randfill.Continue) { *n = int32(c.Uint64()) * int32(c.Intn(3)) },
		func(n *int64, c randfill.Continue) { *n = int64(c.Uint64()) * int64(c.Intn(3)) },
		func(q *resource.Quantity, c randfill.Continue) { *q = resource.MustParse(choose(c, quantities)) },
		func(t *metav1.Time, c randfill.Continue) {
			*t = (metav1.Time{})
			if c.Intn(4) > 0 {
				*t = metav1.Unix(c.Int63n(315e9)-62e9, 0)
			}
		},
		func(t *metav1.MicroTime, c randfill.Continue) {
			*t = (metav1.MicroTime{})
			if c.Intn(4) > 0 {
				*t = metav1.NewMicroTime(time.Unix(c.Int63n(315e9)-62e9, c.Int63n(1e9)))
			}
		},
		func(i *intstr.IntOrString, c randfill.Continue) {
			*i = intstr.FromInt32(int32(c.Uint64()))
			if c.Intn(2) > 0 {
				*i = intstr.FromString(choose(c, texts))
			}
		},
		func(r *runtime.RawExtension, c randfill.Continue) {
			*r = runtime.RawExtension{Raw: []byte(choose(c, raws))}
		},
		func(f *metav1.FieldsV1, c randfill.Continue) { f.Raw = []byte(choose(c, raws)) },
	)
}

// random returns the message of a random object.
func (s *subject) random(t testing.TB, seed int64) []byte {
	t.Helper()
	obj := s.newMessage()
	randomObjects(seed).Fill(obj)
	obj.SetResourceVersion("")
	raw, err := obj.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// objects is the number of random objects of each kind.
var objects = flag.Int64("objects", 20, "random objects of each kind")

// TestRandomObjectsAreTranscoded checks that random objects of all kinds are transcoded, with the
// output of encoding/json.
func TestRandomObjectsAreTranscoded(t *testing.T) {
	for _, subject := range subjects(t) {
		t.Run(subject.name, func(t *testing.T) {
			for seed := range *objects {
				raw := subject.random(t, seed)
				for _, version := range []int64{42, 0, 43, 44} {
					if !subject.matchesLibrary(t, raw, version) {
						t.Fatalf("object of seed %d with version %d: got not transcoded, want transcoded", seed, version)
					}
				}
			}
			if !subject.matchesLibrary(t, nil, 42) {
				t.Error("empty message: got not transcoded, want transcoded")
			}
		})
	}
}

// TestMutatedMessagesMatchLibrary checks that mutated messages are either not transcoded or have
// the output of encoding/json.
func TestMutatedMessagesMatchLibrary(t *testing.T) {
	for _, subject := range subjects(t) {
		t.Run(subject.name, func(t *testing.T) {
			transcoded := 0
			rounds := 10 * *objects
			for seed := range rounds {
				rnd := rand.New(rand.NewPCG(uint64(seed), 1))
				if subject.matchesLibrary(t, mutate(rnd, subject.random(t, seed/10)), 42) {
					transcoded++
				}
			}
			if transcoded == 0 || transcoded == int(rounds) {
				t.Errorf("%d of %d messages were transcoded, want some but not all", transcoded, rounds)
			}
		})
	}
}

// mutate returns a message with one of several random changes.
func mutate(rnd *rand.Rand, data []byte) []byte {
	data = bytes.Clone(data)
	if len(data) == 0 {
		return []byte{byte(rnd.Uint32())}
	}
	at := rnd.IntN(len(data))
	switch rnd.IntN(6) {
	case 0:
		data[at] = byte(rnd.Uint32())
	case 1:
		data[at] ^= 1 << rnd.IntN(8)
	case 2:
		data = data[:at]
	case 3: // an additional field, known or unknown
		data = binary.AppendUvarint(data, rnd.Uint64()>>rnd.IntN(64))
		data = binary.AppendUvarint(data, rnd.Uint64()>>rnd.IntN(64))
	case 4: // all fields twice
		data = append(data, data...)
	default: // fields in another order
		fields := topFields(data)
		rnd.Shuffle(len(fields), func(i, j int) { fields[i], fields[j] = fields[j], fields[i] })
		data = bytes.Join(fields, nil)
	}
	return data
}

// topFields splits a message into its fields.
func topFields(encoded []byte) (out [][]byte) {
	for len(encoded) > 0 {
		tag, n := binary.Uvarint(encoded)
		l, m := binary.Uvarint(encoded[n:])
		end := n + m
		if tag&7 == 2 {
			end += int(l)
		}
		out = append(out, encoded[:end])
		encoded = encoded[end:]
	}
	return out
}

// FuzzAppend checks arbitrary bytes as messages of each type, like TestMutatedMessagesMatchLibrary.
func FuzzAppend(f *testing.F) {
	transcoders := subjects(f)
	for i, s := range transcoders {
		f.Add(uint8(i), s.random(f, int64(i)), int64(42))
	}
	f.Fuzz(func(t *testing.T, kind uint8, raw []byte, version int64) {
		// The memo keeps its input, which the fuzzer overwrites.
		transcoders[int(kind)%len(transcoders)].matchesLibrary(t, bytes.Clone(raw), version)
	})
}

// TestCanonicalQuantitiesAreTranscoded checks that a quantity is either not transcoded or has the
// form that encoding/json writes.
func TestCanonicalQuantitiesAreTranscoded(t *testing.T) {
	program, err := transcode.Compile(reflect.TypeFor[corev1.ResourceQuota]())
	if err != nil {
		t.Fatal(err)
	}
	transcoder := &subject{name: "quota", goType: reflect.TypeFor[corev1.ResourceQuota](), program: program}
	transcoded := 0
	for _, number := range []string{
		"", "-1", "+1", "0", "00", "01", "1", "5", "999", "1000", "1024", "1500", "2048", "0.5", ".5", "1.",
		"1e3", "999999999", "1000001", "999999999999999", "999999999999999999", "9223372036854775807",
		"9223372036854775808",
	} {
		for _, suffix := range []string{
			"", "n", "u", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei", "e3", "E3",
			"K", "x",
		} {
			q := number + suffix
			// ResourceQuota.spec.hard = {"c": q}, built here because Marshal writes only canonical
			// quantities
			entry := append([]byte{1<<3 | 2, 1, 'c', 2<<3 | 2, byte(len(q) + 2), 1<<3 | 2, byte(len(q))}, q...)
			spec := append([]byte{1<<3 | 2, byte(len(entry))}, entry...)
			if transcoder.matchesLibrary(t, append([]byte{2<<3 | 2, byte(len(spec))}, spec...), 1) {
				transcoded++
			}
		}
	}
	if transcoded < 40 {
		t.Errorf("%d quantities were transcoded, want at least 40", transcoded)
	}
}

// TestCanonicalEmbeddedJSONIsTranscoded checks that embedded JSON is transcoded only if
// encoding/json would leave it unchanged.
func TestCanonicalEmbeddedJSONIsTranscoded(t *testing.T) {
	transcoder := &subject{name: "revision", goType: reflect.TypeFor[corev1.ConfigMap]()}
	var err error
	if transcoder.program, err = transcode.Compile(transcoder.goType); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		raw string
		ok  bool
	}{
		{raw: `{}`, ok: true},
		{raw: `{"a":{}}`, ok: true},
		{raw: `{"a":{},"b":[]}`, ok: true},
		{raw: `{"a":[{},[],"",0,-0,1.5,1e9,1E-9,true]}`, ok: true},
		{raw: `{"a":"\"\\\/\b\f\n\r\t\u12aB"}`, ok: true},
		{raw: "{\"a\":\"\x7f\xff\"}", ok: true},
		{raw: ``, ok: false},
		{raw: `{`, ok: false},
		{raw: `}`, ok: false},
		{raw: `{]`, ok: false},
		{raw: `{}}`, ok: false},
		{raw: `{}{}`, ok: false},
		{raw: `[]`, ok: false},
		{raw: `null`, ok: false},
		{raw: `1`, ok: false},
		{raw: `{ }`, ok: false},
		{raw: `{"a":1 }`, ok: false},
		{raw: `{"a"}`, ok: false},
		{raw: `{"a":}`, ok: false},
		{raw: `{"a":1,}`, ok: false},
		{raw: `{,}`, ok: false},
		{raw: `{"a":[1,]}`, ok: false},
		{raw: `{"a":[,1]}`, ok: false},
		{raw: `{"a":{}"b":1}`, ok: false},
		{raw: `{"a":[1}`, ok: false},
		{raw: `{"a":[1]]`, ok: false},
		{raw: `{"a":01}`, ok: false},
		{raw: `{"a":-}`, ok: false},
		{raw: `{"a":1.}`, ok: false},
		{raw: `{"a":1e}`, ok: false},
		{raw: `{"a":+1}`, ok: false},
		{raw: `{"a":tru}`, ok: false},
		{raw: `{"a":"<"}`, ok: false},
		{raw: `{"a":"&"}`, ok: false},
		{raw: `{">":1}`, ok: false},
		{raw: "{\"a\":\"\u2028\"}", ok: false},
		{raw: "{\"a\":\"\n\"}", ok: false},
		{raw: `{"a":"\x"}`, ok: false},
		{raw: `{"a":"\u12"}`, ok: false},
		{raw: `{"a":"\u12g4"}`, ok: false},
		{raw: `{"a":"`, ok: false},
		{raw: `{"a":"\`, ok: false},
		{raw: `{1:2}`, ok: false},
		{raw: `{"a":1:2}`, ok: false},
	}
	for _, test := range tests {
		obj := &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{ManagedFields: []metav1.ManagedFieldsEntry{{FieldsV1: &metav1.FieldsV1{Raw: []byte(test.raw)}}}},
		}
		raw, err := obj.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		if ok := transcoder.matchesLibrary(t, raw, 1); ok != test.ok {
			t.Errorf("%s: transcoded: got %v, want %v", test.raw, ok, test.ok)
		}
	}
}
