package apitype_test

import (
	"bytes"
	"reflect"
	"testing"

	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/randfill"

	"binnacle/services/apiserver/internal/registry/apis/apitype"
)

// inner is a recursive message.
type inner struct {
	Text string `protobuf:"bytes,1,opt,name=text"`
	Self *inner `protobuf:"bytes,2,opt,name=self"`
}

// everything has a field of each Go type that apitype supports.
type everything struct {
	ignored   string
	Bool      bool              `protobuf:"varint,1,opt,name=bool"`
	Int32     int32             `protobuf:"varint,2,opt,name=int32"`
	Int64     *int64            `protobuf:"varint,3,opt,name=int64"`
	Double    float64           `protobuf:"fixed64,4,opt,name=double"`
	Text      string            `protobuf:"bytes,5,opt,name=text"`
	Bytes     []byte            `protobuf:"bytes,6,opt,name=bytes"`
	Inner     inner             `protobuf:"bytes,7,opt,name=inner"`
	Pointer   *inner            `protobuf:"bytes,8,opt,name=pointer"`
	Texts     []string          `protobuf:"bytes,9,rep,name=texts"`
	Blobs     [][]byte          `protobuf:"bytes,10,rep,name=blobs"`
	Inners    []inner           `protobuf:"bytes,11,rep,name=inners"`
	Strings   map[string]string `protobuf:"bytes,12,rep,name=strings"`
	Structs   map[string]inner  `protobuf:"bytes,13,rep,name=structs"`
	ByteMap   map[string][]byte `protobuf:"bytes,14,rep,name=byteMap"`
	Meta      metav1.ObjectMeta `protobuf:"bytes,15,opt,name=meta"`
	When      *metav1.Time      `protobuf:"bytes,16,opt,name=when"`
	Unsigned  uint64            `protobuf:"varint,17,opt,name=unsigned"`
	Numbers   []int64           `protobuf:"varint,18,rep,name=numbers"`
	Unsigned4 uint32            `protobuf:"varint,2000,opt,name=unsigned4"`
}

// randomValue returns a value with all kinds of fields, filled from a seed.
func randomValue(seed int64) *everything {
	var sample everything
	randfill.NewWithSeed(seed).NilChance(0.3).NumElements(1, 3).MaxDepth(12).Funcs(
		func(t *metav1.Time, c randfill.Continue) { *t = metav1.Unix(int64(c.Intn(1<<30)), 0) },
		func(b *[]byte, c randfill.Continue) { *b = []byte{byte(c.Intn(256)), 1} },
	).Fill(&sample)
	sample.ignored = ""
	return &sample
}

// TestValuesSurviveRoundTrip checks that random values survive encoding, decoding and copying, and that the
// bytes do not depend on the buffer.
func TestValuesSurviveRoundTrip(t *testing.T) {
	for seed := int64(1); seed <= 200; seed++ {
		sample := randomValue(seed)
		data, err := apitype.Marshal(sample)
		if err != nil {
			t.Fatal(err)
		}
		if len(data) != apitype.Size(sample) {
			t.Fatalf("seed %d: got %d bytes, want the size %d", seed, len(data), apitype.Size(sample))
		}
		var back everything
		if err := apitype.Unmarshal(data, &back); err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(sample, &back) {
			t.Fatalf("seed %d:\n got %+v\nwant %+v", seed, back, sample)
		}
		if copied := apitype.DeepCopy(sample); !reflect.DeepEqual(sample, copied) {
			t.Fatalf("seed %d: got a copy that differs from the original", seed)
		}
		// The bytes do not depend on the buffer.
		buf := make([]byte, len(data)+3)
		n, err := apitype.MarshalToSizedBuffer(sample, buf)
		if err != nil || !bytes.Equal(buf[len(buf)-n:], data) {
			t.Fatalf("seed %d: MarshalToSizedBuffer: got error %v or other bytes than Marshal", seed, err)
		}
	}
}

// TestMarshalMatchesGeneratedCode compares with the generated code of a Kubernetes type.
func TestMarshalMatchesGeneratedCode(t *testing.T) {
	for seed := int64(1); seed <= 50; seed++ {
		var status policyv1.PodDisruptionBudgetStatus
		randfill.NewWithSeed(seed).NilChance(0.3).NumElements(1, 3).Funcs(
			func(t *metav1.Time, c randfill.Continue) { *t = metav1.Unix(int64(c.Intn(1<<30))+1, 0) },
		).Fill(&status)
		want, err := status.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		// bare has the same fields without the generated methods.
		type bare policyv1.PodDisruptionBudgetStatus
		got, err := apitype.Marshal((*bare)(&status))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Fatalf("seed %d:\n got %x\nwant %x", seed, got, want)
		}
		var back bare
		if err := apitype.Unmarshal(want, &back); err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(policyv1.PodDisruptionBudgetStatus(back), status) {
			t.Fatalf("seed %d: read %+v, want %+v", seed, back, status)
		}
	}
}

// TestMalformedMessagesAreRejected checks that Unmarshal returns an error for messages that are cut,
// have a wrong wire type, or are nested too deeply.
func TestMalformedMessagesAreRejected(t *testing.T) {
	deep := []byte{}
	for i := 0; i < 12000; i++ {
		length := len(deep)
		head := []byte{2<<3 | 2}
		for ; length >= 0x80; length >>= 7 {
			head = append(head, byte(length)|0x80)
		}
		deep = append(append(head, byte(length)), deep...)
	}
	for name, data := range map[string][]byte{
		"cut in a tag":              {0x80},
		"cut in a number":           {1 << 3, 0x80},
		"cut in a length":           {5<<3 | 2, 0x80},
		"cut in a text":             {5<<3 | 2, 3, 'a'},
		"length beyond everything":  {5<<3 | 2, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1},
		"number of eleven bytes":    {1 << 3, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1},
		"field zero":                {0, 1},
		"wrong wire type":           {5 << 3, 1},
		"unknown wire type":         {1<<3 | 7, 1},
		"cut in a double":           {4<<3 | 1, 1, 2},
		"cut in a skipped fixed32":  {0xfa, 1 | 0x04, 1},
		"end of an unopened group":  {19<<3 | 4&7, 1},
		"group without end":         {0x9b, 1, 0x9b, 1},
		"malformed map entry":       {12 << 3, 1},
		"map with a number for key": {12<<3 | 2, 2, 1 << 3, 1},
		"nested too deeply":         append([]byte{7<<3 | 2, 0xff, 0xff, 0xff, 0x0f}, deep...),
	} {
		var v everything
		if err := apitype.Unmarshal(data, &v); err == nil {
			t.Errorf("%s: got no error, want one", name)
		}
	}
	if err := apitype.Unmarshal(deep, &inner{}); err == nil {
		t.Error("nested too deeply: got no error, want one")
	}
}

// TestUnknownFieldsAreSkipped checks that unknown fields of every wire type are skipped.
func TestUnknownFieldsAreSkipped(t *testing.T) {
	var sample everything
	data := []byte{
		0x9b, 2, 0x9b, 2, 8, 1, 0x9c, 2, 0x9c, 2, // nested groups
		0xa5, 2, 1, 2, 3, 4, // fixed32
		0xa1, 2, 1, 2, 3, 4, 5, 6, 7, 8, // fixed64
		0xa2, 2, 1, 9, // bytes
		0xa0, 2, 5, // varint
		5<<3 | 2, 1, 'x',
	}
	if err := apitype.Unmarshal(data, &sample); err != nil {
		t.Fatal(err)
	}
	if sample.Text != "x" {
		t.Errorf("got text %q, want %q", sample.Text, "x")
	}
}

// TestTypesWithoutProtobufFormAreErrors checks that types without a protobuf form are errors.
func TestTypesWithoutProtobufFormAreErrors(t *testing.T) {
	for name, value := range map[string]any{
		"a channel": &struct {
			C chan int `protobuf:"bytes,1"`
		}{},
		"a map by number": &struct {
			M map[int]string `protobuf:"bytes,1"`
		}{},
		"no number": &struct {
			S string `protobuf:"bytes"`
		}{},
		"number zero": &struct {
			S string `protobuf:"bytes,0"`
		}{},
		"twice the same": &struct {
			A string `protobuf:"bytes,1"`
			B string `protobuf:"bytes,1"`
		}{},
		"no pointer": everything{},
		"nil":        (*everything)(nil),
	} {
		if _, err := apitype.Marshal(value); err == nil {
			t.Errorf("%s: got no error, want one", name)
		}
	}
}

// FuzzUnmarshal checks that whatever can be decoded can be encoded and decoded again.
func FuzzUnmarshal(f *testing.F) {
	for seed := int64(1); seed <= 5; seed++ {
		encoded, err := apitype.Marshal(randomValue(seed))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(encoded)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var sample everything
		if err := apitype.Unmarshal(data, &sample); err != nil {
			return
		}
		encoded, err := apitype.Marshal(&sample)
		if err != nil {
			t.Fatal(err)
		}
		var back everything
		if err := apitype.Unmarshal(encoded, &back); err != nil {
			t.Fatalf("decode after encode: %v", err)
		}
	})
}
